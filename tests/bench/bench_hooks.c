/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times calls into the driver, as a program sees them; run_bench.py runs it without a preload,
 * with the no-op library, and with the shim off and on, and compares.
 *
 *	bench_hooks time		every operation: name, threads, ns per call
 *	bench_hooks count NAME CALLS	one operation, for callgrind
 *	bench_hooks memory		resident bytes per node of instantiated graphs
 *
 * The best of several batches is taken: what is above it is the machine's noise.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/driver.h"

#define BATCHES	      15
#define EXECS_MANY    10000u
#define THREADS_MAX   16
#define GRAPH_NODES   1000u
#define MEMORY_GRAPHS 200u

static CUgraphExec execs[EXECS_MANY];
static unsigned threads_now = 1;	/* of the batch that runs */

static void check(CUresult rc)
{
	if (rc != CUDA_SUCCESS) {
		fprintf(stderr, "bench_hooks: the driver answered %d\n", (int)rc);
		exit(1);
	}
}

/*
 * ---- operations: @n calls (pairs where two belong together) by thread @who ----
 *
 * Threads of one program use streams and execs of their own; what they share here is what the
 * shim shares.
 */

static CUstream stream_of(unsigned who)
{
	return (CUstream)(0x3000 + 0x100ull * who);
}

static void launch_kernel(unsigned n, unsigned who)
{
	void *params[BENCH_PARAMS] = { 0 };
	CUstream stream = stream_of(who);

	while (n--)
		cuLaunchKernel((CUfunction)0x2000, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void launch_graph(unsigned n, unsigned who)
{
	CUstream stream = stream_of(who);

	while (n--)
		cuGraphLaunch(execs[who], stream);
}

/* A stride that is coprime to the number: each exec once, no two neighbours in a row. An exec is
 * one thread's: the driver wants its launches serialised anyway. */
static void launch_graphs(unsigned n, unsigned who)
{
	const unsigned mine = EXECS_MANY / threads_now;
	CUstream stream = stream_of(who);

	for (unsigned at = 0; n--; at = (at + 7919) % mine)
		cuGraphLaunch(execs[who * mine + at], stream);
}

static void alloc_free(unsigned n, unsigned who)
{
	CUdeviceptr p;

	while (n--) {
		cuMemAlloc_v2(&p, BENCH_RANGE_BYTES);
		cuMemFree_v2(p);
	}
}

static void alloc_free_async(unsigned n, unsigned who)
{
	CUstream stream = stream_of(who);
	CUdeviceptr p;

	while (n--) {
		cuMemAllocAsync(&p, BENCH_RANGE_BYTES, stream);
		cuMemFreeAsync(p, stream);
	}
}

static void copy(unsigned n, unsigned who)
{
	CUstream stream = stream_of(who);

	while (n--)
		cuMemcpyAsync(BENCH_MEMORY, BENCH_MEMORY + BENCH_RANGE_BYTES, 4096, stream);
}

static void synchronize(unsigned n, unsigned who)
{
	CUstream stream = stream_of(who);

	while (n--)
		cuStreamSynchronize(stream);
}

static void instantiate(unsigned n, unsigned who)
{
	CUgraphExec exec;

	for (unsigned i = 0; i < n; i++) {
		check(cuGraphInstantiateWithFlags(&exec, BENCH_GRAPH(i * GRAPH_NODES, GRAPH_NODES),
						  0));
		check(cuGraphExecDestroy(exec));
	}
}

static const struct operation {
	const char *name;
	void (*run)(unsigned n, unsigned who);
	unsigned calls;	  /* a batch */
	unsigned divisor; /* a call stands for that many units */
	int threads;	  /* most */
	unsigned execs;	  /* that have to be open */
} operations[] = {
	{ "cuLaunchKernel", launch_kernel, 200000, 1, THREADS_MAX, 0 },
	{ "cuGraphLaunch-1", launch_graph, 200000, 1, THREADS_MAX, THREADS_MAX },
	{ "cuGraphLaunch-10000", launch_graphs, 200000, 1, THREADS_MAX, EXECS_MANY },
	{ "cuMemAlloc+Free", alloc_free, 2000, 1, THREADS_MAX, 0 },
	{ "cuMemAllocAsync+FreeAsync", alloc_free_async, 2000, 1, THREADS_MAX, 0 },
	{ "cuMemcpyAsync", copy, 200000, 1, THREADS_MAX, 0 },
	{ "cuStreamSynchronize", synchronize, 100000, 1, THREADS_MAX, 0 },
	{ "instantiate-node", instantiate, 4, GRAPH_NODES, 1, 0 },
};
#define OPERATIONS (sizeof(operations) / sizeof(operations[0]))

/* ---- timing ---- */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct worker {
	pthread_t thread;
	pthread_barrier_t *start;
	const struct operation *op;
	unsigned who;
	uint64_t begin_ns, end_ns;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	w->op->run(w->op->calls / 10 + 1, w->who);
	pthread_barrier_wait(w->start);
	w->begin_ns = now_ns();
	w->op->run(w->op->calls, w->who);
	w->end_ns = now_ns();
	return NULL;
}

/* @return wall time of one batch on each of @threads threads. */
static uint64_t batch_ns(const struct operation *op, int threads)
{
	struct worker workers[THREADS_MAX];
	pthread_barrier_t start;
	uint64_t begin_ns = UINT64_MAX, end_ns = 0;

	threads_now = (unsigned)threads;
	pthread_barrier_init(&start, NULL, (unsigned)threads);
	for (int i = 0; i < threads; i++) {
		workers[i] = (struct worker){ .start = &start, .op = op, .who = (unsigned)i };
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			exit(1);
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		if (workers[i].begin_ns < begin_ns)
			begin_ns = workers[i].begin_ns;
		if (workers[i].end_ns > end_ns)
			end_ns = workers[i].end_ns;
	}
	pthread_barrier_destroy(&start);
	return end_ns - begin_ns;
}

static void time_operation(const struct operation *op, int threads)
{
	uint64_t best_ns = UINT64_MAX;

	for (int i = 0; i < BATCHES; i++) {
		uint64_t ns = batch_ns(op, threads);

		if (ns < best_ns)
			best_ns = ns;
	}
	printf("%s %d %.3f\n", op->name, threads,
	       (double)best_ns / op->calls / op->divisor / threads);
}

/* ---- set-up ---- */

static void open_ranges(void)
{
	CUdeviceptr p;

	for (unsigned i = 0; i < BENCH_RANGES; i++)
		check(cuMemAlloc_v2(&p, BENCH_RANGE_BYTES));
}

static void open_execs(unsigned count, unsigned nodes, uint64_t first)
{
	for (unsigned i = 0; i < count; i++)
		check(cuGraphInstantiateWithFlags(&execs[i], BENCH_GRAPH(first + i * nodes, nodes),
						  0));
}

static long resident_bytes(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long total, resident = 0;

	if (f == NULL || fscanf(f, "%ld %ld", &total, &resident) != 2)
		exit(1);
	fclose(f);
	return resident * sysconf(_SC_PAGESIZE);
}

static void measure_memory(const char *name, uint64_t first)
{
	long before;

	open_execs(1, GRAPH_NODES, first);
	before = resident_bytes();
	open_execs(MEMORY_GRAPHS, GRAPH_NODES, first);
	printf("%s 1 %.1f\n", name,
	       (double)(resident_bytes() - before) / MEMORY_GRAPHS / GRAPH_NODES);
}

static int count_calls(const char *name, unsigned calls)
{
	for (size_t i = 0; i < OPERATIONS; i++)
		if (strcmp(operations[i].name, name) == 0) {
			open_execs(operations[i].execs, 10, 0);
			operations[i].run(calls, 0);
			return 0;
		}
	fprintf(stderr, "bench_hooks: no operation %s\n", name);
	return 1;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "time";

	check(cuInit(0));
	open_ranges();
	if (strcmp(mode, "memory") == 0) {
		measure_memory("bytes-per-node", 0);
		measure_memory("bytes-per-node-spread", BENCH_SPREAD);
		return 0;
	}
	if (strcmp(mode, "count") == 0 && argc == 4)
		return count_calls(argv[2], (unsigned)strtoul(argv[3], NULL, 10));
	open_execs(EXECS_MANY, 10, 0);
	for (size_t i = 0; i < OPERATIONS; i++)
		for (int threads = 1; threads <= operations[i].threads; threads *= 2)
			time_operation(&operations[i], threads);
	return 0;
}
