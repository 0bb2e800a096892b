/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is scanned, for what, and what is made of the words that are found.
 *
 * Targets - where to look - are taken from the exec under the holders lock; the device is asked
 * without it; then the exec may be another one, or have other parameters, and the suspects are
 * dropped. The ranges to look for are put together where they are many: the ledger is asked again
 * for each word.
 *
 * Threads: any. All state belongs to the call.
 */
#include "arena/scan.h"

#include <string.h>

#include "arena/body.h"
#include "arena/device.h"
#include "arena/range.h"
#include "arena/slab.h"
#include "arena/suspect.h"
#include "arena/table.h"

#define ELEMENT_MAX 64 /* bytes, of what is sorted */

bool scan_wanted;

/* A parameter to look behind; the address first, for sort(). */
struct target {
	uint64_t addr, end;
	uint64_t value;
	uint32_t node, name;
	uint16_t param, offset;
};
_Static_assert(sizeof(struct target) <= ELEMENT_MAX, "sort() moves it");

struct scan {
	const struct exec_body *body; /* whose targets they are; only compared without the lock */
	uint64_t handle, serial;
	struct target *targets;
	struct device_span *spans, *ranges;
	struct device_hit *hits;
	struct suspect *found;
	uint32_t targets_count, targets_cap, spans_cap, ranges_count, ranges_cap, hits_cap;
	struct scan_result result;
};

static const enum range_kind scanned_kinds[] = { RANGE_DEVICE, RANGE_POOL, RANGE_MAPPED };
static const enum range_kind sought_kinds[] = { RANGE_DEVICE, RANGE_MANAGED, RANGE_MAPPED,
						RANGE_POOL, RANGE_IPC };
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static uint64_t key_of(const char *element)
{
	uint64_t key;

	memcpy(&key, element, sizeof(key));
	return key;
}

/* Shell sort by the first 8 bytes: no recursion, no memory. */
static void sort(void *array, uint32_t count, size_t bytes)
{
	char x[ELEMENT_MAX], *v = array;

	for (uint32_t gap = count / 2; gap; gap = gap == 2 ? 1 : gap * 5 / 11)
		for (uint32_t i = gap; i < count; i++) {
			uint32_t k = i;

			memcpy(x, v + i * bytes, bytes);
			for (; k >= gap && key_of(v + (k - gap) * bytes) > key_of(x); k -= gap)
				memcpy(v + k * bytes, v + (k - gap) * bytes, bytes);
			memcpy(v + k * bytes, x, bytes);
		}
}

/* ---- where to look ---- */

static bool is_scanned(enum range_kind kind)
{
	for (unsigned i = 0; i < COUNT(scanned_kinds); i++)
		if (kind == scanned_kinds[i])
			return true;
	return false;
}

/* How far behind @value there is memory of the same owner. @return @value: none to look at. */
static uint64_t end_behind(const struct exec_owner *o, uint64_t value)
{
	uint64_t end = value + SCAN_SPAN_BYTES;
	const struct range *r = o->range;
	struct range_view v;

	if (o->own || ledger_health(o->range, o->generation, value) != RANGE_HEALTHY ||
	    !ledger_find(value, &v) || !is_scanned(v.kind))
		return value;
	if (end > v.base + v.size_bytes)
		end = v.base + v.size_bytes;
	/* Relaxed: constant, it is pinned. */
	if (load_relaxed(&r->kind) == RANGE_BLOCK &&
	    end > load_relaxed(&r->base) + load_relaxed(&r->size_bytes))
		end = load_relaxed(&r->base) + load_relaxed(&r->size_bytes);
	return end;
}

/* Holders lock held. */
static void add_target(struct scan *s, const struct exec_body *b, uint32_t node,
		       const struct exec_ref *r)
{
	uint64_t value = body_value(b, r), addr = (value + 7) & ~7ull;
	uint64_t end = end_behind(&b->owners[r->owner], value) & ~7ull;

	if (addr >= end)
		return;
	if (pages_grow(&s->targets, &s->targets_cap, s->targets_count + 1, sizeof(*s->targets))) {
		s->result.cut = true;
		return;
	}
	s->targets[s->targets_count++] = (struct target){
		.addr = addr,
		.end = end,
		.value = value,
		.node = node,
		.name = b->nodes[node].name,
		.param = r->param,
		.offset = r->offset,
	};
}

/* Each piece of memory once, told to the parameter that is nearest; within the limits. */
static void settle_targets(struct scan *s)
{
	uint64_t left = SCAN_EXEC_BYTES;
	uint32_t kept = 0, i;

	sort(s->targets, s->targets_count, sizeof(*s->targets));
	for (i = 0; i < s->targets_count && kept < SCAN_SPANS_MAX && left != 0; i++) {
		struct target t = s->targets[i];

		if (i + 1 < s->targets_count && t.end > s->targets[i + 1].addr)
			t.end = s->targets[i + 1].addr;
		if (t.end - t.addr > left) {
			t.end = t.addr + left;
			s->result.cut = true;
		}
		if (t.end == t.addr)
			continue;
		left -= t.end - t.addr;
		s->targets[kept++] = t;
	}
	s->result.cut |= i < s->targets_count;
	s->targets_count = kept;
}

static void find_targets(struct scan *s)
{
	const struct exec_body *b;
	const struct exec *e;

	ledger_holders_lock();
	e = table_find(s->handle);
	b = e ? e->body : NULL;
	s->body = b;
	s->serial = e ? e->serial : 0;
	for (uint32_t i = 0; b && i < b->nodes_count; i++) {
		const struct exec_node *n = &b->nodes[i];

		for (uint32_t k = n->first; k < n->first + n->count; k++)
			if (n->kind == NODE_KERNEL && b->refs[k].confidence == CONFIDENCE_EXACT)
				add_target(s, b, i, &b->refs[k]);
	}
	ledger_holders_unlock();
	settle_targets(s);
}

/* ---- what to look for ---- */

/* All that lives now; what comes meanwhile is not missed by a graph that was made before. */
static bool list_ranges(struct scan *s)
{
	uint32_t count = 0, room;

	for (unsigned i = 0; i < COUNT(sought_kinds); i++) {
		uint32_t more = range_spans(sought_kinds[i], NULL, 0);

		if (pages_grow(&s->ranges, &s->ranges_cap, count + more + 1, sizeof(*s->ranges)))
			return false;
		room = s->ranges_cap - count;
		more = range_spans(sought_kinds[i], s->ranges + count, room);
		count += more < room ? more : room;
	}
	s->ranges_count = count;
	return true;
}

/* Neighbours become one, and the last one reaches over all that there is no room for. */
static void join_ranges(struct scan *s)
{
	uint32_t kept = 0;

	sort(s->ranges, s->ranges_count, sizeof(*s->ranges));
	for (uint32_t i = 0; i < s->ranges_count; i++) {
		const struct device_span r = s->ranges[i];
		struct device_span *last = kept ? &s->ranges[kept - 1] : NULL;

		if (last && (r.addr <= last->addr + last->bytes || kept == SCAN_RANGES_MAX)) {
			if (r.addr + r.bytes > last->addr + last->bytes)
				last->bytes = r.addr + r.bytes - last->addr;
			continue;
		}
		s->ranges[kept++] = r;
	}
	s->ranges_count = kept;
}

/* ---- what was found ---- */

/* The target whose memory @addr is in: one there is. */
static const struct target *target_of(const struct scan *s, uint64_t addr)
{
	uint32_t low = 0, high = s->targets_count;

	while (high - low > 1) {
		uint32_t mid = low + (high - low) / 2;

		if (s->targets[mid].addr <= addr)
			low = mid;
		else
			high = mid;
	}
	return &s->targets[low];
}

/* Does the exec refer to this memory by a parameter? Then all is told already. */
static bool is_held(const struct scan *s, const struct range_view *v)
{
	const struct exec *e;
	bool held;

	ledger_holders_lock();
	e = table_find(s->handle);
	held = e && e->body == s->body && body_owner(e->body, v->owner) != OWNER_NONE;
	ledger_holders_unlock();
	return held;
}

static void keep_hit(struct scan *s, const struct device_hit *hit)
{
	const struct target *t = target_of(s, hit->addr);
	const struct suspect_place at = {
		.exec_serial = s->serial,
		.table = t->value,
		.table_offset = (uint32_t)(hit->addr - t->value),
		.node = t->node,
		.name = t->name,
		.param = t->param,
		.offset = t->offset,
	};
	struct range_view v;

	if (!ledger_refer(hit->word, &v) || is_held(s, &v))
		return;
	if (suspect_add(&s->found, &at, hit->word, &v))
		s->result.kept++;
	else
		s->result.cut = true;
}

/* The exec gets them, if it is still the one that was looked at. */
static void hand_over(struct scan *s)
{
	struct suspect *rest = s->found;
	struct exec *e;

	ledger_holders_lock();
	e = table_find(s->handle);
	if (e && e->serial == s->serial && e->body == s->body) {
		rest = e->body->found;
		e->body->found = s->found;
		add_relaxed(&exec_stats.suspects, s->result.kept);
	}
	ledger_holders_unlock();
	suspect_forget(rest);
}

/* ---- the scan ---- */

/* @return 0 or -errno. */
static int ask_device(struct scan *s, struct device_scan *job)
{
	int err;

	*job = (struct device_scan){
		.spans = s->spans,
		.ranges = s->ranges,
		.hits = s->hits,
		.spans_count = s->targets_count,
		.ranges_count = s->ranges_count,
		.cap = SCAN_HITS_MAX,
	};
	for (uint32_t i = 0; i < s->targets_count; i++)
		s->spans[i] = (struct device_span){ s->targets[i].addr,
						    s->targets[i].end - s->targets[i].addr };
	err = device.scan(job);
	for (uint32_t i = 0; i < s->targets_count && err == 0; i++)
		s->result.cut |= s->spans[i].bytes == 0;
	return err;
}

static void look_behind(struct scan *s)
{
	struct device_scan job;

	if (!device.scan || !list_ranges(s) ||
	    pages_grow(&s->spans, &s->spans_cap, s->targets_count, sizeof(*s->spans)) ||
	    pages_grow(&s->hits, &s->hits_cap, SCAN_HITS_MAX, sizeof(*s->hits))) {
		s->result.skipped = true;
		return;
	}
	join_ranges(s);
	s->result.skipped = ask_device(s, &job) != 0;
	if (s->result.skipped)
		return;
	s->result.cut |= job.found > SCAN_HITS_MAX;
	for (uint32_t i = 0; i < job.found && i < SCAN_HITS_MAX; i++)
		keep_hit(s, &s->hits[i]);
	hand_over(s);
}

struct scan_result scan_exec(uint64_t handle)
{
	struct scan s = { .handle = handle };

	find_targets(&s);
	if (s.targets_count)
		look_behind(&s);
	pages_put(s.targets, s.targets_cap * sizeof(*s.targets));
	pages_put(s.spans, s.spans_cap * sizeof(*s.spans));
	pages_put(s.ranges, s.ranges_cap * sizeof(*s.ranges));
	pages_put(s.hits, s.hits_cap * sizeof(*s.hits));
	return s.result;
}
