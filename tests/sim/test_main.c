/* SPDX-License-Identifier: Apache-2.0 */
/* Runs every test in a process of its own, and holds what the tests share. Single-threaded. */
#include "tests/sim/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct test *const groups[] = { tests_memory, tests_graph, tests_capture, tests_rows,
					    tests_tool };
CUstream S;
CUmodule module;

void test_eq(long long got, long long want, const char *a, const char *b, const char *file,
	     int line)
{
	if (got == want)
		return;
	fprintf(stderr, "# %s:%d: %s is %lld, not %s = %lld\n", file, line, a, got, b, want);
	_exit(1);
}

void test_start(void)
{
	CUcontext ctx;
	CUdevice dev;

	OK(cuInit(0));
	OK(cuDeviceGet(&dev, 0));
	OK(cuDevicePrimaryCtxRetain(&ctx, dev));
	OK(cuCtxSetCurrent(ctx));
	OK(cuStreamCreate(&S, CU_STREAM_NON_BLOCKING));
	OK(cuModuleLoadData(&module, "image"));
}

CUfunction kernel(const char *name)
{
	CUfunction f;

	OK(cuModuleGetFunction(&f, module, name));
	return f;
}

CUdeviceptr device(size_t size)
{
	CUdeviceptr p;

	OK(cuMemAlloc(&p, size));
	return p;
}

CUresult run(CUstream s, const char *name, void **args)
{
	return cuLaunchKernel(kernel(name), 4, 1, 1, 256, 1, 1, 0, s, args, NULL);
}

int first(CUdeviceptr p)
{
	int v;

	OK(cuMemcpyDtoH(&v, p, sizeof(v)));
	return v;
}

CUgraphExec instantiate(CUgraph g)
{
	CUgraphExec e;

	OK(cuGraphInstantiate(&e, g, 0));
	return e;
}

CUresult replay(CUgraphExec e)
{
	CUresult rc = cuGraphLaunch(e, S);

	return rc ? rc : cuStreamSynchronize(S);
}

CUdeviceptr reserve(size_t size)
{
	CUdeviceptr p;

	OK(cuMemAddressReserve(&p, size, 0, 0, 0));
	return p;
}

CUmemGenericAllocationHandle physical(size_t size)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED };
	CUmemGenericAllocationHandle h;

	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	OK(cuMemCreate(&h, size, &prop, 0));
	return h;
}

void map(CUdeviceptr at, CUmemGenericAllocationHandle h, size_t size)
{
	CUmemAccessDesc access = { .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	OK(cuMemMap(at, size, 0, h, 0));
	OK(cuMemSetAccess(at, size, &access, 1));
}

static int run_apart(const struct test *t, char *self)
{
	char *argv[] = { self, (char *)t->name, NULL };
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		if (t->env)
			putenv((char *)t->env);
		execv("/proc/self/exe", argv);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	if (WIFSIGNALED(status))
		fprintf(stderr, "# signal %d\n", WTERMSIG(status));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
	unsigned n = 0, failed = 0;

	for (size_t g = 0; g < sizeof(groups) / sizeof(*groups); g++)
		for (const struct test *t = groups[g]; t->name; t++) {
			if (argc > 1 && !strcmp(argv[1], t->name)) {
				t->run();
				return 0;
			}
			if (argc > 1)
				continue;
			n++;
			if (run_apart(t, argv[0])) {
				failed++;
				printf("not ok %u %s\n", n, t->name);
			} else {
				printf("ok %u %s\n", n, t->name);
			}
		}
	if (argc > 1)
		return 2;
	printf("1..%u\n", n);
	return failed != 0;
}
