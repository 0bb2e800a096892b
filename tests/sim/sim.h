/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated driver: what its files share. README.md says which rule lives in which file.
 *
 * gates.c exports every row of shim/hooks.def and rest.def. A gate counts the call, applies the
 * scripted faults, takes the one lock, checks what the call needs (init, context, no capture), and
 * runs the body: do_<base><suffix>. The per-thread variants (_ptsz, _ptds) share the body; the gate
 * only sets tls.per_thread, which is what stream 0 means. A row without a body answers
 * CUDA_ERROR_NOT_SUPPORTED.
 *
 * Everything but gates.c, fail.c and procaddr.c runs under sim_lock.
 */
#ifndef SIM_H
#define SIM_H

#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#include <cudaProfiler.h>
#if CUDA_VERSION < 13020
CUresult CUDAAPI cuFuncGetParamCount(CUfunction func, size_t *paramCount);
CUresult CUDAAPI cuKernelGetParamCount(CUkernel kernel, size_t *paramCount);
#endif
#pragma GCC visibility pop
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/sim/tool.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)	((a) < (b) ? (a) : (b))
#define MAX(a, b)	((a) > (b) ? (a) : (b))

/* ---- rows (gates.c, fail.c) ---- */

enum sim_row {
#define HOOK(base, suffix, since, stream, family, kind, doc, params, args)                    \
	SIM_##base##suffix##stream,
#define SIM(base, suffix, since, stream, params, args) SIM_##base##suffix##stream,
#include "shim/hooks.def"
#include "tests/sim/rest.def"
#undef HOOK
#undef SIM
	SIM_ROWS
};

struct graph;
struct node;
struct user;

struct row {
	const char *symbol, *base;
	unsigned since;
	bool per_thread;
	void *entry;		/* the exported gate; NULL: this variant does not have it */
	void *body;		/* NULL: CUDA_ERROR_NOT_SUPPORTED */
};
extern const struct row sim_rows[SIM_ROWS];
extern const unsigned sim_version;

/* From here on (a guess) a graph that is launched into a capture becomes a child node. */
#define SIM_CAPTURES_GRAPHS	14000

/* The bodies. Weak: a row without one resolves to NULL. */
#define HOOK(base, suffix, since, stream, family, kind, doc, params, args)                    \
	CUresult do_##base##suffix params __attribute__((weak));
#define SIM(base, suffix, since, stream, params, args)                                        \
	CUresult do_##base##suffix params __attribute__((weak));
#include "shim/hooks.def"
#include "tests/sim/rest.def"
#undef HOOK
#undef SIM

/* This ABI is the same as that one. */
#define SAME_ABI(old, newer) extern __typeof__(newer) old __attribute__((alias(#newer), weak))

bool sim_enter(enum sim_row row, CUresult *rc);	/* false: the body is not run, *rc is the answer */
CUresult sim_leave(enum sim_row row, CUresult rc);
CUresult fail_check(enum sim_row row);		/* counts the call; the scripted fault or 0 */
void trace_call(enum sim_row row, CUresult rc);
extern pthread_mutex_t sim_lock;

/* ---- a tool that listens (tool.c) ---- */

bool tool_listens(void);
void tool_tell(struct sim_tool_data data);
void tool_tell_node(enum sim_tool_event event, const struct node *n);
void tool_tell_call(enum sim_tool_event event, enum sim_row row, CUresult rc);

/* ---- objects (object.c) ---- */

enum obj_type {
	OBJ_CONTEXT = 1, OBJ_STREAM, OBJ_EVENT, OBJ_MODULE, OBJ_FUNCTION, OBJ_KERNEL, OBJ_GRAPH,
	OBJ_NODE, OBJ_EXEC, OBJ_POOL, OBJ_PHYS, OBJ_EXTMEM, OBJ_SEMAPHORE, OBJ_USER,
	OBJ_TYPES
};

/* What every handle points to. Dropped objects are reused, last in first out, so that a stale
 * handle soon names something else: as on the real driver. */
struct obj {
	enum obj_type type;
	bool live;
	uint64_t serial;
	struct obj *next;	/* live: all of the type; dropped: the free list */
	struct obj *prev;
};

void *obj_new(enum obj_type type, size_t size);		/* zeroed behind the header */
void obj_drop(void *o);
/* NULL unless live and of the type. */
void *obj_get(const volatile void *handle, enum obj_type type);
struct obj *obj_first(enum obj_type type);
#define OBJ_EACH(var, type) for (var = (void *)obj_first(type); var; var = (void *)var->obj.next)

/* ---- contexts (context.c) ---- */

#define DEVICES 2

struct context {
	struct obj obj;
	CUdevice device;
	bool primary;
	unsigned flags;
	struct stream *legacy;
};

struct thread_state {
	bool per_thread;		/* the call is a _ptsz or _ptds variant */
	bool in_callback;		/* a host function runs on this thread */
	struct context *stack[16];	/* the last one is current */
	unsigned contexts;
	CUstreamCaptureMode capture_mode;
	struct stream *stream;		/* CU_STREAM_PER_THREAD, of stream_ctx */
	uint64_t stream_ctx;
};
extern _Thread_local struct thread_state tls;

extern bool sim_initialised;
extern CUresult sim_sticky;	/* after an illegal access every call returns it */

struct context *context_current(void);	/* NULL: none, or destroyed */

/* ---- memory (memory.c, address.c) ---- */

enum range_kind {
	RANGE_DEVICE, RANGE_ASYNC, RANGE_MANAGED, RANGE_HOST, RANGE_REGISTERED, RANGE_MAPPED,
	RANGE_GRAPH, RANGE_IPC, RANGE_IMPORT, RANGE_GLOBAL
};

/*
 * Memory that a kernel may touch now. Device addresses are reserved and never accessible to the
 * host (as on a real GPU, a host access faults); the bytes live at @host. Managed and host memory
 * have host == base.
 */
struct range {
	uint64_t base, size;
	char *host;
	enum range_kind kind;
	struct context *ctx;
	struct pool *pool;
	struct phys *phys;		/* RANGE_MAPPED */
	uint64_t phys_offset;
	bool readable, writable;
	bool freeing;			/* a FreeAsync is queued */
	bool small;			/* part of a shared 2 MiB page */
	uint64_t id;			/* CU_POINTER_ATTRIBUTE_BUFFER_ID */
	unsigned opens;			/* RANGE_IPC */
};

#define GRANULE		(2ull << 20)
#define SMALL_GRANULE	512ull
#define ROUND_UP(n, to)	(((n) + (to) - 1) / (to) * (to))

/* Multiples of 2 MiB; 0: none left. */
uint64_t address_take(uint64_t size, uint64_t align, uint64_t hint);
uint64_t address_low(uint64_t size);	/* below 4 GiB */
void address_give(uint64_t base, uint64_t size);
char *backing_new(uint64_t size);	/* host memory for device memory */
void backing_free(char *host, uint64_t size);
char *host_take(uint64_t size);		/* multiples of 4 KiB, for pinned and managed memory */
void host_give(char *host, uint64_t size);
bool address_is_ours(uint64_t addr);	/* of the device or pinned, live or not */

struct range *range_new(uint64_t base, uint64_t size, char *host, enum range_kind kind);
void range_end(struct range *r);
struct range *range_at(uint64_t addr);		/* interior pointers too */
struct range *range_exact(uint64_t base);	/* begins here */
struct range *range_next(uint64_t addr);	/* the first that ends behind @addr */

CUresult device_new(uint64_t size, enum range_kind kind, struct range **out);
void device_free(struct range *r);		/* ends the range, its address may be reused */

/* A second address for the same bytes (share.c). */
CUresult alias_new(uint64_t size, char *host, enum range_kind kind, struct range **out);
void alias_orphan(const struct range *source);

/*
 * Device side access, one contiguous piece: the host address of @addr and in *len how much of it
 * lies in one range. NULL: illegal access, and the process is poisoned.
 */
void *access_at(uint64_t addr, size_t *len, bool write);
bool access_copy(uint64_t dst, uint64_t src, size_t n);	/* device to device, false: fault */

/* ---- operations: what a stream executes and a node holds (op.c) ---- */

struct op {
	unsigned refs;
	CUgraphNodeParams p;	/* its pointers lead into own[], or into the blob */
	const struct twin *twin;
	char *blob;		/* kernel arguments, packed */
	size_t bytes;
	void *own[2];
};

/* A deep copy of *p, or the reason why not. */
CUresult op_new(const CUgraphNodeParams *p, struct op **out);
struct op *op_copy(const struct op *op);
struct op *op_ref(struct op *op);
void op_put(struct op *op);
void op_execute(struct op *op);
/* How often a query still finds the operation running. */
unsigned op_stall(const struct op *op);

void params_memcpy(CUgraphNodeParams *p, const CUDA_MEMCPY3D *c, CUcontext ctx);
/* @brief 3D copy as the driver does it; false: fault. */
bool copy_execute(const CUDA_MEMCPY3D *c);
CUresult copy_check(const CUDA_MEMCPY3D *c);

/* ---- programs: what an exec runs (program.c) ---- */

struct step {
	uint64_t node;		/* serial of the template's node */
	struct op *op;
	bool enabled;
	unsigned bodies;
	struct program **body;	/* child graph, or branches of a conditional */
	size_t n_deps;		/* edges, for the topology check: indices of earlier steps */
	size_t *deps;
	CUgraphNode handle;	/* only named in error answers */
};

struct program {
	unsigned refs;		/* shared by an exec and its launches in flight: copy to change */
	size_t n;
	struct step *step;
};

struct program *program_new(const struct graph *g);	/* NULL: the graph has a cycle */
struct program *program_clone(const struct program *p);
void program_put(struct program *p);
/* Same shape? Else the step of @b where they part (NULL: generic), and why. */
CUgraphExecUpdateResult program_compare(const struct program *a, const struct program *b,
					const struct step **at);
struct step *program_find(struct program *p, uint64_t node);
CUresult conditional_value(uint64_t handle, unsigned **value);
void conditional_reset(uint64_t handle);

/* ---- streams (stream.c, event.c) ---- */

struct stream {
	struct obj obj;
	struct context *ctx;
	unsigned flags;
	int priority;
	bool special;			/* the legacy or a per-thread stream */
	struct work *head, **tail;
	uint64_t submitted, completed;
	bool stalled;			/* the head has begun, */
	unsigned stall;			/* and so many queries still find it running */
	bool running;			/* a host function of this stream runs, without the lock */
	/* capture */
	struct capture *capture;	/* NULL: not capturing */
	CUgraphNode *deps;
	size_t n_deps;
};

struct event {
	struct obj obj;
	unsigned flags;
	uint64_t stream_serial;		/* 0: never recorded */
	struct stream *stream;
	uint64_t seq;
	double when_ms;
	uint64_t capture_id;		/* recorded in this capture */
	CUgraphNode *deps;
	size_t n_deps;
};

/* The stream that @h means; NULL: CUDA_ERROR_INVALID_HANDLE. */
struct stream *stream_get(CUstream h);
struct stream *stream_new(struct context *ctx, unsigned flags, bool special);
void stream_delete(struct stream *s);
/* A launch: becomes a node of the capture, or is queued. */
CUresult stream_launch(CUstream h, const CUgraphNodeParams *p);
/* The same on the default stream, and waits for it. */
CUresult stream_launch_sync(const CUgraphNodeParams *p);
void stream_submit_program(struct stream *s, struct program *p);	/* takes the reference */
void stream_wait(struct stream *s, struct stream *other, uint64_t seq);
/* Runs what is queued up to @seq. Not patient: stops at work that still runs. False: not done. */
bool stream_run(struct stream *s, uint64_t seq, bool patient);
void stream_finish(struct stream *s);
void stream_finish_all(void);		/* what cuMemFree and its like do before they free */
void event_record(struct event *e, struct stream *s);

/* ---- capture (capture.c) ---- */

struct capture {
	uint64_t id;
	CUstreamCaptureMode mode;
	pthread_t thread;
	struct stream *origin;
	struct graph *graph;
	bool invalid, to_graph;
	struct capture *next;
};

extern struct capture *captures;
/* For a call that may synchronise: 0, or CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (and the captures
 * that forbid it are invalid). */
CUresult capture_unsafe(void);
/* Before work on @s: 0 run it now, 1 it becomes a node, negative -CUresult. */
int capture_check(struct stream *s);
/* Adds the operation to the capture of @s as a node; takes the reference. */
CUresult capture_add(struct stream *s, struct op *op, CUgraphNode *node);
CUresult capture_event_record(struct stream *s, struct event *e);
CUresult capture_event_wait(struct stream *s, struct event *e);
bool event_captured(const struct event *e);
/* Queries and synchronisation of a capturing stream: refuse and invalidate it. */
CUresult capture_refuse(struct stream *s);
void capture_forget(struct stream *s);

/* ---- graphs (graph.c, node.c) ---- */

struct edge { struct node *from, *to; CUgraphEdgeData data; };

struct graph {
	struct obj obj;
	struct node **node;
	size_t n, cap;
	struct edge *edge;
	size_t n_edges, cap_edges;
	bool owned;		/* the body of a child or conditional node: dies with it */
	bool mem_nodes;
	unsigned execs;		/* live instantiations; a graph with memory nodes may have one */
	struct user **user;	/* a reference each */
	size_t n_users;
};

struct node {
	struct obj obj;
	struct graph *graph;
	struct op *op;
	uint64_t origin;	/* serial of the node it was cloned from */
	unsigned bodies;
	struct graph **body;	/* child graph, or the branches of a conditional */
	bool freed;		/* MEM_ALLOC: a free node in this graph follows */
	bool reused;		/* MEM_FREE: its address was given to a later alloc node */
	size_t index;		/* in the graph */
};

struct graph *graph_new(void);
void graph_delete(struct graph *g);
struct graph *graph_clone(const struct graph *g);
struct node *graph_append(struct graph *g, struct op *op);
void graph_link(struct graph *g, struct node *from, struct node *to, CUgraphEdgeData data);
/* A node with all that its kind needs; takes the reference, also on failure. */
CUresult graph_add(struct graph *g, struct op *op, const CUgraphNode *deps, size_t n,
		   struct node **out);
bool graph_reaches(const struct graph *g, const struct node *from, const struct node *to);
/* The nodes in an order that respects the edges (free it); NULL: there is a cycle. */
struct node **graph_order(const struct graph *g);
/* Memory of alloc nodes: the host bytes behind an address, NULL when it is no such address. */
char *graph_memory(uint64_t addr);
void graph_memory_hold(uint64_t addr);	/* nodes and execs keep the address */
void graph_memory_put(uint64_t addr);

void user_release(struct user *u, unsigned n);	/* semaphore.c */

/* ---- execs (exec.c) ---- */

struct exec {
	struct obj obj;
	struct program *program;
	uint64_t flags;
	struct context *ctx;
	struct graph *graph;	/* only to count live execs; NULL once the template is gone */
	struct graph *clone;	/* what a tool was told that it is made of; NULL: none listened */
};

/* ---- code (module.c, twins.c) ---- */

struct twin_param { size_t offset, size; };
struct twin {
	const char *name;
	void (*run)(const void *args);
	unsigned n_params;
	struct twin_param param[20];
	size_t bytes;
};
extern const struct twin twins[];
extern const size_t n_twins;
extern const struct twin *const twin_spin;
/* Of those, the derivations, then the decode kernels; NULL: behind the last. */
const struct twin *twin_at(size_t i);
const struct twin *twin_decode(size_t i);	/* twins_decode.c */
/* Between simulated memory and the host's; false: fault. */
bool twin_load(uint64_t addr, void *to, size_t n);
bool twin_store(uint64_t addr, const void *from, size_t n);
/* twins_maintain.c */
void arena_compare(const void *args);
void arena_fingerprint(const void *args);
void arena_scan(const void *args);
void arena_zero(const void *args);

/* A module, or a library: both offer the twins and the globals. */
struct module {
	struct obj obj;
	struct context *ctx;
	bool library;
	struct module *part;		/* the library's module */
	struct function *function;	/* chain of what was asked for */
	struct range *global[2];
};
struct function {
	struct obj obj;			/* OBJ_FUNCTION or OBJ_KERNEL */
	const struct twin *twin;
	struct module *module;
	struct function *chain;
	int block[3];			/* the legacy launches' state */
	char args[256];
	size_t args_size;
};
struct function *function_any(const void *handle);	/* a function, or a kernel in its clothes */
void module_forget_context(struct context *ctx);

uint64_t tensormap_address(const void *map);

/* ---- pools (pool.c) ---- */

struct pool {
	struct obj obj;
	CUdevice device;
	bool is_default, imported;
	CUmemPoolProps props;
	uint64_t threshold;
	uint64_t used, used_high;
	int reuse[3];
	struct cached *cache;		/* blocks kept for reuse, last in first out */
};
void pool_free_block(struct range *r);	/* the stream reached the free */

/* ---- physical memory (vmm.c) ---- */

struct phys {
	struct obj obj;
	CUmemAllocationProp prop;
	uint64_t size;
	int fd;
	char *host;
	unsigned refs, maps;		/* handles, and mappings that keep it alive */
	struct phys *bound;		/* multicast: what is bound */
	bool multicast;
};

#endif
