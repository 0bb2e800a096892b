/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pairs of what died and what was born in a reload.
 *
 * Memory died if it was freed while a graph referred to it, and that graph lives at the end. What
 * was born counts if it lives at the end. Both are sorted into groups of one kind, one size and one
 * call site (the innermost frames of the stack, stack_site() of device.h: the outer ones differ
 * between the first load and a reload), each in the order of allocation; the n-th that died is
 * taken for the n-th that was born. Where their numbers differ the finding says that it is
 * ambiguous; where no stack was taken, that it is from the size alone, which never fails a reload:
 * any memory of that size, from anywhere, is taken. What was born at the
 * address of one that died, in the same group, has come back and did not move.
 *
 * Threads: the one that closes the reload.
 */
#include <stdio.h>

#include "arena/block.h"
#include "arena/device.h"
#include "arena/exec.h"
#include "arena/infer_log.h"
#include "arena/intern.h"
#include "arena/table.h"

static uint64_t site_of(uint32_t stack)
{
	return stack && device.stack_site ? device.stack_site(stack) : 0;
}

static void mark_held(struct infer_log *l, uint64_t serial)
{
	for (uint32_t i = 0; i < l->dead_count; i++)
		for (uint32_t k = 0; k < l->dead[i].execs_count; k++)
			l->dead[i].held |= l->dead[i].serials[k] == serial;
}

/* Design rule 7: what no live graph refers to does not matter. In the order of allocation. */
static void keep_held(struct infer_log *l)
{
	uint32_t kept = 0;

	ledger_holders_lock();
	for (struct exec *e = NULL; (e = table_next(e)) != NULL;)
		mark_held(l, e->serial);
	ledger_holders_unlock();
	for (uint32_t i = 0; i < l->dead_count; i++) {
		struct infer_dead d = l->dead[i];
		uint32_t at = kept;

		if (!d.held)
			continue;
		d.site = site_of(d.ref.old.stack_open);
		for (; at > 0 && l->dead[at - 1].ref.old.generation > d.ref.old.generation; at--)
			l->dead[at] = l->dead[at - 1];
		l->dead[at] = d;
		kept++;
	}
	l->dead_count = kept;
}

static bool of_a_size(const struct infer_log *l, uint64_t size_bytes)
{
	for (uint32_t i = 0; i < l->dead_count; i++)
		if (l->dead[i].ref.old.size_bytes == size_bytes)
			return true;
	return false;
}

static bool is_alive(const struct infer_born *b)
{
	struct range_view v;

	if (b->kind == RANGE_BLOCK)
		return block_covers(b->base);
	return ledger_find(b->base, &v) && v.base == b->base && v.size_bytes == b->size_bytes;
}

static void keep_alive(struct infer_log *l)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < l->born_count; i++) {
		struct infer_born b = l->born[i];

		if (b.size_bytes == 0 || !of_a_size(l, b.size_bytes) || !is_alive(&b))
			continue;
		b.site = site_of(b.stack);
		l->born[kept++] = b;
	}
	l->born_count = kept;
}

/* One size and call site; without a stack, all places are one. */
static bool same_dead(const struct infer_dead *a, const struct infer_dead *b)
{
	return a->site == b->site && a->ref.old.size_bytes == b->ref.old.size_bytes &&
	       (a->ref.old.kind == RANGE_BLOCK) == (b->ref.old.kind == RANGE_BLOCK);
}

static bool same(const struct infer_dead *d, const struct infer_born *b)
{
	return (d->site == 0 || d->site == b->site) && d->ref.old.size_bytes == b->size_bytes &&
	       (d->ref.old.kind == RANGE_BLOCK) == (b->kind == RANGE_BLOCK);
}

/* What was born where one of its group died has come back: take both out. */
static void take_returned(struct infer_log *l)
{
	for (uint32_t i = 0; i < l->dead_count; i++)
		for (uint32_t k = 0; k < l->born_count && !l->dead[i].told; k++) {
			if (l->born[k].base != l->dead[i].ref.old.base ||
			    !same(&l->dead[i], &l->born[k]))
				continue;
			l->dead[i].told = true;
			l->born[k].size_bytes = 0;
		}
}

/* A group: how many there are of both. */
struct group {
	uint32_t dead_count, born_count;
	bool by_site;
};

static struct group count_group(const struct infer_log *l, const struct infer_dead *first)
{
	struct group g = { .by_site = first->site != 0 };

	for (uint32_t i = 0; i < l->dead_count; i++)
		g.dead_count += !l->dead[i].told && same_dead(first, &l->dead[i]);
	for (uint32_t k = 0; k < l->born_count; k++)
		g.born_count += same(first, &l->born[k]);
	return g;
}

static void put_detail(char *text, size_t text_bytes, const struct group *g, uint32_t number)
{
	const char *from = g->by_site ? "size and call site"
				      : "size alone (ARENA_STACKS=all tells call sites)";

	if (g->dead_count == 1 && g->born_count == 1)
		snprintf(text, text_bytes, "inferred from %s", from);
	else if (g->dead_count == g->born_count)
		snprintf(text, text_bytes, "inferred from %s, number %u of %u in order", from,
			 number + 1, g->dead_count);
	else
		snprintf(text, text_bytes,
			 "ambiguous: inferred from %s, number %u of %u that died, of %u that came",
			 from, number + 1, g->dead_count, g->born_count);
}

static void put_name(char *text, size_t text_bytes, const struct finding_ref *r)
{
	const char *kind = node_kind_name((enum node_kind)r->node_kind);

	snprintf(text, text_bytes, "%s parameter %u", r->name ? interned(r->name) : kind, r->param);
}

static struct slot_finding finding_of(const struct infer_dead *d, const struct infer_born *b)
{
	struct slot_finding f = {
		.kind = FINDING_MOVED,
		.severity = infer_mode == INFER_BLOCK && d->site ? SEVERITY_ERROR : SEVERITY_WARN,
		.inferred = true,
		.old_base = d->ref.old.base,
		.new_base = b->base,
		.old_generation = d->ref.old.generation,
		.old_spec = { .struct_bytes = sizeof(f.old_spec), .bytes = b->size_bytes },
		.old_stack = d->ref.old.stack_open,
		.old_closed = d->ref.old.stack_close,
		.new_stack = b->stack,
		.execs_count = d->execs_count,
	};
	struct range_view v;

	f.new_spec = f.old_spec;
	if (b->kind != RANGE_BLOCK && ledger_find(b->base, &v))
		f.new_generation = v.generation;
	return f;
}

/* Is the move told of a slot, by its name? */
static bool is_named(const struct slot_findings *out, const struct infer_dead *d)
{
	for (uint32_t i = 0; i < out->count; i++)
		if (!out->list[i].inferred && out->list[i].old_base == d->ref.old.base)
			return true;
	return false;
}

static int tell(struct slot_findings *out, const struct infer_dead *d, const struct infer_born *b,
		const char *detail)
{
	struct slot_finding f = finding_of(d, b);
	char name[1024];

	if (is_named(out, d))
		return 0;
	put_name(name, sizeof(name), &d->ref);
	f.name = intern(name);
	f.detail = intern(detail);
	return slot_findings_add(out, &f);
}

/* @return the next one of the group of @d from @at on; the count: there is none. */
static uint32_t next_born(const struct infer_log *l, const struct infer_dead *d, uint32_t at)
{
	while (at < l->born_count && !same(d, &l->born[at]))
		at++;
	return at;
}

static int tell_group(struct infer_log *l, uint32_t first, struct slot_findings *out)
{
	struct group g = count_group(l, &l->dead[first]);
	struct infer_dead head = l->dead[first];
	uint32_t at = 0, number = 0;
	char detail[192];
	int err = 0;

	for (uint32_t i = first; i < l->dead_count && !err; i++) {
		if (l->dead[i].told || !same_dead(&head, &l->dead[i]))
			continue;
		l->dead[i].told = true;
		at = next_born(l, &head, at);
		if (at == l->born_count)
			continue;
		put_detail(detail, sizeof(detail), &g, number++);
		err = tell(out, &l->dead[i], &l->born[at], detail);
		l->born[at].size_bytes = 0; /* no other group takes it */
	}
	return err;
}

static int tell_groups(struct infer_log *l, bool by_site, struct slot_findings *out)
{
	int err = 0;

	for (uint32_t i = 0; i < l->dead_count && !err; i++)
		if (!l->dead[i].told && (l->dead[i].site != 0) == by_site)
			err = tell_group(l, i, out);
	return err;
}

int infer_end(struct slot_findings *out)
{
	struct infer_log l;
	int err;

	/* Frees of blocks may still wait to be told. */
	block_tell_freed();
	if (!infer_stop(&l))
		return 0;
	keep_held(&l);
	if (l.dead_count) {
		keep_alive(&l);
		take_returned(&l);
	}
	err = tell_groups(&l, true, out);
	/* What has no call site takes what is left. */
	err = err ? err : tell_groups(&l, false, out);
	infer_log_free(&l);
	return err;
}
