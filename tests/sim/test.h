/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The harness of the simulation's own tests. Each test is a process of its own: an illegal access
 * poisons a process for good, and the environment scripts faults. TAP on stdout, exit 0/1.
 */
#ifndef TEST_H
#define TEST_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct test {
	const char *name;
	void (*run)(void);
	const char *env;	/* NAME=VALUE, or NULL */
};

/* Both values in the message; the first failure ends the test. */
#define EQ(got, want)                                                                         \
	test_eq((long long)(got), (long long)(want), #got, #want, __FILE__, __LINE__)
#define OK(call)	EQ(call, CUDA_SUCCESS)
#define IS(cond)	EQ(!!(cond), 1)
void test_eq(long long got, long long want, const char *a, const char *b, const char *file,
	     int line);

#define MIB	(1ull << 20)
#define N	1024

extern const struct test tests_memory[], tests_graph[], tests_capture[], tests_rows[], tests_tool[];

/* Context on device 0, a non-blocking stream, the kernels. */
extern CUstream S;
extern CUmodule module;
void test_start(void);
CUfunction kernel(const char *name);
CUdeviceptr device(size_t size);
CUresult run(CUstream s, const char *name, void **args);
int first(CUdeviceptr p);		/* first int, synchronous */

static inline CUresult set(CUstream s, CUdeviceptr p, int v)
{
	size_t n = N;

	return run(s, "k_set", (void *[]){ &p, &v, &n });
}

static inline CUresult acc(CUstream s, CUdeviceptr d, CUdeviceptr from)
{
	size_t n = N;

	return run(s, "k_acc", (void *[]){ &d, &from, &n });
}

static inline CUresult spin(CUstream s, CUdeviceptr p, long long cycles)
{
	return run(s, "k_spin", (void *[]){ &p, &cycles });
}

#define CAPTURE(graph, ...)                                                                   \
	do {                                                                                  \
		OK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_GLOBAL));                   \
		__VA_ARGS__;                                                                  \
		OK(cuStreamEndCapture(S, &(graph)));                                          \
	} while (0)

CUgraphExec instantiate(CUgraph g);
CUresult replay(CUgraphExec e);	/* launch and wait */

/* Virtual memory. */
CUdeviceptr reserve(size_t size);
CUmemGenericAllocationHandle physical(size_t size);
void map(CUdeviceptr at, CUmemGenericAllocationHandle h, size_t size);

#endif
