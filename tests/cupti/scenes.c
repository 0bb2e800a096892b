/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program does around the window, on the simulated driver: scenes SCENE. run_cupti.py says
 * what must come of it. Nothing here knows the library or CUPTI.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/victims/victim.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define HAVE_NVTX
#endif

#define MANY 600 /* replays of a small graph: more than any window stays open for */

static CUdeviceptr out, w;

static void start(void)
{
	out = dev_alloc("out", BIG);
	w = dev_alloc("w", BIG);
	poke(out, 0);
	poke(w, 1);
}

static CUgraphExec capture(void)
{
	CUgraphExec e;

	CAPTURE_EXEC(e, run_acc(out, w); run_acc(out, w));
	return e;
}

static void replay_often(CUgraphExec e, unsigned times)
{
	for (unsigned i = 0; i < times; i++) {
		CK(cuGraphLaunch(e, S));
		CK(cuStreamSynchronize(S));
	}
}

/* A server warms up: 50 batch sizes, each captured and tried once; then it serves. */
static void fifty(void)
{
	CUgraphExec e[50];

	start();
	for (unsigned i = 0; i < 50; i++) {
		e[i] = capture();
		replay_often(e[i], 1);
	}
	replay_often(e[49], MANY);
	replay_often(e[0], MANY);
	tell("out", peek(out));
}

/* And captures again, now and then. */
static void later(void)
{
	start();
	for (unsigned i = 0; i < 3; i++)
		replay_often(capture(), MANY);
	tell("out", peek(out));
}

/* It says so by NVTX: one window, whatever is replayed between. */
static void phase(void)
{
#ifdef HAVE_NVTX
	start();
	nvtxRangePushA("arena:capture");
	for (unsigned i = 0; i < 3; i++)
		replay_often(capture(), MANY);
	nvtxRangePop();
	replay_often(capture(), MANY);
	tell("out", peek(out));
#else
	victim_skip("no NVTX");
#endif
}

/* Nothing is captured in the end. */
static void phase_empty(void)
{
#ifdef HAVE_NVTX
	start();
	nvtxRangePushA("arena:capture");
	nvtxRangePop();
#else
	victim_skip("no NVTX");
#endif
}

static void only_eager(void)
{
	start();
	for (unsigned i = 0; i < MANY; i++)
		run_acc(out, w);
	settle();
	tell("out", peek(out));
}

/* It ends while a window is open. */
static void ends(void)
{
	start();
	replay_often(capture(), 1);
	tell("out", peek(out));
}

/* It ends in the middle of a capture. */
static void ends_capturing(void)
{
	start();
	CK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_RELAXED));
	run_acc(out, w);
}

static void *serve(void *arg)
{
	victim_thread_start();
	replay_often(*(CUgraphExec *)arg, MANY);
	return NULL;
}

static void *warm_up(void *arg)
{
	victim_thread_start();
	for (unsigned i = 0; i < 50; i++)
		replay_often(capture(), 1);
	return arg;
}

static void threads(void)
{
	pthread_t t[4];
	CUgraphExec e;

	start();
	e = capture();
	for (unsigned i = 0; i < 4; i++)
		MUST(!pthread_create(&t[i], NULL, i % 2 ? warm_up : serve, &e));
	for (unsigned i = 0; i < 4; i++)
		MUST(!pthread_join(t[i], NULL));
	replay_often(e, MANY); /* what they added up to is not defined */
}

/* A child inherits an open window, and is none of its business. */
static void forks(void)
{
	CUgraphExec e;
	int status;
	pid_t pid;

	start();
	e = capture();
	pid = fork();
	if (pid == 0)
		exit(0);
	MUST(waitpid(pid, &status, 0) == pid && status == 0);
	replay_often(e, MANY);
	tell("out", peek(out));
}

/* Nodes by hand, a clone, an edit, an update: everything that tells of nodes. */
static void edits(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphNode a, b, copy;
	CUgraph g, clone;
	CUgraphExec e;

	start();
	CK(cuGraphCreate(&g, 0));
	a = add_acc(g, NULL, out, w);
	b = add_acc(g, a, out, w);
	CK(cuGraphClone(&clone, g));
	CK(cuGraphNodeFindInClone(&copy, b, clone));
	CK(cuGraphDestroyNode(copy));
	e = instantiate(clone);
	replay_often(e, 1);
	CK(cuGraphDestroyNode(b));
	CK(cuGraphExecUpdate(e, g, &info));
	replay_often(e, MANY);
	CK(cuGraphExecDestroy(e));
	e = instantiate(g);
	CK(cuGraphDestroy(g));
	CK(cuGraphDestroy(clone));
	replay_often(e, MANY);
	tell("out", peek(out));
}

/* ---- what only CUPTI sees ---- */

/* A library that has the driver's functions from where no interposition reaches. */
static void *past(const char *symbol)
{
	void *(*entry)(const char *) = (void *(*)(const char *))dlsym(RTLD_DEFAULT, "sim_entry");

	if (!entry)
		victim_skip("only the simulated driver has a way past the library");
	return entry(symbol);
}

/* Its node reads memory that is gone when the graph is instantiated. */
static void unseen_node(void)
{
	__typeof__(&cuGraphAddKernelNode) add = (__typeof__(add))past("cuGraphAddKernelNode_v2");
	size_t n = N_INTS;
	CUDA_KERNEL_NODE_PARAMS p = {
		.func = victim_kernel("k_acc"),
		.gridDimX = 4,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 256,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = (void *[]){ &out, &w, &n },
	};
	CUgraphNode node;
	CUgraph g;

	start();
	CK(cuGraphCreate(&g, 0));
	CK(add(&node, g, NULL, 0, &p));
	dev_free(w);
	replay("E", instantiate(g));
}

/* The nodes were seen when they were made; the copy that is instantiated was not. */
static void unseen_clone(void)
{
	__typeof__(&cuGraphClone) clone = (__typeof__(clone))past("cuGraphClone");
	CUgraph g, copy;

	start();
	CK(cuGraphCreate(&g, 0));
	add_acc(g, NULL, out, w);
	dev_free(w);
	CK(clone(&copy, g));
	replay("E", instantiate(copy));
}

/* Nobody who is asked sees the exec made, or launched. */
static void unseen_exec(void)
{
	__typeof__(&cuGraphInstantiateWithFlags) make =
		(__typeof__(make))past("cuGraphInstantiateWithFlags");
	__typeof__(&cuGraphLaunch) run = (__typeof__(run))past("cuGraphLaunch");
	CUgraphExec e;
	CUgraph g;

	start();
	CAPTURE(g, run_acc(out, w));
	CK(make(&e, g, 0));
	CK(run(e, S));
	settle();
	tell("out", peek(out));
}

/* The driver refuses an exec past the library, so that its end is not told; a node comes next. */
static void refused_exec(void)
{
	__typeof__(&cuGraphInstantiateWithFlags) make =
		(__typeof__(make))past("cuGraphInstantiateWithFlags");
	CUgraph g, once;
	CUdeviceptr p;
	CUgraphExec e;

	start();
	CK(cuGraphCreate(&g, 0));
	CAPTURE(once, CK(cuMemAllocAsync(&p, BIG, S)); CK(cuMemFreeAsync(p, S)));
	instantiate(once);
	if (make(&e, once, 0) == CUDA_SUCCESS)
		victim_skip("the driver made a second exec of a graph that allocates");
	add_acc(g, NULL, out, w);
	replay("E", instantiate(g));
}

/* New parameters of a node that is copied then, and whose memory goes before it is instantiated. */
static void changes(void)
{
	CUdeviceptr other = dev_alloc("other", BIG);
	CUDA_KERNEL_NODE_PARAMS p;
	CUgraphNode node;
	CUgraph g, clone;

	start();
	CK(cuGraphCreate(&g, 0));
	node = add_acc(g, NULL, out, w);
	CK(cuGraphKernelNodeGetParams(node, &p));
	p.kernelParams = (void *[]){ p.kernelParams[0], &other, p.kernelParams[2] };
	CK(cuGraphKernelNodeSetParams(node, &p));
	CK(cuGraphClone(&clone, g));
	replay("E", instantiate(clone));
	dev_free(other);
	replay("F", instantiate(g));
}

/* A graph with a conditional node whose body only its maker was told. */
static CUgraphExec body(bool seen)
{
	__typeof__(&cuGraphAddNode) add =
		seen ? cuGraphAddNode : (__typeof__(add))past("cuGraphAddNode_v2");
	CUgraphNodeParams p = {
		.type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
		.conditional = { .type = CU_GRAPH_COND_TYPE_IF, .size = 1, .ctx = victim_context },
	};
	CUgraphNode node;
	CUgraph g;

	CK(cuGraphCreate(&g, 0));
	CK(cuGraphConditionalHandleCreate(&p.conditional.handle, g, victim_context, 1,
					  CU_GRAPH_COND_ASSIGN_DEFAULT));
	CK(add(&node, g, NULL, NULL, 0, &p));
	add_acc(p.conditional.phGraph_out[0], NULL, out, w);
	return instantiate(g);
}

/* A node that is added by a call, of more pieces than are looked at. */
static void cut(void)
{
	CUDA_MEMSET_NODE_PARAMS p = { .elementSize = 1, .height = 1 };
	size_t piece = 2 * MIB, pieces = 70;
	CUgraphNode node;
	CUgraph g;

	p.width = pieces * piece;
	p.dst = vmm_reserve("span", p.width, 0);
	for (size_t i = 0; i < pieces; i++)
		vmm_map(p.dst + i * piece, vmm_create(piece, false), piece);
	CK(cuGraphCreate(&g, 0));
	CK(cuGraphAddMemsetNode(&node, g, NULL, 0, &p, victim_context));
	instantiate(g);
}

static void unseen_body(void)
{
	CUgraphExec e;

	start();
	e = body(false);
	replay("E", e);
	dev_free(w);
	replay("E", e);
}

/* Seen by nobody the first time; from then on somebody looks. */
static void second_body(void)
{
	CUgraphExec e;

	start();
	replay("E", body(false));
	e = body(false);
	replay("F", e);
	dev_free(w);
	replay("F", e);
}

static void seen_body(void)
{
	start();
	replay("E", body(true));
}

VICTIM({ "cut", cut }, { "fifty", fifty }, { "later", later }, { "phase", phase },
       { "phase-empty", phase_empty }, { "only-eager", only_eager }, { "ends", ends },
       { "ends-capturing", ends_capturing }, { "threads", threads }, { "forks", forks },
       { "edits", edits }, { "unseen-node", unseen_node }, { "unseen-clone", unseen_clone },
       { "unseen-exec", unseen_exec }, { "refused-exec", refused_exec }, { "changes", changes },
       { "unseen-body", unseen_body }, { "second-body", second_body }, { "seen-body", seen_body });
