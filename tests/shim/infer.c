/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves that nobody named: memory that a graph captured is freed in a reload, other memory of the
 * same size comes from the same place.
 *
 *	infer SCENE
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"

#define KIB    1024ul
#define LAYERS 3

#define CHECK(condition)                                                                   \
	do {                                                                               \
		if (!(condition)) {                                                        \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, \
				json ? json : "");                                         \
			exit(EXIT_FAILURE);                                                \
		}                                                                          \
	} while (0)
#define CK(call) CHECK((call) == CUDA_SUCCESS)

static CUstream stream;
static char *json; /* of the last reload */

/* ---- a model: one derived tensor a layer, and a graph that reads them ---- */

/* A place is a return address: copies of a call, be they inlined, cloned or unrolled, are places of
 * their own. So functions are called through volatile pointers, and a loop counts in memory. */

static CUdeviceptr derive_here(size_t size)
{
	CUdeviceptr p;

	CK(cuMemAlloc(&p, size));
	__asm__ volatile("" : "+r"(p));
	return p;
}

/* Another place of the program. */
static CUdeviceptr borrow_here(size_t size)
{
	CUdeviceptr p;

	CK(cuMemAlloc(&p, size));
	__asm__ volatile("" : "+r"(p) : : "memory");
	return p;
}

static CUdeviceptr (*volatile derive)(size_t) = derive_here;
static CUdeviceptr (*volatile borrow)(size_t) = borrow_here;

static void build_here(CUdeviceptr *p, int count, size_t size)
{
	for (volatile int i = 0; i < count; i++)
		p[i] = derive(size);
	__asm__ volatile("" : : : "memory");
}

static void (*volatile build)(CUdeviceptr *, int, size_t) = build_here;

static CUgraphExec capture(const CUdeviceptr *p, int count, size_t size)
{
	CUgraphExec exec;
	CUgraph graph;

	CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	for (int i = 0; i < count; i++)
		CK(cuMemsetD8Async(p[i], 1, size, stream));
	CK(cuStreamEndCapture(stream, &graph));
	CK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CK(cuGraphDestroy(graph));
	return exec;
}

static void drop(const CUdeviceptr *p, int count)
{
	for (int i = 0; i < count; i++)
		CK(cuMemFree(p[i]));
}

static uint64_t begin(void)
{
	uint64_t id;

	CHECK(arena_reload_begin(NULL, &id) == 0);
	return id;
}

static int end(uint64_t id)
{
	arena_free(json);
	json = NULL;
	return arena_reload_end(id, &json);
}

static unsigned times(const char *text)
{
	unsigned n = 0;

	for (const char *at = json; at && (at = strstr(at, text)) != NULL; at++)
		n++;
	return n;
}

/* Is it said that @old is at @new now? */
static bool moved(CUdeviceptr old, CUdeviceptr new)
{
	char from[64], to[64];
	const char *at;

	snprintf(from, sizeof(from), "was at 0x%llx (", old);
	snprintf(to, sizeof(to), "is at 0x%llx", new);
	at = strstr(json, from);
	return at && (at = strstr(at, to)) && at - strstr(json, from) < 80;
}

/* ---- scenes ---- */

static void scene_moves(void)
{
	CUdeviceptr old[LAYERS], new[LAYERS];
	uint64_t id;

	build(old, LAYERS, 64 * KIB);
	capture(old, LAYERS, 64 * KIB);
	id = begin();
	build(new, LAYERS, 64 * KIB); /* as Python does it: the new one, then the old one goes */
	drop(old, LAYERS);
	CHECK(end(id) == 0);
	CHECK(times("\"inferred\":true") == LAYERS && times("ambiguous") == 0);
	for (int i = 0; i < LAYERS; i++)
		CHECK(moved(old[i], new[i]));
	CHECK(times("memset parameter 0") >= LAYERS);
	CHECK(times("size and call site, number 2 of 3 in order") >= 1);
}

/* The same call site is asked more often than memory died. */
static void scene_ambiguous(void)
{
	CUdeviceptr old[1], new[2];
	uint64_t id;

	build(old, 1, 64 * KIB);
	capture(old, 1, 64 * KIB);
	id = begin();
	build(new, 2, 64 * KIB);
	drop(old, 1);
	CHECK(end(id) == 0);
	CHECK(times("\"inferred\":true") == 1 && moved(old[0], new[0]));
	CHECK(times("ambiguous: inferred from size and call site, number 1 of 1 that died, of 2 "
		    "that came") >= 1);
}

/* Nothing of this is a move. */
static void scene_none(void)
{
	CUdeviceptr old[1], new[1], other;
	CUgraphExec exec;
	uint64_t id;

	/* Another size, another place. */
	build(old, 1, 64 * KIB);
	capture(old, 1, 64 * KIB);
	id = begin();
	build(new, 1, 32 * KIB);
	other = borrow(64 * KIB);
	drop(old, 1);
	CHECK(end(id) == 0 && times("\"inferred\":true") == 0);
	/* Nothing captured died. */
	id = begin();
	drop(new, 1);
	build(new, 1, 32 * KIB);
	CHECK(end(id) == 0 && times("\"inferred\":true") == 0);
	/* What came has gone again. */
	build(old, 1, 64 * KIB);
	capture(old, 1, 64 * KIB);
	id = begin();
	build(new, 1, 64 * KIB);
	drop(old, 1);
	drop(new, 1);
	CHECK(end(id) == 0 && times("\"inferred\":true") == 0);
	/* The graph was captured again. */
	build(old, 1, 64 * KIB);
	exec = capture(old, 1, 64 * KIB);
	id = begin();
	build(new, 1, 64 * KIB);
	drop(old, 1);
	CK(cuGraphExecDestroy(exec));
	capture(new, 1, 64 * KIB);
	CHECK(end(id) == 0 && times("\"inferred\":true") == 0);
	/* Outside of reloads. */
	build(old, 1, 64 * KIB);
	drop(new, 1);
	id = begin();
	CHECK(end(id) == 0 && times("\"inferred\":true") == 0);
	drop(old, 1);
	drop(&other, 1);
}

/* A slot says it by its name. */
static void scene_named(void)
{
	struct arena_spec spec = ARENA_SPEC_INIT;
	CUdeviceptr old[1], new[1];
	struct arena *layer;
	uint64_t id;

	build(old, 1, 64 * KIB);
	spec.bytes = 64 * KIB;
	CHECK(arena_open("layer", &layer) == 0);
	CHECK(arena_bind(layer, "W", &spec, (void *)old[0]) == 0);
	capture(old, 1, 64 * KIB);
	id = begin();
	build(new, 1, 64 * KIB);
	CHECK(arena_bind(layer, "W", &spec, (void *)new[0]) == 0);
	drop(old, 1);
	end(id);
	CHECK(times("\"inferred\":true") == 0 && times("layer: [moved] W: was at") >= 1);
}

/* ARENA_INFER=block under the strict gate. */
static void scene_block(void)
{
	CUdeviceptr old[1], new[1];
	uint64_t id;

	build(old, 1, 64 * KIB);
	capture(old, 1, 64 * KIB);
	id = begin();
	build(new, 1, 64 * KIB);
	drop(old, 1);
	CHECK(end(id) == ARENA_E_REFUSED && times("\"inferred\":true") == 1);
}

/* ---- blocks of a caching allocator, as PyTorch tells them (shim/torch.c) ---- */

struct c10_device {
	int8_t type, index;
};
static void (*torch_report)(void *ptr, int64_t bytes, uint64_t allocated, uint64_t reserved,
			    struct c10_device where);

static __attribute__((noinline)) void carve(CUdeviceptr p)
{
	torch_report((void *)p, 64 * KIB, 0, 0, (struct c10_device){ 1, 0 });
	__asm__ volatile("" : : : "memory");
}

static void give(CUdeviceptr p)
{
	torch_report((void *)p, -(int64_t)(64 * KIB), 0, 0, (struct c10_device){ 1, 0 });
}

/* ARENA_INFER=block: what has no call site may be any memory of that size. */
static void scene_size(void)
{
	CUdeviceptr segment, block[3];

	torch_report = dlsym(RTLD_DEFAULT, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
	CHECK(torch_report);
	CK(cuMemAlloc(&segment, 2048 * KIB));
	for (int i = 0; i < 3; i++) {
		uint64_t id = i ? begin() : 0;

		block[i] = segment + (CUdeviceptr)i * 256 * KIB;
		carve(block[i]);
		if (i) {
			give(block[i - 1]);
			CHECK(end(id) == (i == 1 ? 0 : ARENA_E_REFUSED));
			CHECK(times("inferred from size alone") >= (i == 1));
		}
		capture(&block[i], 1, 64 * KIB);
	}
}

/* The segment stays where it is; only the first load's block has no stack. */
static void scene_blocks(void)
{
	CUdeviceptr segment, block[3];

	torch_report = dlsym(RTLD_DEFAULT, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
	CHECK(torch_report);
	CK(cuMemAlloc(&segment, 2048 * KIB));
	for (int i = 0; i < 3; i++) {
		uint64_t id = i ? begin() : 0;

		block[i] = segment + (CUdeviceptr)i * 256 * KIB;
		carve(block[i]);
		if (i) {
			give(block[i - 1]);
			CHECK(end(id) == 0);
			CHECK(times("\"inferred\":true") == 1 && moved(block[i - 1], block[i]));
			CHECK(times("inferred from size alone") >= (i == 1));
			CHECK(times("inferred from size and call site") >= (i == 2));
			CHECK(times("ambiguous") == 0);
		}
		capture(&block[i], 1, 64 * KIB);
	}
}

static void scene_off(void)
{
	CUdeviceptr old[1], new[1];
	uint64_t id;

	build(old, 1, 64 * KIB);
	capture(old, 1, 64 * KIB);
	id = begin();
	build(new, 1, 64 * KIB);
	drop(old, 1);
	CHECK(end(id) == 0 && times("\"inferred\":true") == 0);
}

static const struct {
	const char *name;
	void (*run)(void);
} scenes[] = {
	{ "ambiguous", scene_ambiguous },
	{ "blocks", scene_blocks },
	{ "block", scene_block },
	{ "moves", scene_moves },
	{ "named", scene_named },
	{ "none", scene_none },
	{ "off", scene_off },
	{ "size", scene_size },
};

int main(int argc, char **argv)
{
	CUcontext context;

	CK(cuInit(0));
	CK(cuDevicePrimaryCtxRetain(&context, 0));
	CK(cuCtxSetCurrent(context));
	CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (size_t i = 0; argc > 1 && i < sizeof(scenes) / sizeof(scenes[0]); i++) {
		if (strcmp(scenes[i].name, argv[1]) != 0)
			continue;
		scenes[i].run();
		return EXIT_SUCCESS;
	}
	fprintf(stderr, "usage: infer SCENE\n");
	return 2;
}
