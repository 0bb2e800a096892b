/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slot findings as sets, and their text (snapshot.h).
 *
 * Findings are large and there may be one for each slot, so what is sorted is their numbers.
 *
 * Threads: any; a set belongs to its caller.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "arena/intern.h"
#include "arena/slab.h"
#include "arena/snapshot.h"

int slot_findings_add(struct slot_findings *f, const struct slot_finding *one)
{
	if (pages_grow(&f->list, &f->cap, f->count + 1, sizeof(*f->list)) != 0)
		return -ENOMEM;
	f->list[f->count++] = *one;
	return 0;
}

void slot_findings_free(struct slot_findings *f)
{
	pages_put(f->list, f->cap * sizeof(*f->list));
	*f = (struct slot_findings){ .list = NULL };
}

/* ---- order ---- */

static int by_number(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int by_text(uint32_t a, uint32_t b)
{
	return a == b ? 0 : strcmp(interned(a), interned(b));
}

/* What a finding says, apart from how bad it is and for how many. */
static int compare(const struct slot_finding *a, const struct slot_finding *b)
{
	int order = by_text(a->path, b->path);

	order = order ? order : by_number(a->kind, b->kind);
	order = order ? order : by_text(a->name, b->name);
	order = order ? order : by_text(a->detail, b->detail);
	order = order ? order : by_number(a->old_base, b->old_base);
	order = order ? order : by_number(a->new_base, b->new_base);
	order = order ? order : by_number(a->old_generation, b->old_generation);
	order = order ? order : by_number(a->new_generation, b->new_generation);
	order = order ? order : memcmp(&a->old_spec, &b->old_spec, sizeof(a->old_spec));
	return order ? order : memcmp(&a->new_spec, &b->new_spec, sizeof(a->new_spec));
}

/* Shell sort: no recursion, no memory. */
static void sort(uint32_t *order, const struct slot_findings *f)
{
	for (uint32_t gap = f->count / 2; gap; gap = gap == 2 ? 1 : gap * 5 / 11)
		for (uint32_t i = gap; i < f->count; i++) {
			uint32_t x = order[i], k = i;

			for (; k >= gap && compare(&f->list[order[k - gap]], &f->list[x]) > 0;
			     k -= gap)
				order[k] = order[k - gap];
			order[k] = x;
		}
}

void slot_findings_normalise(struct slot_findings *f)
{
	uint32_t *order = f->count > 1 ? pages_get(f->count * sizeof(*order)) : NULL;
	struct slot_findings sorted = { .list = NULL };

	if (order == NULL)
		return;
	for (uint32_t i = 0; i < f->count; i++)
		order[i] = i;
	sort(order, f);
	if (pages_grow(&sorted.list, &sorted.cap, f->count, sizeof(*sorted.list)) == 0) {
		for (uint32_t i = 0; i < f->count; i++) {
			const struct slot_finding *one = &f->list[order[i]];

			if (i == 0 || compare(one, &sorted.list[sorted.count - 1]) != 0)
				sorted.list[sorted.count++] = *one;
		}
		pages_put(order, f->count * sizeof(*order));
		slot_findings_free(f);
		*f = sorted;
		return;
	}
	pages_put(order, f->count * sizeof(*order));
}

int slot_findings_minus(const struct slot_findings *a, const struct slot_findings *b,
			struct slot_findings *out)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < a->count; i++) {
		while (k < b->count && compare(&b->list[k], &a->list[i]) < 0)
			k++;
		if (k < b->count && compare(&b->list[k], &a->list[i]) == 0)
			continue;
		if (slot_findings_add(out, &a->list[i]) != 0)
			return -ENOMEM;
	}
	return 0;
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

static void put_place(struct text *t, uint64_t base, uint64_t generation)
{
	if (base == 0)
		put(t, "nothing");
	else if (generation == 0)
		put(t, "0x%" PRIx64, base);
	else
		put(t, "0x%" PRIx64 " (generation %" PRIu64 ")", base, generation);
}

static void put_spec(struct text *t, const struct arena_spec *s)
{
	char buf[512];

	spec_text(s, buf, sizeof(buf));
	put(t, "%s", buf);
}

/* What was and what is: specs where they are what differs, else places. */
static void put_change(struct text *t, const struct slot_finding *f)
{
	if (f->kind == FINDING_RESPECIFIED) {
		put(t, ": was ");
		put_spec(t, &f->old_spec);
		put(t, ", is ");
		put_spec(t, &f->new_spec);
	} else if (f->kind == FINDING_BORN_IN_CAPTURE) {
		put(t, " at ");
		put_place(t, f->new_base, f->new_generation);
	} else if (f->old_base != 0 || f->new_base != 0) {
		put(t, ": was at ");
		put_place(t, f->old_base, f->old_generation);
		put(t, ", is at ");
		put_place(t, f->new_base, f->new_generation);
	}
}

size_t slot_finding_text(const struct slot_finding *f, char *buf, size_t buf_bytes)
{
	struct text t = { buf, buf_bytes, 0 };

	if (f->path != 0)
		put(&t, "%s: ", interned(f->path));
	put(&t, "[%s] %s", finding_kind_name(f->kind), interned(f->name));
	put_change(&t, f);
	if (f->detail != 0)
		put(&t, ": %s", interned(f->detail));
	if (f->execs_count != 0)
		put(&t, "; %" PRIu32 " graph exec%s to it", f->execs_count,
		    f->execs_count == 1 ? " refers" : "s refer");
	return t.length;
}
