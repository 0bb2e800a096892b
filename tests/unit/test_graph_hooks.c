/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrappers of capture, templates, execs and launches between a driver and a core that only
 * write down what they were asked, in order. Lower case: the core; upper case: the driver.
 *
 * Graphs are small numbers 0x100, 0x200 ...; node n of a graph is graph + n.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "arena/block.h"
#include "arena/born.h"
#include "arena/device.h"
#include "arena/event.h"
#include "arena/scan.h"
#include "shim/coverage.h"
#include "shim/cupti.h"
#include "shim/hook_capture.h"
#include "shim/hooks.h"
#include "shim/nested.h"
#include "shim/params.h"
#include "shim/record.h"

static char trace[4096];

static __attribute__((format(printf, 1, 2))) void note(const char *format, ...)
{
	size_t used = strlen(trace);
	va_list ap;

	va_start(ap, format);
	vsnprintf(trace + used, sizeof(trace) - used, format, ap);
	va_end(ap);
}

static void expect(const char *what)
{
	cr_assert_str_eq(trace, what);
	trace[0] = '\0';
}

/* ---- the rest of the shim, and the core ---- */

_Atomic int shim_state = SHIM_ON;
counter_t coverage[COVERAGE_COUNT];
struct device_ops device;
_Atomic uint32_t ledger_undefined_count;
_Atomic uint64_t sync_now;
bool guard_refuses;
static bool stale;

bool shim_start(void)
{
	return false;
}

void block_window(bool open)
{
}

static unsigned captures_begun;

void born_capture_begins(void)
{
	captures_begun++;
}

void record_open_once(enum range_kind kind, uint64_t base, uint64_t size_bytes, uint64_t scope)
{
	note("range %s %lx+%lx; ", kind == RANGE_GRAPH ? "graph" : "?", base, size_bytes);
}

void ledger_written(uint64_t addr)
{
	note("written %lx; ", addr);
}

static void note_words(const struct node_desc *n)
{
	for (uint32_t i = 0; i < n->words_count; i++)
		note(" %lx", n->words[i].value);
	note("; ");
}

static uint64_t born[64];
static unsigned born_count;

bool birth_known(uint64_t graph, uint64_t node)
{
	for (unsigned i = 0; i < born_count; i++)
		if (born[i] == node)
			return true;
	return false;
}

void birth_record(const struct node_desc *n)
{
	cr_assert_lt(born_count, 64);
	born[born_count++] = n->node;
	note("birth %lx/%lx", n->graph, n->node);
	note_words(n);
}

void birth_copy(uint64_t from_graph, uint64_t from_node, uint64_t to_graph, uint64_t to_node)
{
	note("copy %lx->%lx; ", from_node, to_node);
}

struct birth *birth_detach_node(uint64_t node, struct birth *list)
{
	note("forget node %lx; ", node);
	return list;
}

struct birth *birth_detach_graph(uint64_t graph, struct birth *list)
{
	note("forget %lx; ", graph);
	return list;
}

void birth_attach(struct birth *list)
{
	note("back; ");
}

void birth_drop(struct birth *list)
{
}

static bool unknown, other_shape; /* the exec that is captured */

bool exec_replicate(uint64_t handle, struct exec_replica *out)
{
	return !unknown;
}

bool birth_replicate(struct exec_replica *r, const struct node_desc *n)
{
	if (other_shape)
		return false;
	note("inherit %lx/%lx", n->graph, n->node);
	note_words(n);
	return true;
}

void exec_replica_free(struct exec_replica *r)
{
}

/* ---- CUPTI; a window is open when witness_on says so ---- */

_Atomic bool witness_on, cupti_wanted;
bool cupti_alone;
_Thread_local unsigned cupti_told __attribute__((tls_model("initial-exec")));
static bool instantiating;

void cupti_begin_slow(void)
{
	note("begin; ");
}

void cupti_work_slow(void)
{
	note("work; ");
}

void cupti_needed(void)
{
	note("needed; ");
}

void cupti_launching_slow(CUgraphExec exec)
{
	note("launching %lx; ", (uint64_t)exec);
}

void cupti_compare(CUgraphExec exec, CUgraph graph, const struct exec_builder *b)
{
	if (load_relaxed(&witness_on))
		note("compare %lx with %lx; ", (uint64_t)exec, (uint64_t)graph);
}

uint64_t cupti_body(CUgraphNode node, uint32_t index)
{
	return 0;
}

void witness_node(const struct node_desc *n)
{
	note("told %lx/%lx; ", n->graph, n->node);
}

bool exec_build_unborn(const struct exec_builder *b)
{
	return false;
}

void witness_changed(uint64_t node)
{
	note("changed %lx; ", node);
}

void witness_expect_graph(bool on)
{
	if (load_relaxed(&witness_on))
		note(on ? "expect; " : "expected; ");
}

void witness_exec_begin(bool framed)
{
	instantiating = true;
}

bool witness_exec_end(bool framed)
{
	instantiating = false;
	return true;
}

bool witness_in_exec(void)
{
	return instantiating;
}

/* Memory in pieces of 4 KiB, from A on. */
static uint64_t pieces_end;

bool ledger_find(uint64_t addr, struct range_view *out)
{
	if (addr < UINT64_C(0x7f0000001000) || addr >= pieces_end)
		return false;
	*out = (struct range_view){ .base = addr & ~UINT64_C(0xfff), .size_bytes = 0x1000 };
	return true;
}

bool ledger_refer(uint64_t addr, struct range_view *out)
{
	return ledger_find(addr, out);
}

struct exec_builder {
	int unused;
};
static struct exec_builder the_builder;

struct exec_builder *exec_build_begin(void)
{
	return &the_builder;
}

void exec_build_node(struct exec_builder *b, const struct node_desc *n)
{
	static const char kinds[] = "KcshgafboX";

	cr_assert_eq(b, &the_builder);
	note("%u:%c%lx", n->depth, kinds[n->kind], n->node);
	note_words(n);
}

void exec_build_owns(struct exec_builder *b, uint64_t base)
{
	note("owns %lx; ", base);
}

void exec_build_frees(struct exec_builder *b, uint64_t base)
{
	note("frees %lx; ", base);
}

bool scan_wanted;

struct scan_result scan_exec(uint64_t handle)
{
	note("scan %lx; ", (unsigned long)handle);
	return (struct scan_result){ .skipped = true, .cut = true };
}

void exec_open(uint64_t handle, uint64_t context, struct exec_builder *b)
{
	cr_assert_eq(b, &the_builder);
	note("open %lx in %lx; ", handle, context);
}

void exec_close(uint64_t handle)
{
	note("close %lx; ", handle);
}

static bool unpaired;

bool exec_update(uint64_t handle, struct exec_builder *b)
{
	note("update %lx; ", handle);
	return !unpaired;
}

void exec_set_node(uint64_t handle, const struct node_desc *n)
{
	note("set %lx/%lx", handle, n->node);
	note_words(n);
}

void exec_set_child(uint64_t handle, uint64_t node, struct exec_builder *b)
{
	note("set child %lx/%lx; ", handle, node);
}

void exec_set_enabled(uint64_t handle, uint64_t node, bool enabled)
{
	note("%s %lx/%lx; ", enabled ? "enable" : "disable", handle, node);
}

struct exec *exec_find(uint64_t handle)
{
	static struct exec e;

	store_relaxed(&e.mark, stale ? 1 : 0);
	note("judge %lx; ", handle);
	return unknown ? NULL : &e;
}

bool guard_launch_slow(struct exec *e, uint64_t stream, uint32_t stack)
{
	return !guard_refuses;
}

uint64_t sync_thread_key(void)
{
	return 0x7000;
}

bool guard_launch_unknown(uint64_t handle)
{
	return true;
}

/* ---- the driver ---- */

#define KERNEL	  0xf000u /* one pointer */
#define NODES_MAX 4

struct graph {
	CUgraphNodeParams nodes[NODES_MAX];
	size_t count;
};
static struct graph graphs[16];
static void *arg_of[16][NODES_MAX]; /* the kernels' one argument */
static void *args_of[16][NODES_MAX];
static uint64_t capturing;     /* the graph, 0: the stream does not capture */
static CUresult answer;	       /* of every call that can fail here */
static CUresult kernel_answer; /* of the kernel getter */
static unsigned last_inside;

static struct graph *graph_at(uint64_t g)
{
	return &graphs[g >> 8];
}

static CUgraphNodeParams *node_at(CUgraphNode n)
{
	return &graph_at((uint64_t)n)->nodes[(uint64_t)n & 0xff];
}

static CUgraphNode add(uint64_t g, CUgraphNodeType type)
{
	struct graph *to = graph_at(g);

	cr_assert_lt(to->count, NODES_MAX);
	to->nodes[to->count].type = type;
	return (CUgraphNode)(g + to->count++);
}

static CUgraphNode add_kernel(uint64_t g, uint64_t argument)
{
	CUgraphNode n = add(g, CU_GRAPH_NODE_TYPE_KERNEL);
	void **arg = &arg_of[g >> 8][(uint64_t)n & 0xff];
	void **args = &args_of[g >> 8][(uint64_t)n & 0xff];

	*arg = (void *)argument;
	*args = arg;
	node_at(n)->kernel.func = (CUfunction)KERNEL;
	node_at(n)->kernel.kernelParams = args;
	return n;
}

static CUgraphNode add_child(uint64_t g, uint64_t inner)
{
	CUgraphNode n = add(g, CU_GRAPH_NODE_TYPE_GRAPH);

	node_at(n)->graph.graph = (CUgraph)inner;
	return n;
}

static CUresult driver_count(CUfunction f, size_t *count)
{
	return CUDA_ERROR_NOT_FOUND;
}

static CUresult driver_param(CUfunction f, size_t i, size_t *offset, size_t *size_bytes)
{
	*offset = 0;
	*size_bytes = 8;
	return i == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult driver_name(const char **name, CUfunction f)
{
	*name = "kernel";
	return CUDA_SUCCESS;
}

static CUresult driver_nodes(CUgraph g, CUgraphNode *nodes, size_t *count)
{
	const struct graph *from = graph_at((uint64_t)g);

	last_inside = shim_inside;
	errno = EXDEV; /* own calls must not show */
	for (size_t i = 0; nodes && i < *count && i < from->count; i++)
		nodes[i] = (CUgraphNode)((uint64_t)g + i);
	*count = from->count;
	return CUDA_SUCCESS;
}

static CUresult driver_type(CUgraphNode n, CUgraphNodeType *type)
{
	*type = node_at(n)->type;
	return CUDA_SUCCESS;
}

static CUresult driver_kernel(CUgraphNode n, CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
	p->func = node_at(n)->kernel.func;
	p->kernelParams = node_at(n)->kernel.kernelParams;
	return kernel_answer;
}

static CUresult driver_copy(CUgraphNode n, CUDA_MEMCPY3D *p)
{
	*p = node_at(n)->memcpy.copyParams;
	return CUDA_SUCCESS;
}

static CUresult driver_alloc(CUgraphNode n, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	p->dptr = node_at(n)->alloc.dptr;
	p->bytesize = node_at(n)->alloc.bytesize;
	return CUDA_SUCCESS;
}

static CUresult driver_fill(CUgraphNode n, CUDA_MEMSET_NODE_PARAMS *p)
{
	const CUDA_MEMSET_NODE_PARAMS_v2 *from = &node_at(n)->memset;

	*p = (CUDA_MEMSET_NODE_PARAMS){ .dst = from->dst,
					.pitch = from->pitch,
					.elementSize = from->elementSize,
					.width = from->width,
					.height = from->height };
	return CUDA_SUCCESS;
}

static CUresult driver_free(CUgraphNode n, CUdeviceptr *dptr)
{
	*dptr = node_at(n)->free.dptr;
	return CUDA_SUCCESS;
}

static CUresult driver_inner(CUgraphNode n, CUgraph *g)
{
	*g = node_at(n)->graph.graph;
	return CUDA_SUCCESS;
}

static CUresult driver_in_clone(CUgraphNode *out, CUgraphNode n, CUgraph clone)
{
	*out = (CUgraphNode)((uint64_t)clone + ((uint64_t)n & 0xff));
	return CUDA_SUCCESS;
}

static CUresult driver_capture_info(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id,
				    CUgraph *g, const CUgraphNode **nodes,
				    const CUgraphEdgeData **edges, size_t *count)
{
	static CUgraphNode last;

	errno = EXDEV;
	*status = capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	*id = capturing;
	*g = (CUgraph)capturing;
	*count = capturing && graph_at(capturing)->count ? 1 : 0;
	last = (CUgraphNode)(capturing + graph_at(capturing)->count - 1);
	*nodes = &last;
	return CUDA_SUCCESS;
}

static CUresult driver_is_capturing(CUstream s, CUstreamCaptureStatus *status)
{
	*status = capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

static CUresult driver_begin(CUstream s, CUstreamCaptureMode mode)
{
	note("BEGIN; ");
	if (answer == CUDA_SUCCESS)
		capturing = 0x100;
	return answer;
}

static CUresult driver_end(CUstream s, CUgraph *g)
{
	note("END; ");
	if (answer == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
		return answer;
	if (g)
		*g = (CUgraph)capturing;
	capturing = 0;
	return answer;
}

static CUresult driver_launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
			      unsigned by, unsigned bz, unsigned shared, CUstream s, void **params,
			      void **extra)
{
	note("LAUNCH; ");
	if (capturing && answer == CUDA_SUCCESS)
		add_kernel(capturing, *(uint64_t *)params[0]);
	return answer;
}

static CUresult driver_graph_launch(CUgraphExec e, CUstream s)
{
	note("REPLAY; ");
	if (capturing)
		add_child(capturing, 0x300);
	return answer;
}

static CUresult driver_context(CUcontext *context)
{
	errno = EXDEV;
	*context = (CUcontext)0xc0;
	return CUDA_SUCCESS;
}

static uint64_t stream_context = 0xc0;

static CUresult driver_stream_context(CUstream s, CUcontext *context)
{
	*context = (CUcontext)stream_context;
	return CUDA_SUCCESS;
}

static CUresult driver_device(CUdevice *ordinal)
{
	*ordinal = 3;
	return CUDA_SUCCESS;
}

static CUresult driver_instantiate(CUgraphExec *e, CUgraph g, unsigned long long flags)
{
	note("INSTANTIATE; ");
	errno = ENOTTY;
	if (answer == CUDA_SUCCESS)
		*e = (CUgraphExec)0xe;
	return answer;
}

static CUresult driver_exec_destroy(CUgraphExec e)
{
	note("DESTROY; ");
	return answer;
}

static CUresult driver_exec_update(CUgraphExec e, CUgraph g, CUgraphExecUpdateResultInfo *info)
{
	return answer;
}

static CUresult driver_exec_kernel(CUgraphExec e, CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS *p)
{
	return answer;
}

static CUresult driver_exec_fill(CUgraphExec e, CUgraphNode n, const CUDA_MEMSET_NODE_PARAMS *p,
				 CUcontext context)
{
	return answer;
}

static CUresult driver_exec_child(CUgraphExec e, CUgraphNode n, CUgraph g)
{
	return answer;
}

static CUresult driver_enabled(CUgraphExec e, CUgraphNode n, unsigned enabled)
{
	return answer;
}

static CUresult driver_add_child(CUgraphNode *n, CUgraph g, const CUgraphNode *deps, size_t count,
				 CUgraph child)
{
	if (answer == CUDA_SUCCESS)
		*n = add_child((uint64_t)g, 0x500);
	return answer;
}

static CUresult driver_add(CUgraphNode *n, CUgraph g, const CUgraphNode *deps,
			   const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *p)
{
	static CUgraph bodies[2] = { (CUgraph)0x600, (CUgraph)0x700 };

	if (answer != CUDA_SUCCESS)
		return answer;
	*n = add((uint64_t)g, p->type);
	if (p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		p->conditional.phGraph_out = bodies;
	else
		*node_at(*n) = *p;
	return answer;
}

static CUresult driver_clone(CUgraph *clone, CUgraph g)
{
	*clone = (CUgraph)0x400;
	graphs[4] = *graph_at((uint64_t)g);
	return answer;
}

static CUresult driver_destroy(CUgraph g)
{
	note("DESTROY; ");
	return answer;
}

static CUresult driver_destroy_node(CUgraphNode n)
{
	note("DESTROY; ");
	return answer;
}

struct real_driver real = {
	.cuCtxGetCurrent = driver_context,
	.cuCtxGetDevice = driver_device,
	.cuFuncGetName = driver_name,
	.cuFuncGetParamCount = driver_count,
	.cuFuncGetParamInfo = driver_param,
	.cuGraphAddChildGraphNode = driver_add_child,
	.cuGraphAddNode_v2 = driver_add,
	.cuGraphChildGraphNodeGetGraph = driver_inner,
	.cuGraphClone = driver_clone,
	.cuGraphDestroy = driver_destroy,
	.cuGraphDestroyNode = driver_destroy_node,
	.cuGraphExecChildGraphNodeSetParams = driver_exec_child,
	.cuGraphExecDestroy = driver_exec_destroy,
	.cuGraphExecKernelNodeSetParams_v2 = driver_exec_kernel,
	.cuGraphExecMemsetNodeSetParams = driver_exec_fill,
	.cuGraphExecUpdate_v2 = driver_exec_update,
	.cuGraphGetNodes = driver_nodes,
	.cuGraphInstantiateWithFlags = driver_instantiate,
	.cuGraphKernelNodeGetParams_v2 = driver_kernel,
	.cuGraphLaunch = driver_graph_launch,
	.cuGraphMemAllocNodeGetParams = driver_alloc,
	.cuGraphMemFreeNodeGetParams = driver_free,
	.cuGraphMemcpyNodeGetParams = driver_copy,
	.cuGraphMemsetNodeGetParams = driver_fill,
	.cuGraphNodeFindInClone = driver_in_clone,
	.cuGraphNodeGetType = driver_type,
	.cuGraphNodeSetEnabled = driver_enabled,
	.cuLaunchKernel = driver_launch,
	.cuStreamBeginCapture_v2 = driver_begin,
	.cuStreamEndCapture = driver_end,
	.cuStreamGetCaptureInfo_v3 = driver_capture_info,
	.cuStreamGetCtx = driver_stream_context,
	.cuStreamIsCapturing = driver_is_capturing,
};

/* ---- words of the stories ---- */

#define STREAM ((CUstream)0x50)
#define A      UINT64_C(0x7f0000001000)
#define B      UINT64_C(0x7f0000002000)

static CUresult launch(uint64_t argument)
{
	void *params[] = { &argument };

	return cuLaunchKernel((CUfunction)KERNEL, 1, 1, 1, 1, 1, 1, 0, STREAM, params, NULL);
}

static void begin(void)
{
	cuStreamBeginCapture_v2(STREAM, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static unsigned counted(enum coverage_id id)
{
	return (unsigned)load_relaxed(&coverage[id]);
}

/* ---- capture ---- */

Test(capture, a_launch_is_read_from_the_node_it_became)
{
	CUgraph g;

	begin();
	expect("BEGIN; forget 100; ");
	cr_assert_eq(load_relaxed(&captures_active), 1);
	cr_assert_eq(captures_begun, 1);
	launch(A);
	expect("LAUNCH; birth 100/100 7f0000001000; ");
	launch(B);
	expect("LAUNCH; birth 100/101 7f0000002000; ");
	cuStreamEndCapture(STREAM, &g);
	cr_assert_eq(load_relaxed(&captures_active), 0);
	trace[0] = '\0';
	launch(A);
	expect("LAUNCH; ");
}

Test(capture, is_of_the_device_that_it_began_on)
{
	CUgraph g;

	cr_assert(!capture_here(3));
	begin();
	cr_assert(capture_here(3) && capture_here(-1));
	cr_assert(!capture_here(2));
	cuStreamEndCapture(STREAM, &g);
	cr_assert(!capture_here(3) && !capture_here(-1));
	/* On a stream of another context nobody knows. */
	stream_context = 0xc1;
	begin();
	cr_assert(capture_here(3) && capture_here(2));
}

Test(capture, what_no_wrapper_saw_is_read_at_its_end)
{
	CUgraph g;

	begin();
	launch(A);
	add_kernel(0x100, B);
	trace[0] = '\0';
	cuStreamEndCapture(STREAM, &g);
	expect("END; birth 100/101 7f0000002000; needed; ");
}

Test(capture, a_call_that_added_nothing_is_not_taken_for_the_one_before)
{
	begin();
	launch(A);
	trace[0] = '\0';
	cr_assert(capture_note(0x50));
	expect("");
}

Test(capture, a_refused_launch_is_not_read)
{
	begin();
	trace[0] = '\0';
	answer = CUDA_ERROR_INVALID_VALUE;
	cr_assert_eq(launch(A), CUDA_ERROR_INVALID_VALUE);
	expect("LAUNCH; ");
}

Test(capture, one_that_is_invalid_ends_and_is_forgotten)
{
	CUgraph g = NULL;

	begin();
	trace[0] = '\0';
	answer = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	cr_assert_eq(cuStreamEndCapture(STREAM, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	expect("END; forget 100; ");
	cr_assert_eq(load_relaxed(&captures_active), 0);
}

Test(capture, one_that_this_thread_may_not_end_goes_on)
{
	CUgraph g = NULL;

	begin();
	trace[0] = '\0';
	answer = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	cuStreamEndCapture(STREAM, &g);
	expect("END; ");
	cr_assert_eq(load_relaxed(&captures_active), 1);
	answer = CUDA_SUCCESS;
	cuStreamEndCapture(STREAM, NULL);
	cr_assert_eq(load_relaxed(&captures_active), 0);
}

Test(capture, one_that_did_not_begin_is_not_counted)
{
	answer = CUDA_ERROR_ILLEGAL_STATE;
	begin();
	cr_assert_eq(load_relaxed(&captures_active), 0);
	cuStreamEndCapture(STREAM, NULL);
	cr_assert_eq(load_relaxed(&captures_active), 0);
}

Test(capture, a_destroyed_stream_takes_its_capture_along)
{
	begin();
	capture_stream_gone(0x51);
	cr_assert_eq(load_relaxed(&captures_active), 1);
	capture_stream_gone(0x50);
	cr_assert_eq(load_relaxed(&captures_active), 0);
}

Test(capture, the_legacy_stream_is_never_asked)
{
	begin();
	cr_assert_not(capture_active_on(STREAM_LEGACY(NULL)));
	cr_assert(capture_active_on(STREAM_PER_THREAD(NULL)));
}

Test(capture, a_captured_graph_launch_is_not_judged)
{
	add_kernel(0x300, A);
	begin();
	trace[0] = '\0';
	stale = guard_refuses = true;
	cr_assert_eq(cuGraphLaunch((CUgraphExec)0xe, STREAM), CUDA_SUCCESS);
	expect("REPLAY; birth 100/100; inherit 300/300 7f0000001000; ");
	cr_assert_eq(nested_get(0x100, 0x100, 0), 0x300);
	cuStreamEndCapture(STREAM, NULL);
}

Test(capture, a_captured_exec_that_is_not_known_is_read_and_counted)
{
	add_kernel(0x300, A);
	begin();
	trace[0] = '\0';
	unknown = true;
	cuGraphLaunch((CUgraphExec)0xe, STREAM);
	expect("REPLAY; birth 100/100; birth 300/300 7f0000001000; ");
	cr_assert_eq(counted(COVERAGE_UNKNOWN_EXEC), 1);
}

Test(capture, a_captured_exec_of_another_shape_is_read_and_counted)
{
	add_kernel(0x300, A);
	add_kernel(0x300, B);
	begin();
	trace[0] = '\0';
	other_shape = true;
	cuGraphLaunch((CUgraphExec)0xe, STREAM);
	expect("REPLAY; birth 100/100; birth 300/300 7f0000001000; birth 300/301 7f0000002000; ");
	cr_assert_eq(counted(COVERAGE_UPDATE_PAIRING), 1);
}

/* The last node of one stream is not the newest of the graph. */
Test(capture, a_call_that_added_nothing_does_not_read_an_older_node_again)
{
	begin();
	launch(A);
	launch(B);
	graphs[1].count = 1;
	trace[0] = '\0';
	cr_assert(capture_note(0x50));
	expect("");
}

/* ---- templates ---- */

Test(template, a_child_takes_over_what_its_original_meant)
{
	CUgraphNode n;

	add_kernel(0x200, A);
	add_kernel(0x500, A);
	cuGraphAddChildGraphNode(&n, (CUgraph)0x100, NULL, 0, (CUgraph)0x200);
	expect("birth 100/100; copy 200->500; ");
	cuGraphDestroy((CUgraph)0x100);
	expect("forget 500; forget 100; DESTROY; ");
}

Test(template, one_that_is_not_destroyed_keeps_what_it_meant)
{
	nested_add(0x100, 0x101, 0x500);
	nested_add(0x100, 0x101, 0x600);
	answer = CUDA_ERROR_NOT_SUPPORTED;
	cuGraphDestroy((CUgraph)0x100);
	expect("forget 500; forget 600; forget 100; DESTROY; back; ");
	cuGraphDestroyNode((CUgraphNode)0x101);
	expect("forget 500; forget 600; forget node 101; DESTROY; back; ");
	cr_assert_eq(nested_get(0x100, 0x101, 0), 0x500);
	cr_assert_eq(nested_get(0x100, 0x101, 1), 0x600);
}

Test(template, a_child_of_another_shape_takes_over_nothing)
{
	CUgraphNode n;

	add_kernel(0x200, A);
	add_kernel(0x200, B);
	add_kernel(0x500, A);
	cuGraphAddChildGraphNode(&n, (CUgraph)0x100, NULL, 0, (CUgraph)0x200);
	expect("birth 100/100; ");
}

Test(template, a_child_that_moved_in_keeps_its_births)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
	CUgraphNode n;

	add_kernel(0x200, A);
	p.graph.graph = (CUgraph)0x200;
	cuGraphAddNode_v2(&n, (CUgraph)0x100, NULL, NULL, 0, &p);
	expect("birth 100/100; ");
	cr_assert_eq(nested_get(0x100, 0x100, 0), 0x200);
}

Test(template, a_clone_means_what_its_original_meant)
{
	CUgraph clone;

	add_kernel(0x100, A);
	add_kernel(0x100, B);
	cuGraphClone(&clone, (CUgraph)0x100);
	expect("copy 100->400; copy 101->401; ");
}

Test(template, a_call_that_fails_changes_nothing)
{
	CUgraphNode n;

	answer = CUDA_ERROR_INVALID_VALUE;
	cuGraphAddNode_v2(NULL, NULL, NULL, NULL, 0, NULL);
	cuGraphAddChildGraphNode(&n, NULL, NULL, 0, NULL);
	expect("");
}

/* ---- execs ---- */

Test(exec, the_walk_goes_depth_first_through_children_and_bodies)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	CUgraphExec e;
	CUgraphNode n;

	p.conditional.size = 2;
	add_kernel(0x100, A);
	add_child(0x100, 0x200);
	cuGraphAddNode_v2(&n, (CUgraph)0x100, NULL, NULL, 0, &p);
	add(0x100, CU_GRAPH_NODE_TYPE_HOST);
	add_kernel(0x200, B);
	add_kernel(0x700, B);
	expect("");
	errno = 0;
	cuGraphInstantiateWithFlags(&e, (CUgraph)0x100, 0);
	cr_assert_eq(errno, ENOTTY, "errno is what the driver left");
	expect("INSTANTIATE; 0:K100 7f0000001000; 0:g101; 1:K200 7f0000002000; 0:o102; "
	       "1:K700 7f0000002000; 0:h103; open e in c0; ");
	cr_assert_eq(last_inside, 1);
	cr_assert_eq(shim_inside, 0);
	cr_assert_eq(counted(COVERAGE_HOST_NODE), 1);
	cr_assert_eq(counted(COVERAGE_BODY_UNREACHED), 0);
	cr_assert_eq(counted(COVERAGE_DEVICE_LAUNCH), 0);
}

Test(exec, what_is_not_reached_is_counted)
{
	CUgraphExec e;

	add(0x100, CU_GRAPH_NODE_TYPE_CONDITIONAL);
	add(0x100, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT);
	add(0x100, CU_GRAPH_NODE_TYPE_EMPTY);
	cuGraphInstantiateWithFlags(&e, (CUgraph)0x100, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
	expect("INSTANTIATE; 0:o100; needed; 0:X101; 0:X102; open e in c0; ");
	cr_assert_eq(counted(COVERAGE_BODY_UNREACHED), 1);
	cr_assert_eq(counted(COVERAGE_NODE_KIND), 1);
	cr_assert_eq(counted(COVERAGE_DEVICE_LAUNCH), 1);
}

Test(exec, a_node_that_the_driver_does_not_describe_keeps_its_place)
{
	CUgraphExec e;

	add_kernel(0x100, A);
	kernel_answer = CUDA_ERROR_UNKNOWN;
	cr_assert_eq(cuGraphInstantiateWithFlags(&e, (CUgraph)0x100, 0), CUDA_SUCCESS);
	expect("INSTANTIATE; 0:X100; open e in c0; ");
	cr_assert_eq(counted(COVERAGE_WALK_FAILED), 1);
}

Test(exec, copies_have_a_word_for_each_side)
{
	CUDA_MEMCPY3D *c = &node_at(add(0x100, CU_GRAPH_NODE_TYPE_MEMCPY))->memcpy.copyParams;
	CUgraphExec e;

	*c = (CUDA_MEMCPY3D){
		.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = (void *)0x11000,
		.srcPitch = 0x100,
		.srcY = 2,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = A,
		.dstXInBytes = 8,
		.WidthInBytes = 4,
		.Height = 1,
		.Depth = 1,
	};
	cuGraphInstantiateWithFlags(&e, (CUgraph)0x100, 0);
	expect("INSTANTIATE; 0:c100 11200 7f0000001008; open e in c0; ");
	cr_assert_eq(counted(COVERAGE_NODE_KIND), 0);
}

Test(exec, a_side_that_is_an_array_is_counted)
{
	CUDA_MEMCPY3D *c = &node_at(add(0x100, CU_GRAPH_NODE_TYPE_MEMCPY))->memcpy.copyParams;
	CUgraphExec e;

	*c = (CUDA_MEMCPY3D){
		.srcMemoryType = CU_MEMORYTYPE_ARRAY,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = A,
		.WidthInBytes = 4,
		.Height = 1,
		.Depth = 1,
	};
	cuGraphInstantiateWithFlags(&e, (CUgraph)0x100, 0);
	expect("INSTANTIATE; 0:c100 7f0000001000; open e in c0; ");
	cr_assert_eq(counted(COVERAGE_NODE_KIND), 1);
}

Test(exec, copies_have_a_word_for_each_piece_that_they_touch)
{
	CUDA_MEMCPY3D *c = &node_at(add(0x100, CU_GRAPH_NODE_TYPE_MEMCPY))->memcpy.copyParams;
	CUgraphExec e;

	pieces_end = A + 0x3000;
	*c = (CUDA_MEMCPY3D){
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = A + 8,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = (void *)0x11000,
		.WidthInBytes = 0x2000,
		.Height = 1,
		.Depth = 1,
	};
	cuGraphInstantiateWithFlags(&e, (CUgraph)0x100, 0);
	expect("INSTANTIATE; 0:c100 7f0000001008 7f0000002000 7f0000003000 11000; open e in c0; ");
}

/* What lies between the rows is not touched. */
Test(exec, fills_have_a_word_for_each_piece_that_a_row_touches)
{
	CUDA_MEMSET_NODE_PARAMS_v2 *f = &node_at(add(0x100, CU_GRAPH_NODE_TYPE_MEMSET))->memset;
	CUgraphExec e;

	pieces_end = A + 0x10000;
	*f = (CUDA_MEMSET_NODE_PARAMS_v2){
		.dst = A + 16, .pitch = 0x3000, .elementSize = 4, .width = 4, .height = 3
	};
	cuGraphInstantiateWithFlags(&e, (CUgraph)0x100, 0);
	expect("INSTANTIATE; 0:s100 7f0000001010 7f0000004010 7f0000007010; open e in c0; ");
	f->height = 1;
	f->width = 0x3000 / 4;
	cuGraphInstantiateWithFlags(&e, (CUgraph)0x100, 0);
	expect("INSTANTIATE; 0:s100 7f0000001010 7f0000002000 7f0000003000 7f0000004000; "
	       "open e in c0; ");
}

Test(exec, pieces_beyond_the_limit_are_counted)
{
	CUDA_MEMSET_NODE_PARAMS set = { .dst = A, .elementSize = 1, .height = 1 };

	pieces_end = A + 0x100000;
	set.width = 64 * 0x1000;
	cuGraphExecMemsetNodeSetParams((CUgraphExec)0xe, (CUgraphNode)0x100, &set, NULL);
	cr_assert_eq(counted(COVERAGE_EXTENT_CUT), 0);
	set.width++;
	cuGraphExecMemsetNodeSetParams((CUgraphExec)0xe, (CUgraphNode)0x100, &set, NULL);
	cr_assert_eq(counted(COVERAGE_EXTENT_CUT), 1);
}

Test(exec, memory_of_allocation_nodes_is_the_execs_own)
{
	CUgraphNode n = add(0x100, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	CUgraphExec e;

	node_at(n)->alloc.dptr = A;
	node_at(n)->alloc.bytesize = 0x200;
	cuGraphInstantiateWithFlags(&e, (CUgraph)0x100, 0);
	expect("INSTANTIATE; 0:a100; range graph 7f0000001000+200; owns 7f0000001000; "
	       "open e in c0; ");
}

Test(exec, free_nodes_are_told)
{
	CUgraphExec e;

	node_at(add(0x100, CU_GRAPH_NODE_TYPE_MEM_FREE))->free.dptr = A;
	cuGraphInstantiateWithFlags(&e, (CUgraph)0x100, 0);
	expect("INSTANTIATE; 0:f100; frees 7f0000001000; open e in c0; ");
}

Test(exec, is_closed_before_it_is_destroyed)
{
	cuGraphExecDestroy((CUgraphExec)0xe);
	expect("close e; DESTROY; ");
}

Test(exec, follows_what_succeeds)
{
	uint64_t argument = B;
	void *params[] = { &argument };
	CUDA_KERNEL_NODE_PARAMS p = { .func = (CUfunction)KERNEL, .kernelParams = params };

	add_kernel(0x200, A);
	cuGraphExecUpdate_v2((CUgraphExec)0xe, (CUgraph)0x200, NULL);
	expect("0:K200 7f0000001000; update e; ");
	cr_assert_eq(counted(COVERAGE_UPDATE_PAIRING), 0);
	unpaired = true;
	cuGraphExecUpdate_v2((CUgraphExec)0xe, (CUgraph)0x200, NULL);
	expect("0:K200 7f0000001000; update e; ");
	cr_assert_eq(counted(COVERAGE_UPDATE_PAIRING), 1);
	cuGraphExecKernelNodeSetParams_v2((CUgraphExec)0xe, (CUgraphNode)0x100, &p);
	expect("set e/100 7f0000002000; ");
	cuGraphExecChildGraphNodeSetParams((CUgraphExec)0xe, (CUgraphNode)0x100, (CUgraph)0x200);
	expect("0:K200 7f0000001000; set child e/100; ");
	cuGraphNodeSetEnabled((CUgraphExec)0xe, (CUgraphNode)0x100, 0);
	expect("disable e/100; ");
}

Test(exec, is_looked_behind_when_it_is_whole)
{
	CUgraphExec e = NULL;

	scan_wanted = true;
	add_kernel(0x200, A);
	cuGraphInstantiateWithFlags(&e, (CUgraph)0x200, 0);
	expect("INSTANTIATE; 0:K200 7f0000001000; open e in c0; scan e; ");
	cr_assert_eq(counted(COVERAGE_SCAN_SKIPPED), 1);
	cr_assert_eq(counted(COVERAGE_SCAN_CUT), 1);
	cuGraphExecUpdate_v2((CUgraphExec)0xe, (CUgraph)0x200, NULL);
	expect("0:K200 7f0000001000; update e; scan e; ");
	answer = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	cuGraphExecUpdate_v2((CUgraphExec)0xe, (CUgraph)0x200, NULL);
	expect("");
}

Test(exec, does_not_follow_what_fails)
{
	CUgraphExec e = NULL;

	answer = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	cuGraphInstantiateWithFlags(NULL, NULL, 0);
	cuGraphInstantiateWithFlags(&e, NULL, 0);
	expect("INSTANTIATE; INSTANTIATE; ");
	cuGraphExecUpdate_v2((CUgraphExec)0xe, NULL, NULL);
	cuGraphExecKernelNodeSetParams_v2((CUgraphExec)0xe, NULL, NULL);
	cuGraphExecChildGraphNodeSetParams((CUgraphExec)0xe, NULL, NULL);
	cuGraphNodeSetEnabled((CUgraphExec)0xe, NULL, 0);
	expect("");
}

/* ---- launches ---- */

Test(launch, a_graph_is_judged_before_the_driver_sees_it)
{
	cr_assert_eq(cuGraphLaunch((CUgraphExec)0xe, STREAM), CUDA_SUCCESS);
	expect("judge e; REPLAY; ");
	stale = true;
	cr_assert_eq(cuGraphLaunch((CUgraphExec)0xe, STREAM), CUDA_SUCCESS);
	expect("judge e; REPLAY; ");
	guard_refuses = true;
	cr_assert_eq(cuGraphLaunch((CUgraphExec)0xe, STREAM), CUDA_ERROR_ILLEGAL_STATE);
	expect("judge e; ");
}

Test(launch, of_an_exec_that_is_not_known_is_counted_if_it_was_launched)
{
	unknown = true;
	answer = CUDA_ERROR_INVALID_VALUE;
	cuGraphLaunch((CUgraphExec)0xe, STREAM);
	cr_assert_eq(counted(COVERAGE_UNKNOWN_EXEC), 0);
	answer = CUDA_SUCCESS;
	cuGraphLaunch((CUgraphExec)0xe, STREAM);
	cr_assert_eq(counted(COVERAGE_UNKNOWN_EXEC), 1);
}

Test(launch, writes_what_was_undefined)
{
	store_relaxed(&ledger_undefined_count, 1);
	launch(A);
	expect("LAUNCH; written 7f0000001000; ");
	begin(); /* a captured launch writes nothing yet */
	trace[0] = '\0';
	launch(A);
	expect("LAUNCH; birth 100/100 7f0000001000; ");
}

Test(launch, nothing_happens_inside_or_while_the_shim_is_off)
{
	CUgraphExec e;

	shim_inside = 1;
	cuGraphInstantiateWithFlags(&e, (CUgraph)0x100, 0);
	cuGraphLaunch(e, STREAM);
	shim_inside = 0;
	expect("INSTANTIATE; REPLAY; ");
	begin();
	trace[0] = '\0';
	shim_inside = 1;
	launch(A);
	shim_inside = 0;
	expect("LAUNCH; ");
	store_relaxed(&shim_state, SHIM_OFF);
	begin();
	launch(A);
	cuStreamEndCapture(STREAM, NULL);
	cuGraphDestroy((CUgraph)0x100);
	expect("BEGIN; LAUNCH; END; DESTROY; ");
}
