/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine under load: while a thread replays a graph over the slots of all layers, another
 * reloads them ten times, A, B, A, ..., with changed values. After each reload the output is
 * bit-equal to a cold load of that version, and in no replay does a layer show two versions.
 *
 * The replaying thread has an exec, a stream and an output of its own. Without the library
 * nothing is told: the slots live on the arenas' memory.
 */
#include "arena/atomics.h"
#include "slots.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#define LAYERS	4
#define SLOTS	16
#define RELOADS 10
#define COUNT	(LAYERS * SLOTS * N_INTS) /* ints of one output */
#define POISON	0x7fffffff

static struct arena *layers[LAYERS];
static CUdeviceptr live[LAYERS][SLOTS];
static int *staging;	   /* one layer, pinned */
static int cold[2][COUNT]; /* outputs of cold loads of A and B */

/* Shared with the replaying thread. */
/* Counters, and a flag that nothing is ordered by: the threads are joined. */
static _Atomic bool stop;
static _Atomic unsigned replays, torn;

/* Every word has its version in its lowest bit, and differs from its neighbours. */
static int weight(int version, size_t i)
{
	return (int)((((unsigned)i * 2654435761u) >> 2 << 1 | (unsigned)version) & 0x3fffffff);
}

static size_t place(int layer, int slot)
{
	return ((size_t)layer * SLOTS + (size_t)slot) * N_INTS;
}

static void capture(CUgraphExec *e, CUdeviceptr out, CUdeviceptr from[LAYERS][SLOTS])
{
	CAPTURE_EXEC(*e, for (int l = 0; l < LAYERS; l++) for (int k = 0; k < SLOTS; k++)
				 run_copy(out + 4 * place(l, k), from[l][k], N_INTS));
}

/* One replay over a poisoned output. @return false when the launch was refused. */
static bool run(CUgraphExec e, CUdeviceptr out, int *host)
{
	CK(cuMemsetD32Async(out, POISON, COUNT, S));
	if (cuGraphLaunch(e, S) != CUDA_SUCCESS)
		return false;
	CK(cuMemcpyDtoHAsync(host, out, 4 * COUNT, S));
	settle();
	return true;
}

/* What a process that starts with this version computes: plain memory, no slots. */
static void load_cold(int version)
{
	CUdeviceptr memory, from[LAYERS][SLOTS], out;
	CUgraphExec e;

	CK(cuMemAlloc(&memory, 4 * COUNT));
	CK(cuMemAlloc(&out, 4 * COUNT));
	for (size_t i = 0; i < COUNT; i++)
		cold[version][i] = weight(version, i);
	CK(cuMemcpyHtoD(memory, cold[version], 4 * COUNT));
	CK(cuStreamSynchronize(CU_STREAM_LEGACY)); /* as poke() does */
	for (int l = 0; l < LAYERS; l++)
		for (int k = 0; k < SLOTS; k++)
			from[l][k] = memory + 4 * place(l, k);
	capture(&e, out, from);
	memset(cold[version], 0, 4 * COUNT);
	MUST(run(e, out, cold[version]));
	for (size_t i = 0; i < COUNT; i++)
		MUST(cold[version][i] == weight(version, i));
	CK(cuGraphExecDestroy(e));
	dev_free(memory);
	dev_free(out);
}

static void put(int l, int k, int version, enum arena_publish how)
{
	struct arena_spec spec = spec_bytes(4 * N_INTS);
	int *source = staging + (size_t)k * N_INTS;
	char name[16];
	void *p = NULL;

	snprintf(name, sizeof(name), "w%d", k);
	for (size_t i = 0; i < N_INTS; i++)
		source[i] = weight(version, place(l, k) + i);
	AK(arena_put(layers[l], name, &spec, source, how, &p, S));
	MUST(!live[l][k] || live[l][k] == (CUdeviceptr)p);
	live[l][k] = (CUdeviceptr)p;
}

static void reload(int version)
{
	uint64_t id = reload_begin(NULL);

	for (int l = 0; l < LAYERS; l++) {
		for (int k = 0; k < SLOTS; k++)
			put(l, k, version, ARENA_STAGED);
		commit(layers[l]);
		settle();
	}
	MUST(reload_end("R", id) == ARENA_OK);
}

/* ---- the load ---- */

/* A layer whose words are not all of one version. */
static bool layer_torn(const int *out, int l)
{
	int version = out[place(l, 0)] & 1;

	for (size_t i = place(l, 0); i < place(l + 1, 0); i++)
		if (out[i] != weight(version, i))
			return true;
	return false;
}

static void *serve(void *arg)
{
	int *host;
	CUdeviceptr out;
	CUgraphExec e;

	(void)arg;
	victim_thread_start();
	CK(cuMemAlloc(&out, 4 * COUNT));
	CK(cuMemHostAlloc((void **)&host, 4 * COUNT, 0));
	capture(&e, out, live);
	while (!load_relaxed(&stop)) {
		MUST(run(e, out, host));
		for (int l = 0; l < LAYERS; l++)
			(void)add_relaxed(&torn, layer_torn(host, l));
		(void)add_relaxed(&replays, 1);
	}
	CK(cuGraphExecDestroy(e));
	return NULL;
}

static void wait_replays(unsigned n)
{
	unsigned until = load_relaxed(&replays) + n;

	while ((int)(load_relaxed(&replays) - until) < 0)
		sched_yield();
}

/* Cold loads, the first load into slots, an exec over them, and the thread that replays. */
static pthread_t start(CUgraphExec *e, CUdeviceptr *out)
{
	pthread_t thread;
	char path[32];

	arena_needed();
	load_cold(0);
	load_cold(1);
	CK(cuMemHostAlloc((void **)&staging, 4 * SLOTS * N_INTS, 0));
	for (int l = 0; l < LAYERS; l++) {
		snprintf(path, sizeof(path), "model.layers.%d", l);
		layers[l] = layer(path);
	}
	reload(0);
	*out = dev_alloc("out", 4 * COUNT);
	capture(e, *out, live);
	MUST(!pthread_create(&thread, NULL, serve, NULL));
	wait_replays(2);
	return thread;
}

static void finish(pthread_t thread)
{
	store_relaxed(&stop, true);
	pthread_join(thread, NULL);
}

static void under_load(void)
{
	int *host = malloc(4 * COUNT);
	CUdeviceptr out;
	CUgraphExec e;
	pthread_t thread = start(&e, &out);
	uint64_t held = status().storage_bytes;

	for (int i = 1; i <= RELOADS; i++) {
		reload(i % 2);
		MUST(run(e, out, host));
		MUST(!memcmp(host, cold[i % 2], 4 * COUNT));
		wait_replays(2);
		/* One layer's values are what a reload costs, and it gives them back. */
		MUST(status().shadow_peak_bytes <= 4 * COUNT / LAYERS);
		MUST(status().storage_bytes == held);
	}
	finish(thread);
	MUST(load_relaxed(&torn) == 0);
	free(host);
}

/* Half a layer written directly, and time for replays: the check above would see it. */
static void control(void)
{
	CUdeviceptr out;
	CUgraphExec e;
	pthread_t thread = start(&e, &out);
	uint64_t id = reload_begin(NULL);

	for (int k = 0; k < SLOTS / 2; k++)
		put(0, k, 1, ARENA_DIRECT);
	settle();
	wait_replays(3);
	finish(thread);
	reload_abort("R", id, "half a layer was written");
	MUST(load_relaxed(&torn) > 0);
}

VICTIM({ "under-load", under_load }, { "control", control });
