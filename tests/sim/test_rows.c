/* SPDX-License-Identifier: Apache-2.0 */
/* Rows, look-ups, scripted faults, process life. The variant in use is told by the driver version.
 */
#include "tests/sim/test.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
	const char *symbol, *base;
	unsigned since;
	bool per_thread;
} rows[] = {
#define HOOK(base, suffix, since, stream, family, kind, doc, params, args)                    \
	{ #base #suffix #stream, #base, since, sizeof(#stream) > 1 },
#define SIM(base, suffix, since, stream, params, args)                                        \
	{ #base #suffix #stream, #base, since, sizeof(#stream) > 1 },
#include "shim/hooks.def"
#include "tests/sim/rest.def"
#undef HOOK
#undef SIM
};

static void *driver;
static void *symbol(const char *name)
{
	if (!driver)
		driver = dlopen("libcuda.so.1", RTLD_NOW);
	IS(driver);
	return dlsym(driver, name);
}

typedef CUresult (*look_up_fn)(const char *, void **, int, cuuint64_t,
			       CUdriverProcAddressQueryResult *);

static void every_row_is_found(void)
{
	look_up_fn look_up = (look_up_fn)symbol("cuGetProcAddress_v2");
	CUdriverProcAddressQueryResult status;
	bool hidden = !symbol("cuGetProcAddress");
	int version;
	void *p;

	OK(cuDriverGetVersion(&version));
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		void *entry = symbol(rows[i].symbol);

		EQ(!entry, rows[i].since > (unsigned)version ||
				   (hidden && !strcmp(rows[i].base, "cuGetProcAddress")));
		if (!entry || !look_up)
			continue;
		OK(look_up(rows[i].base, &p, (int)rows[i].since, rows[i].per_thread ? 2 : 0,
			   &status));
		EQ((uintptr_t)p, (uintptr_t)entry);
		EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
	}
}

static void look_up_rules(void)
{
	look_up_fn look_up = (look_up_fn)symbol("cuGetProcAddress_v2");
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
	Dl_info info;
	int version;
	void *p;

	if (!look_up)
		return;
	OK(cuDriverGetVersion(&version));
	EQ(look_up("cuNoSuchThing", &p, 12000, 0, &status), CUDA_ERROR_NOT_FOUND);
	EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	EQ((uintptr_t)p, 0);
	EQ(look_up("cuGraphLaunch", &p, 9000, 0, &status), CUDA_ERROR_NOT_FOUND);
	EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	EQ(look_up("", &p, 0, 0, NULL), CUDA_ERROR_NOT_FOUND);
	EQ(look_up("cuMemAlloc", &p, version + 10, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	OK(look_up("cuMemAlloc", &p, 2000, 0, NULL));
	EQ((uintptr_t)p, (uintptr_t)symbol("cuMemAlloc"));
	OK(look_up("cuMemAlloc", &p, 13000, 2, NULL));
	EQ((uintptr_t)p, (uintptr_t)symbol("cuMemAlloc_v2"));
	OK(look_up("cuGraphInstantiate", &p, 10000, 0, NULL));
	EQ((uintptr_t)p, (uintptr_t)symbol("cuGraphInstantiate"));
	OK(look_up("cuGraphInstantiate", &p, 11030, 0, NULL));
	EQ((uintptr_t)p, (uintptr_t)symbol("cuGraphInstantiate_v2"));
	OK(look_up("cuLaunchKernel", &p, 13000, 1, NULL));
	EQ((uintptr_t)p, (uintptr_t)symbol("cuLaunchKernel"));
	OK(look_up("cuLaunchKernel", &p, 13000, 2, NULL));
	EQ((uintptr_t)p, (uintptr_t)symbol("cuLaunchKernel_ptsz"));
	if (version < 14000)
		return;
	OK(look_up("cuMemAlloc", &p, 14000, 0, NULL));
	IS(dladdr(p, &info));
	IS(!info.dli_sname || info.dli_saddr != p);	/* no symbol names it */
}

static void nothing_works_before_init(void)
{
	CUdeviceptr p;
	int n;

	EQ(cuMemAlloc(&p, 4096), CUDA_ERROR_NOT_INITIALIZED);
	EQ(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
	OK(cuDriverGetVersion(&n));
	EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
	OK(cuInit(0));
	OK(cuDeviceGetCount(&n));
	EQ(cuMemAlloc(&p, 4096), CUDA_ERROR_INVALID_CONTEXT);
}

static void nothing_works_after_fork(void)
{
	int status, n;
	pid_t pid;

	test_start();
	pid = fork();
	if (!pid)
		_exit(cuDeviceGetCount(&n) != CUDA_ERROR_NOT_INITIALIZED ||
		      cuInit(0) != CUDA_ERROR_NOT_INITIALIZED);
	waitpid(pid, &status, 0);
	EQ(status, 0);
	OK(cuDeviceGetCount(&n));
}

static void scripted_faults(void)
{
	CUdeviceptr p, q;
	CUgraph g;

	test_start();
	p = device(4096);
	EQ(cuMemAlloc(&q, 4096), CUDA_ERROR_OUT_OF_MEMORY);
	IS(device(4096) != p);
	EQ(cuGraphCreate(&g, 0), CUDA_ERROR_UNKNOWN);
	OK(cuGraphCreate(&g, 0));
	OK(cuMemFree(p));
	EQ(cuMemFree(p), 205);		/* the script, not the driver */
}

static void contexts(void)
{
	CUcontext a, b, seen;
	unsigned flags;
	int active;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	EQ(active, 0);
	OK(cuDevicePrimaryCtxRetain(&a, 0));
	OK(cuDevicePrimaryCtxRetain(&b, 0));
	EQ((uintptr_t)a, (uintptr_t)b);
	OK(cuCtxPushCurrent(a));
	OK(cuDevicePrimaryCtxRelease(0));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	EQ(active, 1);
	EQ(cuCtxDestroy(a), CUDA_ERROR_INVALID_CONTEXT);	/* the primary one is released */
	OK(cuDevicePrimaryCtxRelease(0));
	EQ(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	OK(cuCtxPopCurrent(NULL));
	OK(cuCtxGetCurrent(&seen));
	EQ((uintptr_t)seen, 0);
}

/* Addresses of 32 bits; cuda.h hides these names behind the newer ABI. */
static void the_first_abi(void)
{
	CUresult (*alloc)(unsigned *, unsigned) = symbol("cuMemAlloc");
	CUresult (*fill)(unsigned, unsigned, unsigned) = symbol("cuMemsetD32");
	CUresult (*fetch)(void *, unsigned, unsigned) = symbol("cuMemcpyDtoH");
	CUresult (*query)(unsigned *, unsigned *, unsigned) = symbol("cuMemGetAddressRange");
	CUresult (*release)(unsigned) = symbol("cuMemFree");
	unsigned p, again, base, size;
	int v;

	test_start();
	OK(alloc(&p, 4096));
	OK(fill(p, 31, N));
	OK(fetch(&v, p, 4));
	EQ(v, 31);
	OK(query(&base, &size, p + 8));
	EQ(base, p);
	EQ(size, 4096);
	OK(release(p));
	EQ(release(p), CUDA_ERROR_INVALID_VALUE);
	OK(alloc(&again, 4096));
	EQ(again, p);
}

static int destroyed;
static void destroy(void *what)
{
	CUstream s;

	destroyed += *(int *)what;
	EQ(cuStreamCreate(&s, 0), CUDA_ERROR_NOT_PERMITTED);
}

static void user_objects(void)
{
	CUuserObject u;
	int one = 1;
	CUgraph g;

	test_start();
	OK(cuGraphCreate(&g, 0));
	OK(cuUserObjectCreate(&u, &one, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuGraphRetainUserObject(g, u, 2, 0));
	OK(cuUserObjectRelease(u, 1));
	EQ(cuGraphReleaseUserObject(g, u, 3), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphReleaseUserObject(g, u, 1));
	EQ(destroyed, 0);
	OK(cuGraphDestroy(g));
	EQ(destroyed, 1);
	EQ(cuUserObjectRetain(u, 1), CUDA_ERROR_INVALID_VALUE);
}

static void semaphores(void)
{
	CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = { .type = 1 };
	CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS params = { .flags = 0 };
	CUDA_EXT_SEM_SIGNAL_NODE_PARAMS node = { .paramsArray = &params, .numExtSems = 1 }, back;
	CUexternalSemaphore s;
	CUgraphNode n;
	CUgraph g;

	test_start();
	OK(cuImportExternalSemaphore(&s, &desc));
	OK(cuSignalExternalSemaphoresAsync(&s, &params, 1, S));
	OK(cuStreamSynchronize(S));
	node.extSemArray = &s;
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddExternalSemaphoresSignalNode(&n, g, NULL, 0, &node));
	OK(cuGraphExternalSemaphoresSignalNodeGetParams(n, &back));
	EQ((uintptr_t)back.extSemArray[0], (uintptr_t)s);
	OK(replay(instantiate(g)));
	OK(cuDestroyExternalSemaphore(s));
	EQ(cuDestroyExternalSemaphore(s), CUDA_ERROR_INVALID_HANDLE);
}

/* The hooked rows that only answer CUDA_ERROR_NOT_SUPPORTED: arrays, which hold no address. */
static const char *const without_behaviour[] = {
	"cuMemcpyAtoD", "cuMemcpyAtoD_v2", "cuMemcpyAtoD_v2_ptds", "cuMemMapArrayAsync",
	"cuMemMapArrayAsync_ptsz",
};

static bool hooked(const char *name)
{
	static const char *const names[] = {
#define HOOK(base, suffix, since, stream, family, kind, doc, params, args) #base #suffix #stream,
#include "shim/hooks.def"
#undef HOOK
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

/* SIM_COUNTS of a process that made two calls. */
static void counters(void)
{
	char path[] = "/tmp/sim_countsXXXXXX", line[128], name[80], mark[32];
	unsigned long calls, n = 0, inits = 0;
	int status, fd = mkstemp(path);
	FILE *f;

	IS(fd >= 0);
	if (!fork()) {
		setenv("SIM_COUNTS", path, 1);
		execl("/proc/self/exe", "test_sim", "error names", NULL);
		_exit(127);
	}
	wait(&status);
	EQ(status, 0);
	f = fdopen(fd, "r");
	unlink(path);
	while (fgets(line, sizeof(line), f)) {
		*mark = 0;
		IS(sscanf(line, "%79s %lu %31s", name, &calls, mark) >= 2);
		if (!strcmp(name, "cuGetErrorName"))
			inits = calls;
		if (!*mark || !hooked(name))
			continue;
		IS(n < sizeof(without_behaviour) / sizeof(*without_behaviour));
		EQ(strcmp(name, without_behaviour[n]), 0);
		n++;
	}
	EQ(n, sizeof(without_behaviour) / sizeof(*without_behaviour));
	EQ(inits, 2);
}

static void error_names(void)
{
	const char *text;

	OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
	EQ(strcmp(text, "CUDA_ERROR_ILLEGAL_ADDRESS"), 0);
	OK(cuGetErrorString(CUDA_ERROR_ILLEGAL_STATE, &text));
	EQ(cuGetErrorName(123456, &text), CUDA_ERROR_INVALID_VALUE);
	EQ((uintptr_t)text, 0);
}

const struct test tests_rows[] = {
	{ "every row is found", every_row_is_found, NULL },
	{ "look-up rules", look_up_rules, NULL },
	{ "nothing works before init", nothing_works_before_init, NULL },
	{ "nothing works after fork", nothing_works_after_fork, NULL },
	{ "scripted faults", scripted_faults,
	  "SIM_FAIL=cuMemAlloc:2,cuGraphCreate:1=999,cuMemFree_v2:2=205" },
	{ "contexts", contexts, NULL },
	{ "the first ABI", the_first_abi, NULL },
	{ "user objects", user_objects, NULL },
	{ "semaphores", semaphores, NULL },
	{ "counters", counters, NULL },
	{ "error names", error_names, NULL },
	{ NULL, NULL, NULL },
};
