/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Under the shim, gate strict: what a capture allocates in PyTorch's pools, by whom and where.
 *
 *	torch_capture SCENE
 */
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"

#define SEGMENT ((size_t)20 << 20)
#define BYTES	((size_t)64 << 10)

#define MUST(x) ((x) ? (void)0 : fail(#x, __LINE__))
#define CK(x)	MUST((x) == CUDA_SUCCESS)

static _Noreturn void fail(const char *what, int line)
{
	fprintf(stderr, "torch_capture.c:%d: %s\n", line, what);
	exit(EXIT_FAILURE);
}

struct c10_device {
	int8_t type, index;
};
void report(
	void *ptr, int64_t bytes, size_t allocated, size_t reserved,
	struct c10_device where) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")
	__attribute__((weak));

static CUcontext contexts[2];
static CUstream s;
static int8_t device;

/* What PyTorch's allocator says: a block of BYTES was handed out, or came back. */
static void block(CUdeviceptr p, bool live)
{
	const struct c10_device where = { 1, device };

	report((void *)p, live ? (int64_t)BYTES : -(int64_t)BYTES, 0, 0, where);
}

static CUdeviceptr segment(void)
{
	CUdeviceptr p;

	CK(cuMemAlloc(&p, SEGMENT));
	return p;
}

static void use_device(int8_t d)
{
	device = d;
	CK(cuCtxSetCurrent(contexts[d]));
	CK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
}

static void begin(void)
{
	CK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static CUgraphExec end(void)
{
	CUgraphExec e;
	CUgraph g;

	CK(cuStreamEndCapture(s, &g));
	CK(cuGraphInstantiate(&e, g, 0));
	return e;
}

static void fill(CUdeviceptr p)
{
	CK(cuMemsetD8Async(p, 1, BYTES, s));
}

static bool launches(CUgraphExec e)
{
	CUresult rc = cuGraphLaunch(e, s);

	CK(cuStreamSynchronize(s));
	return rc == CUDA_SUCCESS;
}

/* ---- scenes ---- */

static void *hand_out(void *p)
{
	CK(cuCtxSetCurrent(contexts[0]));
	block(*(CUdeviceptr *)p, true);
	return NULL;
}

static void block_of_other_thread(CUdeviceptr p)
{
	pthread_t t;

	MUST(pthread_create(&t, NULL, hand_out, &p) == 0);
	pthread_join(t, NULL);
}

/* Made by a thread that does not capture (autograd's) while another does; the second capture reads
 * it, then it is dropped, and the third capture has it made there again. */
static void scene_helper(void)
{
	CUdeviceptr p = segment(), q = segment();
	CUgraphExec e[3];

	begin();
	block_of_other_thread(p);
	block(q, true);
	fill(q);
	e[0] = end();
	begin();
	CK(cuMemcpyDtoDAsync(q, p, BYTES, s));
	e[1] = end();
	block(p, false);
	begin();
	block_of_other_thread(p);
	CK(cuMemcpyDtoDAsync(p, q, BYTES, s));
	e[2] = end();
	for (int i = 0; i < 3; i++)
		MUST(launches(e[i]));
}

/* A thread that captures on one device allocates on the other: that is an ordinary tensor there. */
static void scene_devices(void)
{
	CUdeviceptr p = segment(), q;
	CUgraphExec e;
	CUstream first = s;

	use_device(1);
	q = segment();
	block(q, true);
	CK(cuCtxSetCurrent(contexts[0]));
	s = first;
	device = 0;
	begin();
	block(p, true);
	fill(p);
	device = 1;
	block(q + BYTES, true);
	end();
	use_device(1);
	begin();
	fill(q);
	e = end();
	MUST(launches(e));
	block(q, false);
	MUST(!launches(e));
}

/* On another stream of its device, from the pool of ordinary tensors: not told from the graph's. */
static void scene_shared(void)
{
	CUdeviceptr p = segment(), w = segment();
	CUgraphExec e;

	block(w, true);
	begin();
	block(p, true);
	fill(p);
	fill(w);
	block(w + BYTES, true);
	e = end();
	block(w, false);
	MUST(launches(e)); /* which is why it is counted */
}

static void map(CUdeviceptr p, size_t bytes)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED };
	CUmemAccessDesc access = { .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;

	prop.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	CK(cuMemCreate(&handle, bytes, &prop, 0));
	CK(cuMemMap(p, bytes, 0, handle, 0));
	CK(cuMemSetAccess(p, bytes, &access, 1));
	CK(cuMemRelease(handle));
}

/* An expandable segment: a block lies over two mappings, and the second one goes. */
static void scene_mapped(void)
{
	CUgraphExec e, both;
	CUdeviceptr p;

	CK(cuMemAddressReserve(&p, 2 * SEGMENT, 0, 0, 0));
	map(p, SEGMENT);
	map(p + SEGMENT, SEGMENT);
	p += SEGMENT - BYTES / 2;
	block(p, true);
	block(p + BYTES, true);
	begin();
	fill(p);
	e = end();
	begin();
	CK(cuMemsetD8Async(p, 1, 2 * BYTES, s));
	both = end();
	MUST(launches(e) && launches(both));
	block(p + BYTES, false);
	MUST(launches(e) && !launches(both));
	CK(cuMemUnmap(p + BYTES / 2, SEGMENT));
	MUST(!launches(e));
}

/* ---- state that a capture allocates ---- */

static struct arena *layer;

/* @return what the reload that copies to @p ends with. */
static int reload_into(CUdeviceptr p)
{
	static char host[BYTES];
	uint64_t id;

	MUST(arena_reload_begin(NULL, &id) == 0);
	if (p != 0)
		CK(cuMemcpyHtoDAsync(p, host, BYTES, s));
	CK(cuStreamSynchronize(s));
	return arena_reload_end(id, NULL);
}

static void bind(CUdeviceptr p)
{
	struct arena_spec spec = ARENA_SPEC_INIT;

	spec.bytes = BYTES;
	MUST(arena_open("model.layers.0", &layer) == 0);
	MUST(arena_bind(layer, "cache", &spec, (void *)p) == 0);
}

/* As in shared, but the tensor has a name: what is bound to a slot is found all the same, when it
 * is bound elsewhere, and when it is bound to nothing in a reload. */
static void scene_shared_slot(void)
{
	CUdeviceptr p = segment(), w = segment(), other = segment();
	CUgraphExec e;
	char why[512];
	uint64_t id;

	block(w, true);
	bind(w);
	begin();
	block(p, true);
	fill(p);
	fill(w);
	block(w + BYTES, true);
	e = end();
	MUST(launches(e));
	block(other, true);
	MUST(arena_reload_begin(NULL, &id) == 0);
	bind(other);
	block(w, false);
	MUST(arena_reload_end(id, NULL) == ARENA_E_REFUSED);
	arena_last_message(why, sizeof(why));
	MUST(strstr(why, "[moved] cache") != NULL);
	MUST(!launches(e));
}

/* A cache is made at its first use, which is in the capture, and a reload loads it. */
static void scene_cache(void)
{
	CUdeviceptr p = segment();
	CUgraphExec e, reads;
	char why[512];

	begin();
	block(p, true);
	fill(p);
	e = end();
	bind(p);
	MUST(reload_into(p) == ARENA_E_REFUSED);
	arena_last_message(why, sizeof(why));
	MUST(strstr(why, "[born-in-capture] cache") != NULL);
	/* Not loaded, it may be an output; and once the graph is gone, it is as any memory. */
	MUST(reload_into(0) == 0);
	begin();
	CK(cuMemcpyDtoDAsync(p + BYTES, p, BYTES, s));
	reads = end();
	CK(cuGraphExecDestroy(e));
	MUST(reload_into(p) == 0);
	MUST(launches(reads));
}

/* The same, but it was made before: all is well, also when the graph writes it. */
static void scene_static(void)
{
	CUdeviceptr p = segment();
	CUgraphExec e;

	block(p, true);
	begin();
	fill(p);
	e = end();
	bind(p);
	MUST(reload_into(p) == 0);
	MUST(launches(e));
}

/* An output is cleared between reloads and in them; nobody loads it. */
static void scene_output(void)
{
	CUdeviceptr p = segment();
	uint64_t id;

	begin();
	block(p, true);
	fill(p);
	end();
	bind(p);
	MUST(arena_reload_begin(NULL, &id) == 0);
	fill(p);
	MUST(arena_reload_end(id, NULL) == 0);
	CK(cuMemcpyHtoD(p, &id, sizeof(id)));
	MUST(reload_into(0) == 0);
}

/* A capture allocates the block at @p and writes it. */
static CUgraph make(CUdeviceptr p)
{
	CUgraph g;

	begin();
	block(p, true);
	fill(p);
	CK(cuStreamEndCapture(s, &g));
	return g;
}

/* A capture only reads the block at @p; @within: it allocates it as well. */
static CUgraph look(CUdeviceptr p, bool within)
{
	CUgraph g;

	begin();
	if (within)
		block(p, true);
	CK(cuMemcpyDtoDAsync(p + BYTES, p, BYTES, s));
	CK(cuStreamEndCapture(s, &g));
	return g;
}

static CUgraphExec instance(CUgraph g)
{
	CUgraphExec e;

	CK(cuGraphInstantiate(&e, g, 0));
	return e;
}

/* The graph is kept: its second exec overwrites the same memory, without the first one. */
static void scene_again(void)
{
	CUdeviceptr p = segment();
	CUgraph g = make(p);
	CUgraphExec first = instance(g), second = instance(g);

	bind(p);
	MUST(reload_into(p) == ARENA_E_REFUSED);
	CK(cuGraphExecDestroy(first));
	MUST(reload_into(p) == ARENA_E_REFUSED);
	CK(cuGraphExecDestroy(second));
	MUST(reload_into(p) == 0);
	instance(g);
	MUST(reload_into(p) == ARENA_E_REFUSED);
}

/* Who is instantiated first is not who allocated it. */
static void scene_order(void)
{
	CUdeviceptr p = segment();
	CUgraph g = make(p);
	CUgraphExec reader = instance(look(p, false)), e = instance(g);

	bind(p);
	MUST(reload_into(p) == ARENA_E_REFUSED);
	CK(cuGraphExecDestroy(reader));
	MUST(reload_into(p) == ARENA_E_REFUSED);
	CK(cuGraphExecDestroy(e));
	MUST(reload_into(p) == 0);
}

/* It was made in a capture, but no graph that lives writes it: by a graph that reads it, by one
 * that does not use it, by one that was thrown away. */
static void scene_reads(void)
{
	CUdeviceptr p[] = { segment(), segment(), segment() };

	instance(look(p[0], true));
	bind(p[0]);
	MUST(reload_into(p[0]) == 0);
	begin();
	block(p[1], true);
	end();
	instance(look(p[1], false));
	bind(p[1]);
	MUST(reload_into(p[1]) == 0);
	CK(cuGraphDestroy(make(p[2])));
	instance(look(p[2], false));
	bind(p[2]);
	MUST(reload_into(p[2]) == 0);
}

/* A copy, then a slot, that begins in the ordinary block before; and a copy that names no
 * direction. */
static void scene_spans(void)
{
	static char host[2 * BYTES];
	CUdeviceptr p = segment() + BYTES;
	struct arena_spec spec = ARENA_SPEC_INIT;
	uint64_t id;

	block(p - BYTES, true);
	instance(make(p));
	bind(p);
	MUST(arena_reload_begin(NULL, &id) == 0);
	CK(cuMemcpyHtoD(p - BYTES, host, 2 * BYTES));
	MUST(arena_reload_end(id, NULL) == ARENA_E_REFUSED);
	MUST(arena_reload_begin(NULL, &id) == 0);
	CK(cuMemcpy(p, (CUdeviceptr)host, BYTES));
	MUST(arena_reload_end(id, NULL) == ARENA_E_REFUSED);
	spec.bytes = 2 * BYTES;
	MUST(arena_bind(layer, "cache", &spec, (void *)(p - BYTES)) == 0);
	MUST(reload_into(p - BYTES) == 0);
	MUST(reload_into(p) == ARENA_E_REFUSED);
}

static const struct {
	const char *name;
	void (*run)(void);
} scenes[] = {
	{ "again", scene_again },     { "cache", scene_cache },
	{ "devices", scene_devices }, { "helper", scene_helper },
	{ "mapped", scene_mapped },   { "order", scene_order },
	{ "output", scene_output },   { "reads", scene_reads },
	{ "shared", scene_shared },   { "shared slot", scene_shared_slot },
	{ "spans", scene_spans },     { "static", scene_static },
};

int main(int argc, char **argv)
{
	CK(cuInit(0));
	for (int i = 0; i < 2; i++)
		CK(cuDevicePrimaryCtxRetain(&contexts[i], i));
	use_device(0);
	for (size_t i = 0; argc == 2 && i < sizeof(scenes) / sizeof(scenes[0]); i++) {
		if (strcmp(scenes[i].name, argv[1]) != 0)
			continue;
		scenes[i].run();
		return EXIT_SUCCESS;
	}
	fprintf(stderr, "usage: torch_capture SCENE\n");
	return 2;
}
