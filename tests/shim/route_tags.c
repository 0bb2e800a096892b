/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations under tags, through the driver's own calls and the public API, on the simulated or a
 * real driver, under the strict gate: a rebuilt wrapper gets its old workspaces back, what was
 * captured stays valid, values are staged, and what does not fit goes to the driver.
 *
 *	route_tags SCENE
 *	route_tags --list	the scenes for which the driver need not be made to fail
 */
#include <cuda.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define N	 3
#define MIB	 ((size_t)1 << 20)

#define MUST(condition)                                                                 \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			exit(EXIT_FAILURE);                                             \
		}                                                                       \
	} while (0)
#define CK(call)                                                                            \
	do {                                                                                \
		CUresult rc_ = (call);                                                      \
		if (rc_ != CUDA_SUCCESS) {                                                  \
			fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, rc_); \
			exit(EXIT_FAILURE);                                                 \
		}                                                                           \
	} while (0)
#define AK(call)                                           \
	do {                                               \
		int err_ = (call);                         \
		if (err_ != 0)                             \
			api_failed(__LINE__, #call, err_); \
	} while (0)

static CUcontext context;
static CUstream stream;
static struct arena *layer;
static const size_t sizes[N] = { 4096, 768, 3 * MIB };

static void api_failed(int line, const char *call, int err)
{
	char text[512] = "";

	arena_last_message(text, sizeof(text));
	fprintf(stderr, "%s:%d: %s: %d: %s\n", __FILE__, line, call, err, text);
	exit(EXIT_FAILURE);
}

/* ---- words ---- */

static void push(const char *tag, enum arena_kind kind)
{
	AK(arena_tag_push(tag, kind));
}

static void pop(void)
{
	AK(arena_tag_pop());
}

/* A wrapper of somebody else, which allocates what it needs. */
static void build(CUdeviceptr p[N])
{
	for (int i = 0; i < N; i++)
		CK(cuMemAlloc(&p[i], sizes[i]));
}

static void drop(const CUdeviceptr p[N])
{
	for (int i = 0; i < N; i++)
		CK(cuMemFree(p[i]));
}

static void build_tagged(const char *tag, CUdeviceptr p[N])
{
	push(tag, ARENA_SCRATCH);
	build(p);
	pop();
}

static int byte_at(CUdeviceptr p)
{
	unsigned char v = 0;

	CK(cuMemcpyDtoH(&v, p, 1));
	return v;
}

/* A graph that sets the first bytes at @p to @v. */
static CUgraphExec capture_set(CUdeviceptr p, unsigned char v)
{
	CUgraphExec exec;
	CUgraph graph;

	CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CK(cuMemsetD8Async(p, v, 16, stream));
	CK(cuStreamEndCapture(stream, &graph));
	CK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CK(cuGraphDestroy(graph));
	return exec;
}

static void replay(CUgraphExec exec)
{
	CK(cuGraphLaunch(exec, stream));
	CK(cuStreamSynchronize(stream));
}

/* What is found is newer than this one. */
static struct arena_snapshot *since;

static void look_from_now(void)
{
	arena_snapshot_free(since);
	AK(arena_snapshot(&since));
}

static bool says(const char *word)
{
	char *json = NULL;
	bool found;

	arena_verify(since, &json);
	found = json != NULL && strstr(json, word) != NULL;
	if (!found && word[0] != '\0' && json != NULL && strstr(json, "tag-sequence") != NULL)
		fprintf(stderr, "# %s\n", json);
	arena_free(json);
	return found;
}

static bool fits(void)
{
	return !says("tag-sequence");
}

/* ---- scenes ---- */

static void rebuilt(void)
{
	CUdeviceptr old[N], new[N];
	CUgraphExec exec;

	build_tagged("ws", old);
	exec = capture_set(old[1], 7);
	replay(exec);
	drop(old);
	build_tagged("ws", new);
	MUST(memcmp(old, new, sizeof(old)) == 0);
	CK(cuMemsetD8(new[1], 0, 16));
	replay(exec);
	MUST(byte_at(new[1]) == 7);
	/* The other way round: the new one is there before the old one goes. */
	build_tagged("ws", old);
	drop(new);
	replay(exec);
	drop(old);
	replay(exec);
	MUST(fits());
}

static void misfits(void)
{
	CUdeviceptr p[N], more, other;

	build_tagged("ws", p);
	look_from_now();
	/* Over. */
	push("ws", ARENA_SCRATCH);
	build(p);
	CK(cuMemAlloc(&more, 64));
	pop();
	MUST(says("ws#3") && says("the first pass had fewer calls"));
	CK(cuMemFree(more));
	MUST(cuMemFree(more) == CUDA_ERROR_INVALID_VALUE);
	/* Mis-sized, and under. */
	push("ws", ARENA_SCRATCH);
	CK(cuMemAlloc(&other, 4097));
	pop();
	MUST(other != p[0]);
	MUST(says("4097 bytes: the slot has another size"));
	MUST(says("1 allocations, 3 in the first pass"));
	CK(cuMemsetD8(other, 1, 4097));
	CK(cuMemFree(other));
	/* And right again. */
	MUST(!fits());
	look_from_now();
	build_tagged("ws", p);
	MUST(fits());
	/* The driver's own errors. */
	push("ws", ARENA_SCRATCH);
	MUST(cuMemAlloc(&other, 0) == CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemAlloc(NULL, 64) == CUDA_ERROR_INVALID_VALUE);
	build(p);
	pop();
	MUST(fits());
}

static void frees(void)
{
	CUdeviceptr p[N], plain;

	build_tagged("ws", p);
	CK(cuMemAlloc(&plain, 4096));
	CK(cuMemFree(plain));
	MUST(cuMemFree(p[0] + 256) == CUDA_ERROR_INVALID_VALUE);
	drop(p);
	/* ws#0 is where the chunk begins, ws#2 is an allocation of its own: the driver would. */
	for (int i = 0; i < N; i++) {
		MUST(cuMemFree(p[i]) == CUDA_ERROR_INVALID_VALUE);
		MUST(cuMemFreeAsync(p[i], stream) == CUDA_ERROR_INVALID_VALUE);
		CK(cuMemsetD8(p[i], 1, sizes[i]));
	}
}

static void queries(void)
{
	CUdeviceptr p[N], base, start;
	CUmemorytype type = 0;
	CUcontext ctx;
	size_t size;

	build_tagged("ws", p);
	CK(cuMemGetAddressRange(&base, &size, p[1]));
	MUST(base <= p[1] && p[1] + sizes[1] <= base + size);
	CK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p[1]));
	MUST(type == CU_MEMORYTYPE_DEVICE);
	CK(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, p[1]));
	MUST(ctx == context);
	CK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p[1]));
	MUST(start == base);
}

static void kinds(void)
{
	CUdeviceptr pitched, again, managed;
	size_t pitch, pitch_again;

	push("ws", ARENA_SCRATCH);
	CK(cuMemAllocPitch(&pitched, &pitch, 100, 7, 4));
	CK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
	MUST(cuMemAllocPitch(&again, &pitch_again, 100, 7, 3) == CUDA_ERROR_INVALID_VALUE);
	pop();
	MUST(pitch >= 100 && pitch % 512 == 0 && pitched % 512 == 0);
	CK(cuMemsetD2D8(pitched, pitch, 3, 100, 7));
	CK(cuMemFree(pitched));
	CK(cuMemFree(managed));
	MUST(cuMemFree(managed) == CUDA_ERROR_INVALID_VALUE);
	push("ws", ARENA_SCRATCH);
	CK(cuMemAllocPitch(&again, &pitch_again, 100, 7, 4));
	pop();
	MUST(again == pitched && pitch_again == pitch);
	MUST(fits());
}

static void build_async(CUdeviceptr p[4], CUmemoryPool pool)
{
	push("ws", ARENA_SCRATCH);
	CK(cuMemAllocAsync(&p[0], 4096, stream));
	CK(cuMemAllocFromPoolAsync(&p[1], 8192, pool, stream));
	CK(cuMemAllocAsync(&p[2], 512, CU_STREAM_PER_THREAD));
	CK(cuMemAlloc(&p[3], 512));
	pop();
}

static void stream_ordered(void)
{
	CUdeviceptr old[4], new[4], node;
	CUgraphExec exec;
	CUmemoryPool pool;
	CUgraph graph;

	CK(cuDeviceGetDefaultMemPool(&pool, 0));
	build_async(old, pool);
	exec = capture_set(old[0], 9);
	for (int i = 0; i < 4; i++)
		CK(cuMemFreeAsync(old[i], stream));
	build_async(new, pool);
	MUST(memcmp(old, new, sizeof(old)) == 0);
	replay(exec);
	MUST(byte_at(new[0]) == 9);
	/* A node of a graph is none of the sequence's. */
	push("ws", ARENA_SCRATCH);
	CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CK(cuMemAllocAsync(&node, 4096, stream));
	CK(cuMemFreeAsync(node, stream));
	CK(cuStreamEndCapture(stream, &graph));
	pop();
	MUST(node != new[0]);
	CK(cuGraphDestroy(graph));
	MUST(fits());
	for (int i = 0; i < 4; i++)
		CK(cuMemFree(new[i]));
	MUST(cuMemFreeAsync(new[0], stream) == CUDA_ERROR_INVALID_VALUE);
}

/* ---- virtual memory, as vLLM's sleep mode allocates ---- */

struct mapped {
	CUdeviceptr base;
	CUmemGenericAllocationHandle handle;
};
#define GRANULE (2 * MIB)

static CUmemAllocationProp device_memory(void)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
	};
}

static void map_in(struct mapped *m, size_t bytes)
{
	CUmemAllocationProp prop = device_memory();
	CUmemAccessDesc access = {
		.location = prop.location,
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};

	CK(cuMemCreate(&m->handle, bytes, &prop, 0));
	CK(cuMemMap(m->base, bytes, 0, m->handle, 0));
	CK(cuMemSetAccess(m->base, bytes, &access, 1));
}

static void map_new(struct mapped *m, size_t bytes)
{
	CK(cuMemAddressReserve(&m->base, bytes, 0, 0, 0));
	map_in(m, bytes);
}

static void map_out(const struct mapped *m, size_t bytes)
{
	CK(cuMemUnmap(m->base, bytes));
	CK(cuMemRelease(m->handle));
}

static void map_end(const struct mapped *m, size_t bytes)
{
	map_out(m, bytes);
	CK(cuMemAddressFree(m->base, bytes));
}

static void virtual_memory(void)
{
	struct mapped old, new, woken;
	CUgraphExec exec;

	push("vm", ARENA_SCRATCH);
	map_new(&old, GRANULE);
	pop();
	exec = capture_set(old.base, 5);
	replay(exec);
	map_end(&old, GRANULE);
	replay(exec); /* the memory stays */
	MUST(cuMemUnmap(old.base, GRANULE) == CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemRelease(old.handle) == CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemAddressFree(old.base, GRANULE) == CUDA_ERROR_INVALID_VALUE);
	push("vm", ARENA_SCRATCH);
	map_new(&new, GRANULE);
	pop();
	MUST(new.base == old.base &&new.handle == old.handle);
	CK(cuMemsetD8(new.base, 0, 16));
	replay(exec);
	MUST(byte_at(new.base) == 5);
	MUST(fits());
	/* Sleep and wake with other physical memory. */
	map_out(&new, GRANULE);
	woken.base = new.base;
	map_in(&woken, GRANULE);
	CK(cuMemsetD8(woken.base, 0, 16));
	replay(exec);
	MUST(byte_at(woken.base) == 5);
	map_end(&woken, GRANULE);
	/* The next one does not fit. */
	push("vm", ARENA_SCRATCH);
	map_new(&new, 2 * GRANULE);
	pop();
	MUST(new.base != old.base);
	MUST(says("reserved another size"));
	map_end(&new, 2 * GRANULE);
	MUST(cuMemUnmap(new.base, 2 * GRANULE) != CUDA_SUCCESS);
}

static void virtual_handles(void)
{
	CUmemGenericAllocationHandle again;
	struct mapped m;

	push("vm", ARENA_SCRATCH);
	map_new(&m, GRANULE);
	pop();
	CK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)m.base));
	CK(cuMemRelease(again));
	map_end(&m, GRANULE);
	MUST(cuMemRelease(m.handle) == CUDA_ERROR_INVALID_VALUE);
	push("vm", ARENA_SCRATCH);
	map_new(&m, GRANULE);
	pop();
	CK(cuMemsetD8(m.base, 1, GRANULE));
	MUST(fits());
}

/* ---- values ---- */

static void values(void)
{
	CUdeviceptr live, fresh, second;
	CUgraphExec exec;
	uint64_t id;

	push("w", ARENA_VALUE);
	CK(cuMemAlloc(&live, 4096));
	pop();
	CK(cuMemsetD8(live, 1, 4096));
	exec = capture_set(live + 1024, 9);
	AK(arena_reload_begin(NULL, &id));
	push("w", ARENA_VALUE);
	CK(cuMemAlloc(&fresh, 4096));
	pop();
	MUST(fresh != live && byte_at(fresh) == 0);
	CK(cuMemsetD8(fresh, 2, 4096));
	MUST(byte_at(live) == 1);
	AK(arena_layer_commit(layer, stream));
	AK(arena_reload_end(id, NULL));
	CK(cuStreamSynchronize(stream));
	MUST(byte_at(live) == 2 && byte_at(live + 4095) == 2);
	replay(exec);
	/* The new object goes on with its own memory, and the old one goes. */
	CK(cuMemsetD8(fresh, 3, 4096));
	MUST(byte_at(live) == 2);
	CK(cuMemFree(live));
	CK(cuMemFree(fresh));
	MUST(cuMemFree(fresh) == CUDA_ERROR_INVALID_VALUE);
	replay(exec);
	/* Freed before the commit: published all the same. Aborted: the old value stays. */
	AK(arena_reload_begin(NULL, &id));
	push("w", ARENA_VALUE);
	CK(cuMemAlloc(&second, 4096));
	pop();
	CK(cuMemsetD8(second, 4, 4096));
	CK(cuMemFree(second));
	AK(arena_layer_commit(layer, stream));
	AK(arena_reload_end(id, NULL));
	CK(cuStreamSynchronize(stream));
	MUST(byte_at(live) == 4);
	MUST(fits());
}

static void short_value(void)
{
	CUdeviceptr live[2], fresh;
	char *json = NULL;
	uint64_t id;

	push("w", ARENA_VALUE);
	CK(cuMemAlloc(&live[0], 4096));
	CK(cuMemAlloc(&live[1], 4096));
	pop();
	CK(cuMemsetD8(live[0], 1, 4096));
	AK(arena_reload_begin(NULL, &id));
	push("w", ARENA_VALUE);
	CK(cuMemAlloc(&fresh, 4096));
	pop();
	CK(cuMemsetD8(fresh, 2, 4096));
	MUST(arena_layer_commit(layer, stream) == ARENA_E_REFUSED);
	MUST(arena_reload_end(id, &json) == ARENA_E_REFUSED);
	MUST(json != NULL && strstr(json, "tag-sequence") != NULL);
	arena_free(json);
	CK(cuStreamSynchronize(stream));
	MUST(byte_at(live[0]) == 1);
	CK(cuMemFree(fresh));
}

static int put(const char *slot, int byte, size_t bytes, enum arena_publish how)
{
	struct arena_spec spec = ARENA_SPEC_INIT;
	void *live, *src = malloc(bytes);
	int err;

	MUST(src != NULL);
	memset(src, byte, bytes);
	spec.bytes = bytes;
	err = arena_put(layer, slot, &spec, src, how, &live, stream);
	CK(cuStreamSynchronize(stream));
	free(src);
	return err;
}

/* Half a pass is not published, and nobody else writes what it fills. */
static void open_value(void)
{
	CUdeviceptr live, fresh;
	uint64_t id;

	push("w", ARENA_VALUE);
	CK(cuMemAlloc(&live, 4096));
	pop();
	push("w", ARENA_VALUE);
	AK(arena_reload_begin(NULL, &id));
	CK(cuMemAlloc(&fresh, 4096));
	CK(cuMemsetD8(fresh, 2, 4096));
	MUST(arena_layer_commit(layer, stream) == ARENA_E_BUSY);
	MUST(put("w#0", 9, 4096, ARENA_STAGED) == ARENA_E_BUSY);
	MUST(put("w#0", 9, 4096, ARENA_DIRECT) == ARENA_E_BUSY);
	pop();
	MUST(byte_at(fresh) == 2 && byte_at(live) == 0);
	AK(arena_layer_commit(layer, stream));
	AK(arena_reload_end(id, NULL));
	CK(cuStreamSynchronize(stream));
	MUST(byte_at(live) == 2);
	CK(cuMemFree(fresh));
	MUST(fits());
}

static void *end_there(void *arg)
{
	CK(cuCtxSetCurrent(context));
	AK(arena_enter(layer));
	push("w", ARENA_VALUE);
	CK(cuMemAlloc((CUdeviceptr *)arg, 4096));
	return NULL; /* under the tag */
}

static void thread_ends(void)
{
	CUdeviceptr live, fresh;
	pthread_t thread;
	uint64_t id;

	push("w", ARENA_VALUE);
	CK(cuMemAlloc(&live, 4096));
	pop();
	AK(arena_reload_begin(NULL, &id));
	pthread_create(&thread, NULL, end_there, &fresh);
	pthread_join(thread, NULL);
	MUST(arena_layer_commit(layer, stream) == ARENA_E_REFUSED);
	MUST(arena_reload_end(id, NULL) == ARENA_E_REFUSED);
	CK(cuMemFree(fresh));
	/* The tag is free again. */
	AK(arena_reload_begin(NULL, &id));
	push("w", ARENA_VALUE);
	CK(cuMemAlloc(&fresh, 4096));
	pop();
	CK(cuMemsetD8(fresh, 3, 4096));
	AK(arena_layer_commit(layer, stream));
	AK(arena_reload_end(id, NULL));
	CK(cuStreamSynchronize(stream));
	MUST(byte_at(live) == 3);
}

/* A graph over memory that only its user holds: freed, it is stale. */
static void shadow_in_a_graph(void)
{
	CUdeviceptr live, fresh;
	CUgraphExec exec;
	uint64_t id;

	push("w", ARENA_VALUE);
	CK(cuMemAlloc(&live, 4096));
	pop();
	AK(arena_reload_begin(NULL, &id));
	push("w", ARENA_VALUE);
	CK(cuMemAlloc(&fresh, 4096));
	pop();
	AK(arena_layer_commit(layer, stream));
	AK(arena_reload_end(id, NULL));
	exec = capture_set(fresh, 1);
	replay(exec);
	CK(cuMemFree(fresh));
	MUST(cuGraphLaunch(exec, stream) == CUDA_ERROR_ILLEGAL_STATE);
}

/* One call of the value tag "w" in a reload. @return what its end says. */
static int load_one(void)
{
	CUdeviceptr p;
	uint64_t id;

	AK(arena_reload_begin(NULL, &id));
	push("w", ARENA_VALUE);
	CK(cuMemAlloc(&p, 4096));
	pop();
	CK(cuMemFree(p));
	AK(arena_layer_commit(layer, stream));
	return arena_reload_end(id, NULL);
}

/* A first pass that was in vain made a slot too many: it is missed as long as a graph reads it. */
static void vain_in_a_graph(void)
{
	CUdeviceptr p[2];
	CUgraphExec exec;
	uint64_t id;

	AK(arena_reload_begin(NULL, &id));
	push("w", ARENA_VALUE);
	for (int i = 0; i < 2; i++)
		CK(cuMemAlloc(&p[i], 4096));
	pop();
	exec = capture_set(p[1], 1);
	AK(arena_reload_abort(id, "wrong", NULL));
	MUST(load_one() == ARENA_E_REFUSED);
	CK(cuGraphExecDestroy(exec));
	AK(load_one());
	AK(load_one());
}

/* ---- objects ---- */

static CUdeviceptr part;

static int make(void *ctx, void **object)
{
	CUdeviceptr p[N], scratch;

	CK(cuMemAlloc(&scratch, 64));
	CK(cuMemAlloc(&part, GRANULE));
	CK(cuMemFree(scratch));
	build_tagged("ws", p);
	*object = ctx;
	return 0;
}

static void objects(void)
{
	struct arena_snapshot *s;
	char *json = NULL;
	void *one, *two;
	int handle;

	AK(arena_object(layer, "wrapper", "engine", make, &handle, &one));
	AK(arena_object(layer, "wrapper", "engine", make, NULL, &two));
	MUST(one == &handle && two == one);
	capture_set(part, 1);
	AK(arena_snapshot(&s));
	AK(arena_verify(s, NULL));
	/* It reallocates inside itself. */
	CK(cuMemFree(part));
	CK(cuMemAlloc(&part, 2 * GRANULE));
	MUST(arena_verify(s, &json) == ARENA_E_REFUSED);
	MUST(strstr(json, "wrapper") != NULL);
	arena_free(json);
	arena_snapshot_free(s);
}

/* ---- threads ---- */

static void *free_there(void *arg)
{
	CK(cuCtxSetCurrent(context));
	drop(arg);
	return NULL;
}

#define THREADS 4
#define PASSES	50

static void *build_there(void *arg)
{
	CUdeviceptr first[N] = { 0 }, p[N];
	struct arena *own;
	char path[32];

	CK(cuCtxSetCurrent(context));
	snprintf(path, sizeof(path), "layers.%d", *(int *)arg);
	AK(arena_open(path, &own));
	AK(arena_enter(own));
	for (int i = 0; i < PASSES; i++) {
		build_tagged("ws", p);
		if (i == 0)
			memcpy(first, p, sizeof(p));
		MUST(memcmp(first, p, sizeof(p)) == 0);
		drop(p);
	}
	AK(arena_leave());
	return NULL;
}

static void threads(void)
{
	pthread_t t[THREADS];
	CUdeviceptr old[N], new[N];
	int numbers[THREADS];

	build_tagged("ws", old);
	pthread_create(&t[0], NULL, free_there, old);
	pthread_join(t[0], NULL);
	MUST(cuMemFree(old[0]) == CUDA_ERROR_INVALID_VALUE);
	build_tagged("ws", new);
	MUST(memcmp(old, new, sizeof(old)) == 0);
	for (int i = 0; i < THREADS; i++) {
		numbers[i] = i;
		pthread_create(&t[i], NULL, build_there, &numbers[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	MUST(fits());
}

/* ---- the driver fails ---- */

/* Arenas get no memory, the application does. */
static void no_memory(void)
{
	CUdeviceptr p[N], again[N];

	build_tagged("ws", p);
	MUST(says("ws#0"));
	CK(cuMemsetD8(p[0], 1, sizes[0]));
	look_from_now();
	build_tagged("ws", again);
	MUST(again[0] != p[0] && again[1] == p[1] && again[2] == p[2]);
	MUST(fits());
	drop(p);
	drop(again);
	MUST(cuMemFree(p[0]) == CUDA_ERROR_INVALID_VALUE);
}

/* One call of the first pass fails, as the application sees; its next try is the next call. */
static void virtual_failure(void)
{
	CUmemAllocationProp prop = device_memory();
	CUmemGenericAllocationHandle handle;
	CUdeviceptr base;
	struct mapped m;

	push("vm", ARENA_SCRATCH);
	if (cuMemAddressReserve(&base, GRANULE, 0, 0, 0) == CUDA_SUCCESS) {
		if (cuMemCreate(&handle, GRANULE, &prop, 0) == CUDA_SUCCESS) {
			MUST(cuMemMap(base, GRANULE, 0, handle, 0) != CUDA_SUCCESS);
			CK(cuMemRelease(handle));
		}
		CK(cuMemAddressFree(base, GRANULE));
	}
	map_new(&m, GRANULE);
	pop();
	MUST(fits());
	CK(cuMemsetD8(m.base, 1, GRANULE));
	map_end(&m, GRANULE);
}

static const struct scene {
	const char *name;
	void (*run)(void);
	bool faults; /* the simulated driver has to fail */
} scenes[] = {
	{ "rebuilt", rebuilt, false },
	{ "misfits", misfits, false },
	{ "frees", frees, false },
	{ "queries", queries, false },
	{ "kinds", kinds, false },
	{ "async", stream_ordered, false },
	{ "vmm", virtual_memory, false },
	{ "handles", virtual_handles, false },
	{ "values", values, false },
	{ "short-value", short_value, false },
	{ "open-value", open_value, false },
	{ "thread-ends", thread_ends, false },
	{ "shadow", shadow_in_a_graph, false },
	{ "vain", vain_in_a_graph, false },
	{ "objects", objects, false },
	{ "threads", threads, false },
	{ "no-memory", no_memory, true },
	{ "vmm-fails", virtual_failure, true },
};

static int list(void)
{
	for (size_t i = 0; i < COUNT(scenes); i++)
		if (!scenes[i].faults)
			puts(scenes[i].name);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	CUdevice dev;

	MUST(argc == 2);
	if (strcmp(argv[1], "--list") == 0)
		return list();
	MUST(arena_abi() == 1);
	CK(cuInit(0));
	CK(cuDeviceGet(&dev, 0));
	CK(cuDevicePrimaryCtxRetain(&context, dev));
	CK(cuCtxSetCurrent(context));
	CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	AK(arena_open("model.layers.0", &layer));
	AK(arena_enter(layer));
	look_from_now();
	for (size_t i = 0; i < COUNT(scenes); i++)
		if (strcmp(scenes[i].name, argv[1]) == 0) {
			scenes[i].run();
			AK(arena_leave());
			return EXIT_SUCCESS;
		}
	fprintf(stderr, "no scene %s\n", argv[1]);
	return EXIT_FAILURE;
}
