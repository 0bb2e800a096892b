/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recorder against scripts: test_recorder LIBARENA_CUPTI full|v1|bare. The fake libcupti calls
 * it back in any order, with anything missing, from any thread; what reaches the host is compared.
 *
 * Each test is a process of its own, as the recorder and the fake keep state. TAP on stdout.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "arena/atomics.h"
#include "cupti/recorder.h"
#include "tests/cupti/fake.h"

#define EQ(got, want) eq((long long)(got), (long long)(want), #got, #want, __LINE__)
#define IS(x)	      EQ(!!(x), 1)
#define RESOURCE(x)   CUPTI_CBID_RESOURCE_##x
#define EVENTS	      64

static void eq(long long got, long long want, const char *a, const char *b, int line)
{
	if (got == want)
		return;
	fprintf(stderr, "# line %d: %s is %lld, not %s = %lld\n", line, a, got, b, want);
	_exit(1);
}

/* ---- the host ---- */

static const struct recorder *recorder;
static struct recorder_status status;
static struct recorder_event events[EVENTS]; /* the first ones */
static counter_t told;			     /* by any thread */
static _Thread_local bool in_driver;	     /* what inside() answers */
static void (*_Atomic during)(void);	     /* runs in the next event, whoever gets it */

static void event(const struct recorder_event *e)
{
	uint64_t n = add_relaxed(&told, 1);
	void (*now)(void) = swap_acq_rel(&during, NULL);

	if (n < EVENTS)
		events[n] = *e;
	if (now)
		now();
}

static bool inside(void)
{
	return in_driver;
}

static const struct recorder_host host = { .abi = RECORDER_ABI, .event = event, .inside = inside };

static void opened(unsigned flags)
{
	EQ(recorder->open(&host, flags, &status), RECORDER_DONE);
}

static struct fake_cupti_counters counts(void)
{
	struct fake_cupti_counters c;

	fake_cupti_counters(&c);
	return c;
}

/* Handles that differ, so that no two fields can be mixed up. */
static CUpti_GraphData everything(void)
{
	return (CUpti_GraphData){
		.graph = (CUgraph)0x10,
		.originalGraph = (CUgraph)0x20,
		.node = (CUgraphNode)0x30,
		.originalNode = (CUgraphNode)0x40,
		.nodeType = CU_GRAPH_NODE_TYPE_MEMSET,
		.dependency = (CUgraphNode)0x50,
		.graphExec = (CUgraphExec)0x60,
	};
}

static void fire(CUpti_CallbackId cbid)
{
	CUpti_GraphData g = everything();

	IS(fake_cupti_fire_graph(cbid, &g));
}

/* ---- opening and closing ---- */

static void bad_calls(void)
{
	struct recorder_host other = host;

	EQ(recorder->close(&status), RECORDER_BAD_CALL);
	EQ(recorder->open(NULL, 0, &status), RECORDER_BAD_CALL);
	other.abi = RECORDER_ABI + 1;
	EQ(recorder->open(&other, 0, &status), RECORDER_BAD_CALL);
	other = host;
	other.event = NULL;
	EQ(recorder->open(&other, 0, &status), RECORDER_BAD_CALL);
	EQ(counts().subscribes, 0);
	opened(0);
	EQ(recorder->open(&host, 0, &status), RECORDER_BAD_CALL);
	EQ(counts().subscribes, 1);
	EQ(recorder->close(&status), RECORDER_DONE);
	EQ(recorder->close(&status), RECORDER_BAD_CALL);
	EQ(counts().finalizes, 1);
}

static void other_abi(void)
{
	recorder_entry entry = (recorder_entry)dlsym(RTLD_DEFAULT, RECORDER_SYMBOL);

	IS(entry);
	EQ(entry(RECORDER_ABI + 1) == NULL, 1);
	EQ(entry(0) == NULL, 1);
	EQ(entry(RECORDER_ABI) == recorder, 1);
}

static void only_graphs_are_enabled(void)
{
	opened(0);
	for (uint32_t domain = 1; domain < CUPTI_CB_DOMAIN_SIZE; domain++)
		for (uint32_t cbid = 1; cbid < 1000; cbid++) {
			bool graphs = domain == CUPTI_CB_DOMAIN_RESOURCE &&
				      cbid >= RESOURCE(GRAPH_CREATED) &&
				      cbid <= RESOURCE(GRAPH_NODE_SET_PARAMS) &&
				      cbid != RESOURCE(STREAM_ATTRIBUTE_CHANGED);

			if (cbid != RESOURCE(GRAPHNODE_CREATE_STARTING))
				EQ(fake_cupti_is_enabled(domain, cbid), graphs);
		}
	EQ(recorder->close(&status), RECORDER_DONE);
	EQ(fake_cupti_is_enabled(CUPTI_CB_DOMAIN_RESOURCE, RESOURCE(GRAPHNODE_CREATED)), 0);
}

static void launches_are_enabled_when_asked_for(void)
{
	static const uint32_t wanted[] = {
		CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
		CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
		CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
		CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2,
	};
	const struct {
		CUdeviceptr dst, src;
		size_t bytes;
		CUstream stream;
	} copy = { .stream = (CUstream)0x5100 };
	CUlaunchConfig config = { .hStream = (CUstream)0x5200 };
	const CUlaunchConfig *with_config = &config;
	CUresult refused = CUDA_ERROR_INVALID_VALUE;
	CUpti_CallbackData d = { .callbackSite = CUPTI_API_ENTER,
				 .functionName = "cuLaunchKernel",
				 .functionReturnValue = &refused,
				 .symbolName = "gemm",
				 .correlationId = 7 };

	opened(RECORDER_LAUNCHES);
	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
		IS(fake_cupti_is_enabled(CUPTI_CB_DOMAIN_DRIVER_API, wanted[i]));
	EQ(fake_cupti_is_enabled(CUPTI_CB_DOMAIN_DRIVER_API,
				 CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize),
	   0);
	/* A call is told once, not at both ends. */
	fake_cupti_fire(CUPTI_CB_DOMAIN_DRIVER_API, wanted[0], &d);
	d.callbackSite = CUPTI_API_EXIT;
	fake_cupti_fire(CUPTI_CB_DOMAIN_DRIVER_API, wanted[0], &d);
	fake_cupti_fire(CUPTI_CB_DOMAIN_DRIVER_API, wanted[0], NULL);
	EQ(load_relaxed(&told), 1);
	EQ(events[0].kind, RECORDER_LAUNCH);
	EQ(events[0].cbid, wanted[0]);
	IS(!strcmp(events[0].launch.call, "cuLaunchKernel"));
	IS(!strcmp(events[0].launch.kernel, "gemm"));
	EQ(events[0].launch.correlation, 7);
	EQ(events[0].launch.result, refused);
	EQ(events[0].launch.stream, 0); /* its parameters were not told */
	/* Where the stream is depends on the call. */
	d.functionParams = &copy;
	fake_cupti_fire(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync, &d);
	EQ(events[1].launch.stream, 0x5100);
	fake_cupti_fire(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoD_v2, &d);
	EQ(events[2].launch.stream, 0);
	d.functionParams = &with_config;
	fake_cupti_fire(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, &d);
	EQ(events[3].launch.stream, 0x5200);
	with_config = NULL;
	fake_cupti_fire(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, &d);
	EQ(events[4].launch.stream, 0);
}

static void six_windows(void)
{
	for (unsigned i = 1; i <= 6; i++) {
		opened(0);
		IS(counts().attached);
		fire(RESOURCE(GRAPHNODE_CREATED));
		EQ(recorder->close(&status), RECORDER_DONE);
		EQ(counts().attached, 0);
		EQ(counts().subscribes, i);
		EQ(counts().finalizes, i);
		EQ(load_relaxed(&told), i);
	}
	EQ(counts().finalizes_inside, 0);
}

/* ---- when it cannot be had ---- */

static void CUPTIAPI nothing(void *userdata, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
			     const void *data)
{
}

static bool attaches;

static bool may_attach(void)
{
	return attaches;
}

/* The host changes its mind while libcupti is looked for. */
static void host_says_no(void)
{
	struct recorder_host asks = host;

	asks.may_attach = may_attach;
	EQ(recorder->open(&asks, 0, &status), RECORDER_BUSY);
	EQ(counts().subscribes, 0);
	EQ(counts().finalizes, 0);
	EQ(recorder->close(&status), RECORDER_BAD_CALL);
	attaches = true;
	EQ(recorder->open(&asks, 0, &status), RECORDER_DONE);
	EQ(recorder->close(&status), RECORDER_DONE);
}

static void another_subscriber(void)
{
	CUpti_SubscriberHandle s;
	bool v2 = dlsym(RTLD_DEFAULT, "cuptiSubscribe_v2");

	setenv("FAKE_CUPTI_OTHER", "Nsight Systems", 1);
	EQ(recorder->open(&host, 0, &status), RECORDER_BUSY);
	EQ(status.error, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
	EQ(strcmp(status.other, v2 ? "Nsight Systems" : ""), 0);
	IS(*status.text);
	/* Not a finger is laid on the other one's. */
	EQ(counts().finalizes, 0);
	EQ(counts().unsubscribes, 0);
	EQ(recorder->close(&status), RECORDER_BAD_CALL);
	unsetenv("FAKE_CUPTI_OTHER");
	EQ(cuptiSubscribe(&s, nothing, NULL), CUPTI_SUCCESS);
	EQ(recorder->open(&host, 0, &status), RECORDER_BUSY);
	EQ(counts().finalizes, 0);
	EQ(cuptiUnsubscribe(s), CUPTI_SUCCESS);
	opened(0);
	EQ(recorder->close(&status), RECORDER_DONE);
}

static void refusals(void)
{
	bool v2 = dlsym(RTLD_DEFAULT, "cuptiSubscribe_v2");

	setenv("FAKE_CUPTI_FAIL", v2 ? "cuptiSubscribe_v2=15" : "cuptiSubscribe=15", 1);
	EQ(recorder->open(&host, 0, &status), RECORDER_REFUSED);
	EQ(status.error, CUPTI_ERROR_NOT_INITIALIZED);
	IS(strstr(status.text, "CUPTI_ERROR_NOT_INITIALIZED"));
	IS(strstr(status.library, "libcupti.so.13"));
	EQ(counts().attached, 0);
	/* Half way: what was attached does not stay. */
	setenv("FAKE_CUPTI_FAIL", "cuptiEnableCallback=1", 1);
	EQ(recorder->open(&host, 0, &status), RECORDER_REFUSED);
	EQ(counts().subscribes, 1);
	EQ(counts().attached, 0);
	fire(RESOURCE(GRAPHNODE_CREATED));
	EQ(load_relaxed(&told), 0);
	/* A finalisation that fails is said, and the window is closed all the same. */
	unsetenv("FAKE_CUPTI_FAIL");
	opened(0);
	setenv("FAKE_CUPTI_FAIL", "cuptiFinalize=7", 1);
	EQ(recorder->close(&status), RECORDER_REFUSED);
	EQ(status.error, CUPTI_ERROR_INVALID_OPERATION);
	EQ(recorder->close(&status), RECORDER_BAD_CALL);
	fire(RESOURCE(GRAPHNODE_CREATED));
	EQ(load_relaxed(&told), 0);
}

static void too_old(void)
{
	setenv("FAKE_CUPTI_VERSION", "17", 1);
	EQ(recorder->open(&host, 0, &status), RECORDER_TOO_OLD);
	EQ(status.version, 17);
	IS(strstr(status.text, "17"));
	EQ(counts().subscribes, 0);
	setenv("FAKE_CUPTI_FAIL", "cuptiGetVersion=15", 1);
	EQ(recorder->open(&host, 0, &status), RECORDER_REFUSED);
	EQ(status.error, CUPTI_ERROR_NOT_INITIALIZED);
	IS(strstr(status.text, "cuptiGetVersion"));
	EQ(status.version, 0);
	EQ(counts().subscribes, 0);
	unsetenv("FAKE_CUPTI_VERSION");
	unsetenv("FAKE_CUPTI_FAIL");
	opened(0);
	EQ(status.version, CUPTI_API_VERSION);
	EQ(status.error, 0);
}

static unsigned asked[2]; /* for the soname, for a path of the toolkit */

static void *open_nothing(const char *file, int mode)
{
	asked[0] += !strcmp(file, "libcupti.so.13");
	asked[1] += !strcmp(file, "/toolkit/lib64/libcupti.so.13");
	return NULL;
}

static void no_library(void)
{
	struct recorder_host blind = host;

	blind.dlopen = open_nothing;
	setenv("CUDA_HOME", "/toolkit", 1);
	EQ(recorder->open(&blind, 0, &status), RECORDER_NO_LIBRARY);
	EQ(asked[0], 1);
	EQ(asked[1], 1);
	EQ(counts().subscribes, 0);
	EQ(recorder->close(&status), RECORDER_BAD_CALL);
	/* It may come later. */
	opened(0);
	IS(strstr(status.library, "libcupti.so.13"));
}

/* The library of the variant without cuptiFinalize. */
static void no_finalize(void)
{
	EQ(recorder->open(&host, 0, &status), RECORDER_TOO_OLD);
	IS(strstr(status.text, "cuptiFinalize"));
	EQ(counts().subscribes, 0);
}

/* ---- what is told ---- */

static void every_callback_is_translated(void)
{
	static const struct {
		uint32_t cbid;
		enum recorder_kind kind;
	} pairs[] = {
		{ RESOURCE(GRAPH_CREATED), RECORDER_GRAPH_CREATED },
		{ RESOURCE(GRAPH_CLONED), RECORDER_GRAPH_CLONED },
		{ RESOURCE(GRAPH_DESTROY_STARTING), RECORDER_GRAPH_DESTROYING },
		{ RESOURCE(GRAPHNODE_CREATED), RECORDER_NODE_CREATED },
		{ RESOURCE(GRAPHNODE_CLONED), RECORDER_NODE_CLONED },
		{ RESOURCE(GRAPHNODE_DESTROY_STARTING), RECORDER_NODE_DESTROYING },
		{ RESOURCE(GRAPH_NODE_UPDATED), RECORDER_NODE_UPDATED },
		{ RESOURCE(GRAPH_NODE_SET_PARAMS), RECORDER_NODE_PARAMS_SET },
		{ RESOURCE(GRAPHNODE_DEPENDENCY_CREATED), RECORDER_DEPENDENCY_CREATED },
		{ RESOURCE(GRAPHNODE_DEPENDENCY_DESTROY_STARTING), RECORDER_DEPENDENCY_DESTROYING },
		{ RESOURCE(GRAPHEXEC_CREATE_STARTING), RECORDER_EXEC_CREATING },
		{ RESOURCE(GRAPHEXEC_CREATED), RECORDER_EXEC_CREATED },
		{ RESOURCE(GRAPHEXEC_DESTROY_STARTING), RECORDER_EXEC_DESTROYING },
	};
	size_t n = sizeof(pairs) / sizeof(*pairs);

	opened(0);
	for (size_t i = 0; i < n; i++)
		fire(pairs[i].cbid);
	EQ(load_relaxed(&told), n);
	for (size_t i = 0; i < n; i++) {
		EQ(events[i].kind, pairs[i].kind);
		EQ(events[i].cbid, pairs[i].cbid);
		EQ(events[i].graph, 0x10);
		EQ(events[i].original_graph, 0x20);
		EQ(events[i].node, 0x30);
		EQ(events[i].original_node, 0x40);
		EQ(events[i].node_type, CU_GRAPH_NODE_TYPE_MEMSET);
		EQ(events[i].dependency, 0x50);
		EQ(events[i].exec, 0x60);
	}
}

/* The recorder keeps no state of graphs: what makes no sense is for its host to sort out. */
static void any_order(void)
{
	static const uint32_t order[] = {
		RESOURCE(GRAPHEXEC_CREATED),	      RESOURCE(GRAPHNODE_CLONED),
		RESOURCE(GRAPHNODE_DESTROY_STARTING), RESOURCE(GRAPHNODE_CREATED),
		RESOURCE(GRAPHNODE_CREATED),	      RESOURCE(GRAPHEXEC_CREATE_STARTING),
		RESOURCE(GRAPH_DESTROY_STARTING),     RESOURCE(GRAPH_CREATED),
		RESOURCE(GRAPH_DESTROY_STARTING),
	};
	size_t n = sizeof(order) / sizeof(*order);

	opened(0);
	for (size_t i = 0; i < n; i++)
		fire(order[i]);
	EQ(load_relaxed(&told), n);
	for (size_t i = 0; i < n; i++)
		EQ(events[i].cbid, order[i]);
}

static void what_is_not_there(void)
{
	CUpti_GraphData none = { .graph = NULL };

	opened(0);
	IS(fake_cupti_fire(CUPTI_CB_DOMAIN_RESOURCE, RESOURCE(GRAPHNODE_CREATED), NULL));
	IS(fake_cupti_fire_graph(RESOURCE(GRAPHNODE_CREATED), NULL));
	EQ(load_relaxed(&told), 0);
	IS(fake_cupti_fire_graph(RESOURCE(GRAPHNODE_CREATED), &none));
	EQ(load_relaxed(&told), 1);
	EQ(events[0].node, 0);
	EQ(events[0].graph, 0);
}

static void what_is_not_known(void)
{
	CUpti_GraphData g = everything();

	opened(0);
	fire(RESOURCE(INVALID));
	fire(RESOURCE(SIZE));
	fire(RESOURCE(FORCE_INT));
	fire(RESOURCE(STREAM_ATTRIBUTE_CHANGED));
	fire(RESOURCE(CONTEXT_CREATED));
	fake_cupti_fire(CUPTI_CB_DOMAIN_INVALID, RESOURCE(GRAPHNODE_CREATED), &g);
	fake_cupti_fire(CUPTI_CB_DOMAIN_NVTX, RESOURCE(GRAPHNODE_CREATED), &g);
	fake_cupti_fire(CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR, NULL);
	fake_cupti_fire((CUpti_CallbackDomain)99, RESOURCE(GRAPHNODE_CREATED), &g);
	EQ(load_relaxed(&told), 0);
}

/* ---- re-entry and threads ---- */

static void fire_again(void)
{
	in_driver = true;
	fire(RESOURCE(GRAPH_CREATED));
	in_driver = false;
	fire(RESOURCE(GRAPH_CLONED));
}

/* The host asks the driver in an event, which is told to nobody; another's call in between is. */
static void a_call_inside_a_callback(void)
{
	opened(0);
	store_release(&during, fire_again);
	fire(RESOURCE(GRAPHNODE_CREATED));
	EQ(load_relaxed(&told), 2);
	EQ(events[0].kind, RECORDER_NODE_CREATED);
	EQ(events[1].kind, RECORDER_GRAPH_CLONED);
	EQ(recorder->close(&status), RECORDER_DONE);
}

static void *fire_many(void *arg)
{
	for (unsigned i = 0; i < 5000; i++)
		fire(RESOURCE(GRAPHNODE_CREATED));
	return arg;
}

static void many_threads(void)
{
	pthread_t t[8];

	opened(0);
	for (unsigned i = 0; i < 8; i++)
		EQ(pthread_create(&t[i], NULL, fire_many, NULL), 0);
	for (unsigned i = 0; i < 8; i++)
		EQ(pthread_join(t[i], NULL), 0);
	EQ(load_relaxed(&told), 8 * 5000);
}

static _Atomic int stage; /* 1: an event is under way, 2: it is over; pairs with the loads below */

static void pause_event(void)
{
	store_release(&stage, 1);
	nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
	store_release(&stage, 2);
}

static void *fire_one(void *arg)
{
	fire(RESOURCE(GRAPHNODE_CREATED));
	return arg;
}

static void closing_waits_for_an_event(void)
{
	pthread_t t;

	opened(0);
	store_release(&during, pause_event);
	EQ(pthread_create(&t, NULL, fire_one, NULL), 0);
	while (!load_acquire(&stage))
		;
	EQ(recorder->close(&status), RECORDER_DONE);
	EQ(load_acquire(&stage), 2);
	EQ(pthread_join(t, NULL), 0);
}

static void closing_while_threads_fire(void)
{
	pthread_t t[4];
	uint64_t before;

	opened(0);
	for (unsigned i = 0; i < 4; i++)
		EQ(pthread_create(&t[i], NULL, fire_many, NULL), 0);
	EQ(recorder->close(&status), RECORDER_DONE);
	before = load_relaxed(&told);
	for (unsigned i = 0; i < 4; i++)
		EQ(pthread_join(t[i], NULL), 0);
	EQ(load_relaxed(&told), before);
}

static void late_callbacks(void)
{
	opened(0);
	EQ(recorder->close(&status), RECORDER_DONE);
	fire(RESOURCE(GRAPHNODE_CREATED));
	EQ(load_relaxed(&told), 0);
	opened(0);
	fire(RESOURCE(GRAPHNODE_CREATED));
	EQ(load_relaxed(&told), 1);
	/* Somebody else finalised: nothing is called, and a new window can be opened. */
	EQ(cuptiFinalize(), CUPTI_SUCCESS);
	recorder->forget();
	fire(RESOURCE(GRAPHNODE_CREATED));
	EQ(load_relaxed(&told), 1);
	EQ(counts().finalizes, 2);
	EQ(recorder->close(&status), RECORDER_BAD_CALL);
	opened(0);
	fire(RESOURCE(GRAPHNODE_CREATED));
	EQ(load_relaxed(&told), 2);
}

static void forked_child(void)
{
	int wstatus;
	pid_t pid;

	opened(0);
	pid = fork();
	if (pid == 0) {
		recorder->forget();
		fire(RESOURCE(GRAPHNODE_CREATED));
		EQ(load_relaxed(&told), 0);
		EQ(counts().finalizes, 0);
		_exit(0);
	}
	EQ(waitpid(pid, &wstatus, 0), pid);
	EQ(wstatus, 0);
	fire(RESOURCE(GRAPHNODE_CREATED));
	EQ(load_relaxed(&told), 1);
	EQ(recorder->close(&status), RECORDER_DONE);
}

/* ---- running them ---- */

#define FULL 1 /* the fake with everything, */
#define V1   2 /* without cuptiSubscribe_v2, */
#define BARE 4 /* without cuptiFinalize */

static const struct {
	const char *name;
	void (*run)(void);
	unsigned variants;
} tests[] = {
#define TEST(name, variants)          \
	{                             \
#name, name, variants \
	}
	TEST(other_abi, FULL),
	TEST(bad_calls, FULL | V1),
	TEST(only_graphs_are_enabled, FULL),
	TEST(launches_are_enabled_when_asked_for, FULL),
	TEST(six_windows, FULL | V1),
	TEST(host_says_no, FULL),
	TEST(another_subscriber, FULL | V1),
	TEST(refusals, FULL | V1),
	TEST(too_old, FULL),
	TEST(no_library, FULL),
	TEST(no_finalize, BARE),
	TEST(every_callback_is_translated, FULL),
	TEST(any_order, FULL),
	TEST(what_is_not_there, FULL),
	TEST(what_is_not_known, FULL),
	TEST(a_call_inside_a_callback, FULL),
	TEST(many_threads, FULL),
	TEST(closing_waits_for_an_event, FULL),
	TEST(closing_while_threads_fire, FULL),
	TEST(late_callbacks, FULL),
	TEST(forked_child, FULL),
};

static bool passes(void (*run)(void))
{
	int wstatus;
	pid_t pid = fork();

	if (pid == 0) {
		run();
		_exit(0);
	}
	return waitpid(pid, &wstatus, 0) == pid && wstatus == 0;
}

int main(int argc, char **argv)
{
	unsigned variant = argc < 3 ? 0 : *argv[2] == 'b' ? BARE : *argv[2] == 'v' ? V1 : FULL;
	void *lib = variant ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
	recorder_entry entry = lib ? (recorder_entry)dlsym(lib, RECORDER_SYMBOL) : NULL;
	unsigned n = 0, failed = 0;

	recorder = entry ? entry(RECORDER_ABI) : NULL;
	if (!recorder) {
		fprintf(stderr, "no recorder: %s\n", dlerror());
		return 1;
	}
	setvbuf(stdout, NULL, _IONBF, 0);
	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		bool ok = !(tests[i].variants & variant) || passes(tests[i].run);

		failed += !ok;
		if (tests[i].variants & variant)
			printf("%s %u - %s\n", ok ? "ok" : "not ok", ++n, tests[i].name);
	}
	printf("1..%u\n", n);
	return failed != 0;
}
