/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the victims share: a few words over the driver API, so that a case reads like its story.
 *
 * A victim is one program with one or more forms (the fault, its repaired twin, ...), chosen by
 * its first argument. It runs unchanged on the simulated driver and on a real one. On stdout:
 *   range NAME=0xBASE:BYTES     memory that a finding may name
 *   launch NAME CODE            outcome of a guarded launch: the driver's code, or 401 if refused
 *   value NAME N                a result that must be the same with and without the shim
 * Exit: 0 the story went as the program expects, 1 it did not, 77 this driver cannot tell it.
 * Every call that a story does not expect to fail ends the program when it fails.
 */
#ifndef VICTIM_H
#define VICTIM_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB    ((size_t)1 << 20)
#define BIG    (4 * MIB)      /* an allocation of its own: not part of a shared page */
#define N_INTS ((size_t)1024) /* ints that each kernel touches */

struct victim_form {
	const char *name;
	void (*run)(void);
};
#define VICTIM(...) const struct victim_form victim_forms[] = { __VA_ARGS__, { NULL, NULL } }
extern const struct victim_form victim_forms[];

extern _Thread_local CUstream S; /* the calling thread's stream */
extern CUcontext victim_context;
extern CUdevice victim_device;

/* A call that must succeed. */
#define CK(x) victim_check((x), #x, __FILE__, __LINE__)
void victim_check(CUresult r, const char *what, const char *file, int line);
/* A condition that must hold. */
#define MUST(x) ((x) ? (void)0 : victim_fail(#x, __FILE__, __LINE__))
_Noreturn void victim_fail(const char *what, const char *file, int line);
/* This driver, machine or allocator cannot tell the story. */
_Noreturn void victim_skip(const char *why);
/* Skip when a stale launch would really run (gate not strict) and would do harm. */
void victim_only_harmless(bool harmless);
void victim_thread_start(void); /* context and stream of a further thread */

/* ---- memory; every named range is printed ---- */
void name_range(const char *name, uint64_t base, size_t bytes);
CUdeviceptr dev_alloc(const char *name, size_t bytes);
void dev_free(CUdeviceptr p);
CUdeviceptr async_alloc(const char *name, size_t bytes);
void async_free(CUdeviceptr p);
void *host_alloc(const char *name, size_t bytes);
void host_free(void *p);
CUdeviceptr vmm_reserve(const char *name, size_t bytes, CUdeviceptr hint);
CUmemGenericAllocationHandle vmm_create(size_t bytes, bool shareable);
void vmm_map(CUdeviceptr at, CUmemGenericAllocationHandle h, size_t bytes);
void vmm_unmap(CUdeviceptr at, size_t bytes);
void vmm_release(CUmemGenericAllocationHandle h);
void vmm_address_free(CUdeviceptr at, size_t bytes);

/* ---- work ---- */
CUmodule victim_module(void); /* one more copy of the kernels and their globals */
CUfunction victim_kernel(const char *name);
void launch(const char *kernel, void **args);
void launch_single(const char *kernel, void **args); /* one thread */
void settle(void);	 /* wait for the thread's stream */
int peek(CUdeviceptr p); /* first int, synchronous */
void poke(CUdeviceptr p, int v);
void poke_bytes(CUdeviceptr p, const void *from, size_t bytes); /* there when it returns */
void tell(const char *name, long long value);

static inline void run_set(CUdeviceptr p, int v)
{
	size_t n = N_INTS;

	launch("k_set", (void *[]){ &p, &v, &n });
}

static inline void run_acc(CUdeviceptr d, CUdeviceptr s)
{
	size_t n = N_INTS;

	launch("k_acc", (void *[]){ &d, &s, &n });
}

static inline void run_copy(CUdeviceptr d, CUdeviceptr s, size_t n)
{
	launch("k_copy", (void *[]){ &d, &s, &n });
}

static inline void run_bounded(CUdeviceptr o, CUdeviceptr n)
{
	launch("k_bounded", (void *[]){ &o, &n });
}

static inline void run_ticket(CUdeviceptr counter, CUdeviceptr o)
{
	launch_single("k_ticket", (void *[]){ &counter, &o });
}

static inline void run_chase(CUdeviceptr o, CUdeviceptr pp)
{
	launch("k_chase", (void *[]){ &o, &pp });
}

static inline void run_spin(CUdeviceptr p, long long cycles)
{
	launch("k_spin", (void *[]){ &p, &cycles });
}

static inline void run_seed(CUdeviceptr out, unsigned long long seed, int n)
{
	launch("k_seed", (void *[]){ &out, &seed, &n });
}

static inline void run_range(CUdeviceptr out, CUdeviceptr b, CUdeviceptr e)
{
	launch("k_range", (void *[]){ &out, &b, &e });
}

/* ---- graphs ---- */
#define CAPTURE(graph, ...)                                                       \
	do {                                                                      \
		CK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)); \
		__VA_ARGS__;                                                      \
		CK(cuStreamEndCapture(S, &(graph)));                              \
	} while (0)

/* Capture, instantiate, drop the template. */
#define CAPTURE_EXEC(exec, ...)               \
	do {                                  \
		CUgraph graph_;               \
		CAPTURE(graph_, __VA_ARGS__); \
		(exec) = instantiate(graph_); \
		CK(cuGraphDestroy(graph_));   \
	} while (0)

CUgraphExec instantiate(CUgraph g);
CUgraphNode only_node(CUgraph g); /* of a graph that has one */
CUgraphNode add_acc(CUgraph g, CUgraphNode after, CUdeviceptr d, CUdeviceptr s);
int launch_only(const char *name, CUgraphExec e); /* launch and print, do not wait */
int replay(const char *name, CUgraphExec e);	  /* launch, wait and print */
void launch_captured(CUgraphExec e); /* into the capture of S; skip where drivers refuse it */

#endif
