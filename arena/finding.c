/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings: identity, counts and text.
 *
 * The id names a fault across runs and machines: kind, reasons, and the set of (kernel,
 * parameter, offset, kind and size of the old range), in no order and each once, so that neither
 * addresses nor the number of graphs of one sort change it.
 *
 * Threads: any. No lock of the core is held or taken.
 */
#include "arena/finding.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "arena/atomics.h"
#include "arena/device.h"
#include "arena/exec.h"
#include "arena/infer.h"
#include "arena/intern.h"
#include "arena/slab.h"

#define CAUSES_TOLD 4 /* ranges that the text tells one by one */

static const struct {
	const char *name, *title;
	enum severity severity;
} kinds[] = {
#define FINDING(id, name, severity, title) [FINDING_##id] = { name, title, SEVERITY_##severity },
#include "arena/findings.def"
#undef FINDING
};

static const char *const severity_names[] = {
	[SEVERITY_INFO] = "info",
	[SEVERITY_WARN] = "warn",
	[SEVERITY_ERROR] = "error",
};

static const char *const reason_names[] = {
#define X(id, name) [STALE_##id] = name,
	STALE_REASONS(X)
#undef X
};

static const char *const confidence_names[] = {
	[CONFIDENCE_SUSPECT] = "suspect",
	[CONFIDENCE_STRUCT] = "struct",
	[CONFIDENCE_EXACT] = "exact",
};

static counter_t counts[FINDING_KIND_COUNT];

const char *finding_kind_name(enum finding_kind kind)
{
	return kinds[kind].name;
}

enum severity finding_severity(enum finding_kind kind)
{
	return kinds[kind].severity;
}

const char *finding_title(enum finding_kind kind)
{
	return kinds[kind].title;
}

const char *severity_name(enum severity s)
{
	return severity_names[s];
}

const char *stale_reason_name(enum stale_reason r)
{
	return reason_names[r];
}

const char *confidence_name(enum confidence c)
{
	return confidence_names[c];
}

uint64_t finding_kind_count(enum finding_kind k)
{
	return load_relaxed(&counts[k]);
}

uint64_t finding_count(enum severity s)
{
	uint64_t sum = 0;

	for (unsigned k = 0; k < FINDING_KIND_COUNT; k++)
		sum += kinds[k].severity == s ? load_relaxed(&counts[k]) : 0;
	return sum;
}

/* ---- identity ---- */

#define FNV_START 0xcbf29ce484222325u
#define FNV_PRIME 0x100000001b3u

static uint64_t fnv(uint64_t hash, const void *p, size_t size_bytes)
{
	for (const uint8_t *byte = p; size_bytes--; byte++)
		hash = (hash ^ *byte) * FNV_PRIME;
	return hash;
}

/* A number as 8 bytes, lowest first. */
static uint64_t fnv_number(uint64_t hash, uint64_t n)
{
	for (unsigned i = 0; i < 64; i += 8)
		hash = (hash ^ (n >> i & 0xff)) * FNV_PRIME;
	return hash;
}

/* What a ref is, apart from where things happen to lie. */
static uint64_t hash_place(const struct finding_ref *r)
{
	const char *name = interned(r->name), *kind = range_kind_name(r->old.kind);
	uint64_t hash = fnv(FNV_START, name, strlen(name) + 1);

	hash = fnv_number(fnv_number(hash, r->param), r->offset);
	hash = fnv_number(fnv(hash, kind, strlen(kind) + 1), r->old.size_bytes);
	if (!r->slot)
		return hash;
	hash = fnv(hash, interned(r->arena), strlen(interned(r->arena)) + 1);
	return fnv(hash, interned(r->slot), strlen(interned(r->slot)) + 1);
}

/* Why a ref is listed: what happened to which range. */
static uint64_t hash_cause(const struct finding_ref *r)
{
	uint64_t hash = fnv_number(
		fnv_number(fnv_number(FNV_START, r->old.generation), r->old.base), r->reason);

	/* One range holds many slots, and each moves, or is refused, for itself. */
	if (r->reason != STALE_SLOT_MOVED && r->reason != STALE_REFUSED)
		return hash;
	return fnv_number(fnv_number(hash, (uint64_t)r->arena << 32 | r->slot), r->slot_base);
}

static uint64_t hash_exec(const struct finding_ref *r)
{
	return r->exec_serial;
}

/* Shell sort: no recursion, no memory, and lists are short. */
static void sort(uint64_t *v, uint32_t count)
{
	for (uint32_t gap = count / 2; gap; gap = gap == 2 ? 1 : gap * 5 / 11)
		for (uint32_t i = gap; i < count; i++) {
			uint64_t x = v[i];
			uint32_t k = i;

			for (; k >= gap && v[k - gap] > x; k -= gap)
				v[k] = v[k - gap];
			v[k] = x;
		}
}

struct set {
	uint64_t *v;
	uint32_t count, cap;
};

/* The different hashes of the refs, sorted; empty when there is no memory. */
static struct set hash_refs(const struct finding *f, uint64_t (*hash)(const struct finding_ref *))
{
	struct set s = { .v = NULL };

	if (pages_grow(&s.v, &s.cap, f->refs_count, sizeof(*s.v)) || !s.v)
		return s;
	for (uint32_t i = 0; i < f->refs_count; i++)
		s.v[i] = hash(&f->refs[i]);
	sort(s.v, f->refs_count);
	for (uint32_t i = 0; i < f->refs_count; i++)
		if (i == 0 || s.v[i] != s.v[i - 1])
			s.v[s.count++] = s.v[i];
	return s;
}

static void set_free(struct set *s)
{
	pages_put(s->v, s->cap * sizeof(*s->v));
}

static uint32_t count_different(const struct finding *f,
				uint64_t (*hash)(const struct finding_ref *))
{
	struct set s = hash_refs(f, hash);

	set_free(&s);
	return s.count;
}

static uint64_t stable_id(const struct finding *f)
{
	const char *name = finding_kind_name(f->kind);
	uint64_t hash = fnv(FNV_START, name, strlen(name) + 1);
	struct set places = hash_refs(f, hash_place);
	uint32_t reasons = 0;

	for (uint32_t i = 0; i < f->refs_count; i++)
		reasons |= 1u << f->refs[i].reason;
	for (unsigned r = 0; r < STALE_REASON_COUNT; r++)
		if (reasons & 1u << r)
			hash = fnv(hash, stale_reason_name(r), strlen(stale_reason_name(r)) + 1);
	for (uint32_t i = 0; i < places.count; i++)
		hash = fnv_number(hash, places.v[i]);
	set_free(&places);
	return hash;
}

void finding_emit(struct finding *f)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	f->time_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	f->id = stable_id(f);
	counter_bump(&counts[f->kind]);
	if (f->kind == FINDING_FREED_WHILE_REFERENCED)
		infer_died(f);
	if (device.finding)
		device.finding(f);
}

struct finding_range finding_range(const struct range *r, uint64_t generation)
{
	return (struct finding_range){
		.base = load_relaxed(&r->base),
		.size_bytes = load_relaxed(&r->size_bytes),
		.generation = generation,
		.kind = (enum range_kind)load_relaxed(&r->kind),
		.stack_open = load_relaxed(&r->stack_open),
		.stack_close = load_relaxed(&r->stack_close),
	};
}

/* ---- text ---- */

struct text {
	char *buf;
	size_t size_bytes, length;
};

static __attribute__((format(printf, 2, 3))) void put(struct text *t, const char *format, ...)
{
	size_t at = t->length < t->size_bytes ? t->length : t->size_bytes;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->buf + at, t->size_bytes - at, format, args);
	va_end(args);
	t->length += n > 0 ? (size_t)n : 0;
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* 64 MiB, 1.5 GiB, 100 B: one decimal where it does not come out even. */
static void put_size(struct text *t, uint64_t size_bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	unsigned u = 0;

	while (u + 1 < sizeof(units) / sizeof(units[0]) && size_bytes >> (10 * (u + 1)))
		u++;
	put(t, "%" PRIu64, size_bytes >> (10 * u));
	if (size_bytes & ((1ull << (10 * u)) - 1))
		put(t, ".%u", (unsigned)((size_bytes >> (10 * u - 10) & 1023) * 10 / 1024));
	put(t, " %s", units[u]);
}

static void put_range(struct text *t, const struct finding_range *r)
{
	put(t, "0x%" PRIx64 " (", r->base);
	put_size(t, r->size_bytes);
	put(t, " %s, generation %" PRIu64, range_kind_name(r->kind), r->generation);
}

/* Where in a graph: "kernel k_acc param 1 (+0)", "memcpy node 3 source". */
static void put_place(struct text *t, const struct finding_ref *r)
{
	if (r->node_kind == NODE_KERNEL) {
		put(t, "kernel %s param %u (+%u)", r->name ? interned(r->name) : "?", r->param,
		    r->offset);
		return;
	}
	put(t, "%s node %" PRIu32, node_kind_name(r->node_kind), r->node);
	if (r->node_kind == NODE_MEMCPY)
		put(t, r->param ? " destination" : " source");
	else if (r->node_kind == NODE_BATCH)
		put(t, " operation %u", r->param);
}

static void put_slot(struct text *t, const struct finding_ref *r)
{
	put(t, "slot %s/%s", interned(r->arena), interned(r->slot));
}

/* What happened to the memory of @r. */
static void put_fate(struct text *t, const struct finding_ref *r)
{
	if (r->reason == STALE_SLOT_MOVED) {
		put_slot(t, r);
		put(t, " moved from 0x%" PRIx64 " to 0x%" PRIx64 ", in ", r->slot_base,
		    r->slot_now);
		put_range(t, &r->old);
		put(t, ")");
		return;
	}
	if (r->reason == STALE_REFUSED && r->slot) {
		put_slot(t, r);
		put(t, " at 0x%" PRIx64, r->slot_base);
		return;
	}
	put_range(t, &r->old);
	put(t, ", %s", r->reason == STALE_GENERATION ? "replaced" : stale_reason_name(r->reason));
	if (r->slot) {
		put(t, ", ");
		put_slot(t, r);
	}
	if (r->now.base) {
		put(t, "; now ");
		put_range(t, &r->now);
		put(t, ")");
	}
	put(t, ")");
}

/* One cause with its first ref, which is refs[@first]. */
static void put_cause(struct text *t, const struct finding *f, uint32_t first)
{
	const struct finding_ref *r = &f->refs[first];
	uint32_t more = 0;

	for (uint32_t i = first + 1; i < f->refs_count; i++)
		more += hash_cause(&f->refs[i]) == hash_cause(r);
	put_fate(t, r);
	put(t, " by ");
	put_place(t, r);
	if (more)
		put(t, " and %" PRIu32 " more ref%s", more, plural(more));
}

static void put_causes(struct text *t, const struct finding *f, uint32_t causes)
{
	uint64_t told[CAUSES_TOLD];
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->refs_count && n < CAUSES_TOLD; i++) {
		uint64_t cause = hash_cause(&f->refs[i]);
		uint32_t k = 0;

		while (k < n && told[k] != cause)
			k++;
		if (k < n)
			continue;
		told[n++] = cause;
		put(t, n > 1 ? "; " : ": ");
		put_cause(t, f, i);
	}
	if (causes > n)
		put(t, "; and %" PRIu32 " more range%s", causes - n, plural(causes - n));
}

static void text_launch(struct text *t, const struct finding *f)
{
	uint32_t causes = count_different(f, hash_cause), moved = 0, refused = 0;
	bool in_flight = f->refs_count && f->refs[0].reason == STALE_IN_FLIGHT;

	for (uint32_t i = 0; i < f->refs_count; i++) {
		moved += f->refs[i].reason == STALE_SLOT_MOVED;
		refused += f->refs[i].reason == STALE_REFUSED;
	}

	put(t, "graph exec %" PRIu64 " ", f->exec_serial);
	if (f->refused)
		put(t, "was not launched: it ");
	if (f->kind == FINDING_CONTENT_UNDEFINED)
		put(t, "refers to %" PRIu32 " range%s mapped again and not written since", causes,
		    plural(causes));
	else if (in_flight)
		put(t, "may still run on %" PRIu32 " range%s unmapped now", causes, plural(causes));
	else if (refused && refused == f->refs_count)
		put(t, "refers to %" PRIu32 " slot%s whose values a reload refused", causes,
		    plural(causes));
	else if (moved)
		put(t, "refers to %" PRIu32 " place%s that %s moved%s", causes, plural(causes),
		    causes == 1 ? "has" : "have", moved < f->refs_count ? " or are gone" : "");
	else
		put(t, "refers to %" PRIu32 " range%s that %s gone", causes, plural(causes),
		    causes == 1 ? "is" : "are");
	put_causes(t, f, causes);
}

static void text_freed(struct text *t, const struct finding *f)
{
	uint32_t execs = count_different(f, hash_exec), told = 0;

	if (f->refs_count) {
		put_range(t, &f->refs[0].old);
		put(t, ") ");
	}
	put(t, "is freed while %" PRIu32 " graph exec%s to it", execs,
	    execs == 1 ? " refers" : "s refer");
	for (; told < f->refs_count && told < CAUSES_TOLD; told++) {
		put(t, "%s graph exec %" PRIu64 " ", told ? ";" : ":", f->refs[told].exec_serial);
		put_place(t, &f->refs[told]);
	}
	if (f->refs_total > told)
		put(t, "; and %" PRIu32 " more ref%s", f->refs_total - told,
		    plural(f->refs_total - told));
}

/* Weaker words than those of a ref: it may be nothing. */
static void text_suspect(struct text *t, const struct finding *f)
{
	const struct finding_ref *r = f->refs;

	if (!f->refs_count)
		return;
	put_range(t, &r->old);
	put(t,
	    ") is freed; graph exec %" PRIu64 " may point to it: ARENA_SCAN found 0x%" PRIx64
	    ", a word that looks like an address, in the memory of ",
	    r->exec_serial, r->value);
	put_place(t, r);
	put(t, " at 0x%" PRIx64 "+%" PRIu32, r->table, r->table_offset);
	if (f->refs_total > 1)
		put(t, "; and %" PRIu32 " more word%s", f->refs_total - 1,
		    plural(f->refs_total - 1));
}

/* A launch by a process whose weights may be a mixture. */
static void text_unsafe(struct text *t, const struct finding *f)
{
	if (f->exec_serial)
		put(t, "graph exec %" PRIu64, f->exec_serial);
	else
		put(t, "graph exec 0x%" PRIx64, f->exec_handle);
	put(t, " was not launched: the process is unsafe, a reload failed half way or was "
	       "aborted; a full reload that passes helps");
}

size_t finding_text(const struct finding *f, char *buf, size_t buf_bytes)
{
	struct text t = { buf, buf_bytes, 0 };

	put(&t, "%s: ", finding_kind_name(f->kind));
	if (f->kind == FINDING_FREED_WHILE_REFERENCED)
		text_freed(&t, f);
	else if (f->kind == FINDING_SUSPECT_FREED)
		text_suspect(&t, f);
	else if (f->kind == FINDING_RELOAD_FAILED)
		text_unsafe(&t, f);
	else
		text_launch(&t, f);
	return t.length;
}
