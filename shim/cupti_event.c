/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What CUPTI tells becomes births and the second witness.
 *
 * A new node is read at once, inside the callback: its parameters mean now what they may never
 * mean again. The driver is asked with its own locks held by this very thread, which it bears for
 * getters of the node that it just made; nothing of ours is locked meanwhile, and nothing else is
 * asked. Nodes of an exec that is being made are the driver's own and are not asked for: they
 * mean what the nodes mean that they were cloned from.
 *
 * Threads: any, inside the driver, with its locks held (cupti/recorder.h).
 */
#include <errno.h>

#include "arena/intern.h"
#include "reports/write.h"
#include "shim/coverage.h"
#include "shim/cupti.h"
#include "shim/nested.h"
#include "shim/options.h"
#include "shim/shim.h"
#include "shim/walk.h"

counter_t cupti_events[RECORDER_KIND_COUNT];
_Thread_local unsigned cupti_told __attribute__((tls_model("initial-exec")));

static void node_created(const struct recorder_event *e)
{
	/* A clone may be told twice, as a clone and as a new node: it stays a clone. */
	if (!witness_in_exec() && !witness_cloned(e->graph, e->node))
		walk_told((CUgraph)e->graph, (CUgraphNode)e->node, (CUgraphNodeType)e->node_type);
}

static void node_cloned(const struct recorder_event *e)
{
	witness_clone(e->original_node, e->graph, e->node);
	if (!witness_in_exec() && birth_known(e->original_graph, e->original_node))
		birth_copy(e->original_graph, e->original_node, e->graph, e->node);
}

/* What an exec consists of is nobody's template. */
static void graph_made(const struct recorder_event *e)
{
	if (!witness_in_exec())
		witness_graph(e->graph, e->original_graph);
}

static void graph_destroying(const struct recorder_event *e)
{
	witness_forget_graph(e->graph);
	/* Of one that a wrapper saw, it has taken the births out already. */
	nested_forget_graph(e->graph);
}

static void node_destroying(const struct recorder_event *e)
{
	witness_forget_node(e->node);
	birth_forget_node(e->graph, e->node);
}

/* No wrapper frames it, so there is no mirror: nobody will judge its launches. */
static void exec_created(void)
{
	if (witness_exec_end(false))
		coverage_count(UNKNOWN_EXEC);
}

/* For audits, which watch the whole process: elsewhere the count is all there is to say. */
static void launched(const struct recorder_launch *l)
{
	const char *kernel = l->kernel ? l->kernel : "";

	if (option_value(OPTION_CUPTI) == WINDOW_ALWAYS)
		report_launch(&(struct report_launch){
			.call = l->call,
			.kernel = *kernel ? intern(kernel) : 0,
			.stream = l->stream,
			.correlation = l->correlation,
			.result = l->result,
		});
}

static void tell(const struct recorder_event *e)
{
	switch (e->kind) {
	case RECORDER_GRAPH_CREATED:
	case RECORDER_GRAPH_CLONED:
		return graph_made(e);
	case RECORDER_GRAPH_DESTROYING:
		return graph_destroying(e);
	case RECORDER_NODE_CREATED:
		return node_created(e);
	case RECORDER_NODE_CLONED:
		return node_cloned(e);
	case RECORDER_NODE_DESTROYING:
		return node_destroying(e);
	case RECORDER_EXEC_CREATING:
		return witness_exec_begin(false);
	case RECORDER_EXEC_CREATED:
		return exec_created();
	case RECORDER_LAUNCH:
		return launched(&e->launch);
	default: /* counted: edges, and what changes in an exec, which has no getter */
		return;
	}
}

void cupti_event(const struct recorder_event *e)
{
	int saved_errno = errno;

	counter_bump(&cupti_events[e->kind]);
	cupti_told++;
	if (load_relaxed(&shim_state) == SHIM_ON)
		tell(e);
	errno = saved_errno;
}
