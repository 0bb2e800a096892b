/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Node by node: the refs of the walk against those of the witness. Both come in the order of the
 * parameter scanner, so that a look-up that begins where the last one ended is right at once.
 *
 * Any thread. The body belongs to the caller's builder; the witness is locked meanwhile.
 */
#include "arena/cross.h"

#include <string.h>

#include "arena/body.h"
#include "arena/witness.h"

struct comparison {
	const struct exec_body *body;
	struct cross_result *out;
	uint32_t stamp;
};

static struct {
	counter_t compared, agreed, skipped, nodes, addresses, changed, counts[CROSS_REASON_COUNT];
} stats;

const char *cross_reason_name(enum cross_reason reason)
{
	static const char *const names[] = {
#define X(id, name) [CROSS_##id] = name,
		CROSS_REASONS(X)
#undef X
	};

	return names[reason];
}

static void differ(struct comparison *c, const struct cross_difference *d)
{
	c->out->counts[d->reason]++;
	if (c->out->listed < CROSS_LIST_MAX)
		c->out->list[c->out->listed++] = *d;
}

/* ---- one node ---- */

static struct witness_ref walked(const struct exec_body *b, const struct exec_ref *r)
{
	return (struct witness_ref){
		.value = body_value(b, r),
		.generation = b->owners[r->owner].generation,
	};
}

/* How the witness has @r: with its generation, with another one, or not at all. */
enum match { SAME, OTHER_GENERATION, ABSENT };

static enum match find_told(const struct witness *w, const struct witness_ref *r, uint32_t *at)
{
	enum match best = ABSENT;

	for (uint32_t k = 0; k < w->refs_count; k++) {
		const struct witness_ref *told = &w->refs[*at];

		*at = *at + 1 < w->refs_count ? *at + 1 : 0;
		if (told->value != r->value)
			continue;
		if (told->generation == r->generation)
			return SAME;
		best = OTHER_GENERATION;
	}
	return best;
}

static bool is_walked(const struct exec_body *b, const struct exec_node *n, uint64_t value,
		      uint32_t *at)
{
	for (uint32_t k = 0; k < n->count; k++) {
		uint32_t i = n->first + *at;

		*at = *at + 1 < n->count ? *at + 1 : 0;
		if (body_value(b, &b->refs[i]) == value)
			return true;
	}
	return false;
}

static void compare_refs(struct comparison *c, const struct exec_node *n, const struct witness *w)
{
	struct cross_difference d = { .node = n->key, .name = n->name };
	uint32_t at = 0;

	for (uint32_t k = n->first; k < n->first + n->count; k++) {
		struct witness_ref r = walked(c->body, &c->body->refs[k]);
		enum match match = find_told(w, &r, &at);

		d.address = r.value;
		d.reason = match == ABSENT ? CROSS_ADDRESS_ONLY_WALK : CROSS_GENERATION;
		if (match == SAME)
			c->out->addresses++;
		else
			differ(c, &d);
	}
	at = 0;
	d.reason = CROSS_ADDRESS_ONLY_CUPTI;
	for (uint32_t i = 0; i < w->refs_count; i++) {
		d.address = w->refs[i].value;
		if (!is_walked(c->body, n, d.address, &at))
			differ(c, &d);
	}
}

static void compare_node(struct comparison *c, const struct exec_node *n)
{
	struct witness *w = witness_get(n->key);
	struct cross_difference d = { .node = n->key, .name = n->name };

	if (w)
		w->stamp = c->stamp;
	if (w && w->is_changed) {
		c->out->changed++;
	} else if (w) {
		c->out->nodes++;
		compare_refs(c, n, w);
	} else if (n->count) { /* one without an address says nothing about any */
		d.reason = CROSS_NODE_ONLY_WALK;
		differ(c, &d);
	}
}

/* ---- what CUPTI has more ---- */

static void compare_unwalked(void *to, struct witness *w)
{
	struct comparison *c = to;

	if (w->stamp == c->stamp || w->refs_count == 0)
		return;
	w->stamp = c->stamp; /* once */
	differ(c, &(struct cross_difference){
			  .reason = CROSS_NODE_ONLY_CUPTI,
			  .node = w->node,
			  .name = w->name,
		  });
}

static void compare_told(struct comparison *c, uint64_t graph, bool is_exec)
{
	uint32_t count = 0;
	const uint64_t *originals = is_exec ? witness_originals(&count) : NULL;

	for (uint32_t i = 0; i < count; i++) {
		struct witness *w = witness_get(originals[i]);

		if (w)
			compare_unwalked(c, w);
	}
	/* Also when this CUPTI does not tell what an exec is made of. */
	witness_each(graph, compare_unwalked, c);
}

/* ---- all of it ---- */

bool cross_agrees(const struct cross_result *r)
{
	for (unsigned i = 0; i < CROSS_REASON_COUNT; i++)
		if (r->counts[i])
			return false;
	return true;
}

static void count(const struct cross_result *r, bool agreed)
{
	counter_bump(r->compared ? &stats.compared : &stats.skipped);
	if (!r->compared)
		return;
	if (agreed)
		counter_bump(&stats.agreed);
	add_relaxed(&stats.nodes, r->nodes);
	add_relaxed(&stats.addresses, r->addresses);
	add_relaxed(&stats.changed, r->changed);
	for (unsigned i = 0; i < CROSS_REASON_COUNT; i++)
		add_relaxed(&stats.counts[i], r->counts[i]);
}

bool cross_compare(const struct exec_builder *b, uint64_t graph, bool is_exec,
		   struct cross_result *out)
{
	static uint32_t stamp_last; /* guarded by the lock of the witness */
	struct comparison c = { .body = exec_builder_body(b), .out = out };
	bool agreed;

	memset(out, 0, sizeof(*out));
	out->compared = c.body && witness_complete(graph);
	if (out->compared) {
		witness_lock();
		c.stamp = ++stamp_last;
		for (uint32_t i = 0; i < c.body->nodes_count; i++)
			compare_node(&c, &c.body->nodes[i]);
		compare_told(&c, graph, is_exec);
		witness_unlock();
	}
	agreed = cross_agrees(out);
	count(out, agreed);
	return agreed;
}

void cross_read_counters(struct cross_counters *out)
{
	*out = (struct cross_counters){
		.compared = load_relaxed(&stats.compared),
		.agreed = load_relaxed(&stats.agreed),
		.skipped = load_relaxed(&stats.skipped),
		.nodes = load_relaxed(&stats.nodes),
		.addresses = load_relaxed(&stats.addresses),
		.changed = load_relaxed(&stats.changed),
	};
	for (unsigned i = 0; i < CROSS_REASON_COUNT; i++)
		out->counts[i] = load_relaxed(&stats.counts[i]);
}
