/* SPDX-License-Identifier: Apache-2.0 */
/* What CUPTI tells, in any order, becomes births; the driver's parameters are a table here. */
#include "world.h"

#include "reports/write.h"
#include "shim/coverage.h"
#include "shim/cupti.h"
#include "shim/options.h"
#include "shim/shim.h"
#include "shim/walk.h"

#define A (0x7f0000000000ull)
#define G 0x100ull

_Atomic int shim_state = SHIM_ON;
counter_t coverage[COVERAGE_COUNT];

static uint64_t parameter[256]; /* what node n holds now */
static unsigned asked;

void walk_told(CUgraph graph, CUgraphNode node, CUgraphNodeType type)
{
	const struct node_desc *n =
		KERNEL((uint64_t)graph, (uint64_t)node, parameter[(uint64_t)node]);

	asked++;
	birth_record(n);
	witness_node(n);
}

static enum window_mode mode;
static struct report_launch line;
static unsigned lines;

void cupti_work_slow(void)
{
}

uint64_t option_value(enum option_id o)
{
	return o == OPTION_CUPTI ? mode : 0;
}

void report_launch(const struct report_launch *l)
{
	line = *l;
	lines++;
}

static void tell(enum recorder_kind kind, uint64_t graph, uint64_t node, uint64_t original)
{
	cupti_event(&(struct recorder_event){ .kind = kind,
					      .graph = graph,
					      .node = node,
					      .original_graph = original ? G : 0,
					      .original_node = original });
}

static void start(void)
{
	world_start();
	store_relaxed(&witness_on, true);
	world_alloc(A);
	parameter[1] = parameter[2] = A;
	tell(RECORDER_GRAPH_CREATED, G, 0, 0);
	tell(RECORDER_NODE_CREATED, G, 1, 0);
}

/* Is the memory that node @node means the one that lives there now? */
static bool means_now(uint64_t graph, uint64_t node)
{
	static uint64_t handle = 0xe0;
	struct exec *e = world_exec(++handle, KERNEL(graph, node, A));

	return (load_relaxed(&e->mark) & 1) == 0;
}

static void replace(void)
{
	world_free(A);
	world_alloc(A);
}

TestSuite(cupti_event, .init = start);

Test(cupti_event, a_node_means_what_it_meant_when_it_was_told)
{
	cr_assert(means_now(G, 1));
	replace();
	cr_assert_not(means_now(G, 1));
	/* Of execs, whatever their nodes are called. */
	tell(RECORDER_NODE_UPDATED, G, 1, 0);
	tell(RECORDER_NODE_PARAMS_SET, G, 1, 0);
	cr_assert_not(means_now(G, 1));
}

Test(cupti_event, a_clone_means_what_its_original_meant_in_either_order)
{
	replace();
	tell(RECORDER_NODE_CREATED, 0x200, 2, 0);
	tell(RECORDER_NODE_CLONED, 0x200, 2, 1);
	cr_assert_not(means_now(0x200, 2));
	tell(RECORDER_NODE_DESTROYING, 0x200, 2, 0);
	tell(RECORDER_NODE_CLONED, 0x200, 2, 1);
	asked = 0;
	tell(RECORDER_NODE_CREATED, 0x200, 2, 0);
	cr_assert_eq(asked, 0);
	cr_assert_not(means_now(0x200, 2));
}

Test(cupti_event, the_nodes_of_an_exec_are_not_asked_for)
{
	uint32_t count;

	asked = 0;
	tell(RECORDER_EXEC_CREATING, G, 0, 0);
	tell(RECORDER_GRAPH_CREATED, 0x900, 0, 0);
	tell(RECORDER_NODE_CREATED, 0x900, 2, 0);
	tell(RECORDER_NODE_CLONED, 0x900, 2, 1);
	cr_assert_eq(asked, 0);
	cr_assert_not(birth_known(0x900, 2));
	cr_assert_not(witness_complete(0x900));
	cr_assert_eq(witness_originals(&count)[0], 1);
	cr_assert_eq(count, 1);
	tell(RECORDER_EXEC_CREATED, G, 0, 0);
	tell(RECORDER_NODE_CREATED, G, 2, 0);
	cr_assert_eq(asked, 1);
}

/* The driver refuses one that no wrapper frames: its end is not told. */
Test(cupti_event, an_exec_that_was_refused)
{
	asked = 0;
	tell(RECORDER_EXEC_CREATING, G, 0, 0);
	witness_exec_over(); /* any wrapper that works on templates */
	tell(RECORDER_NODE_CREATED, G, 2, 0);
	cr_assert_eq(asked, 1);
	/* One that is framed ends with its call. */
	cupti_instantiating(true);
	witness_exec_over();
	cr_assert(witness_in_exec());
	cupti_instantiating(false);
	cr_assert_not(witness_in_exec());
}

Test(cupti_event, an_exec_that_no_wrapper_made_is_counted)
{
	tell(RECORDER_EXEC_CREATING, G, 0, 0);
	tell(RECORDER_EXEC_CREATED, G, 0, 0);
	cr_assert_eq(load_relaxed(&coverage[COVERAGE_UNKNOWN_EXEC]), 1);
	for (int i = 0; i < 2; i++) {
		/* The second time the window opens in the middle of the call. */
		store_relaxed(&witness_on, i == 0);
		cupti_instantiating(true);
		store_relaxed(&witness_on, true);
		tell(RECORDER_EXEC_CREATING, G, 0, 0);
		tell(RECORDER_EXEC_CREATED, G, 0, 0);
		cr_assert(witness_in_exec());
		cupti_instantiating(false);
		cr_assert_not(witness_in_exec());
	}
	cr_assert_eq(load_relaxed(&coverage[COVERAGE_UNKNOWN_EXEC]), 1);
}

Test(cupti_event, what_is_destroyed_has_no_birth)
{
	tell(RECORDER_NODE_DESTROYING, G, 1, 0);
	cr_assert_not(birth_known(G, 1));
	tell(RECORDER_NODE_CREATED, G, 1, 0);
	tell(RECORDER_GRAPH_DESTROYING, G, 0, 0);
	cr_assert_not(birth_known(G, 1));
	cr_assert_not(witness_complete(G));
}

Test(cupti_event, a_launch_has_a_line_where_the_whole_process_is_watched)
{
	struct recorder_event e = {
		.kind = RECORDER_LAUNCH,
		.launch = { .call = "cuLaunchKernel",
			    .kernel = "gemm",
			    .stream = 0x5000,
			    .correlation = 7,
			    .result = 1 },
	};

	mode = WINDOW_CAPTURE;
	cupti_event(&e);
	cr_assert_eq(lines, 0);
	mode = WINDOW_ALWAYS;
	cupti_event(&e);
	cr_assert_eq(lines, 1);
	cr_assert_str_eq(interned(line.kernel), "gemm");
	cr_assert_eq(line.stream, 0x5000);
	cr_assert_eq(line.correlation, 7);
	cr_assert_eq(line.result, 1);
	e.launch.kernel = NULL;
	cupti_event(&e);
	cr_assert_eq(line.kernel, 0);
	cr_assert_eq(load_relaxed(&cupti_events[RECORDER_LAUNCH]), 3);
}

/* Missing and repeated events, of things that nobody told of, with nothing in them. */
Test(cupti_event, any_order_is_survived)
{
	for (int kind = 0; kind < RECORDER_KIND_COUNT; kind++) {
		tell((enum recorder_kind)kind, 0, 0, 0);
		tell((enum recorder_kind)kind, 0x777, 77, 0);
		tell((enum recorder_kind)kind, 0x777, 77, 78);
		tell((enum recorder_kind)kind, 0x777, 77, 78);
	}
	cr_assert_eq(load_relaxed(&cupti_events[RECORDER_NODE_CLONED]), 4);
	witness_expect_graph(true);
	witness_expect_graph(false);
	tell(RECORDER_NODE_CREATED, G, 2, 0);
	cr_assert(means_now(G, 2));
}

Test(cupti_event, a_shim_that_is_off_only_counts)
{
	store_relaxed(&shim_state, SHIM_OFF);
	asked = 0;
	tell(RECORDER_NODE_CREATED, G, 2, 0);
	cr_assert_eq(asked, 0);
	cr_assert_eq(load_relaxed(&cupti_events[RECORDER_NODE_CREATED]), 2);
}
