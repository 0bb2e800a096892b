/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two sources of captured addresses say of each other: a line for a template on which
 * they differ, and the sums for the exit line. Any thread, one at a time.
 */
#include <unistd.h>

#include "arena/intern.h"
#include "reports/lines.h"
#include "reports/value.h"

static json_t *difference(const struct cross_difference *d)
{
	json_t *o = json_object();

	value_set_text(o, "reason", cross_reason_name(d->reason));
	value_set_hex(o, "node", d->node);
	json_object_set_new(o, "kernel", d->name ? value_bytes(interned(d->name)) : json_null());
	if (d->address)
		value_set_hex(o, "address", d->address);
	return o;
}

static void set_counts(json_t *o, const uint64_t counts[CROSS_REASON_COUNT])
{
	json_t *reasons = json_object();

	for (unsigned i = 0; i < CROSS_REASON_COUNT; i++)
		value_set_uint(reasons, cross_reason_name((enum cross_reason)i), counts[i]);
	json_object_set_new(o, "reasons", reasons);
}

void line_cross(struct text *t, const struct cross_result *r)
{
	json_t *o = value_line("cross"), *list = json_array();

	value_set_uint(o, "time_ns", lines_now_ns());
	value_set_uint(o, "pid", (uint64_t)getpid());
	value_set_uint(o, "nodes", r->nodes);
	value_set_uint(o, "addresses", r->addresses);
	set_counts(o, r->counts);
	for (uint32_t i = 0; i < r->listed; i++)
		json_array_append_new(list, difference(&r->list[i]));
	json_object_set_new(o, "differences", list);
	lines_end(t, o);
}

json_t *line_cross_sums(void)
{
	struct cross_counters c;
	json_t *o = json_object();

	cross_read_counters(&c);
#define X(field) value_set_uint(o, #field, c.field)
	X(compared);
	X(agreed);
	X(skipped);
	X(nodes);
	X(addresses);
	X(changed);
#undef X
	set_counts(o, c.counts);
	return o;
}
