/* SPDX-License-Identifier: Apache-2.0 */
/* The one tool that may listen (tool.h). Under sim_lock, but for sim_tool_set(). */
#include "tests/sim/sim.h"

#include <string.h>

static sim_tool_fn tell;

void sim_tool_set(sim_tool_fn fn)
{
	pthread_mutex_lock(&sim_lock);
	tell = fn;
	pthread_mutex_unlock(&sim_lock);
}

void *sim_entry(const char *symbol)
{
	for (int row = 0; row < SIM_ROWS; row++)
		if (!strcmp(sim_rows[row].symbol, symbol))
			return sim_rows[row].entry;
	return NULL;
}

bool tool_listens(void)
{
	return tell;
}

void tool_tell(struct sim_tool_data data)
{
	bool per_thread = tls.per_thread;

	if (!tell)
		return;
	tell(&data);
	tls.per_thread = per_thread; /* the tool may have called the driver */
}

void tool_tell_call(enum sim_tool_event event, enum sim_row row, CUresult rc)
{
	if (tell) /* each call comes by: spare it the struct */
		tool_tell((struct sim_tool_data){
			.event = event,
			.symbol = sim_rows[row].symbol,
			.result = rc,
		});
}

void tool_tell_node(enum sim_tool_event event, const struct node *n)
{
	tool_tell((struct sim_tool_data){
		.event = event,
		.graph = n->graph,
		.node = n,
		.type = n->op->p.type,
	});
}
