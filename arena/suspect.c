/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suspects of all execs, filed by the range that goes back to the driver with their memory:
 * the owner itself, or the segment that a block lies in.
 *
 * Threads: any. The mutex guards the map, the lists and what is in them; it is a leaf, and may be
 * taken under the holders lock.
 */
#include "arena/suspect.h"

#include <pthread.h>

#include "arena/block.h"
#include "arena/exec.h"
#include "arena/map.h"
#include "arena/slab.h"

#define SUSPECTS_MAX (1u << 17) /* of all execs, 96 bytes each */
#define TOLD_MAX     32		/* in one finding; the others are counted */

struct suspect {
	struct suspect *of_exec;     /* next in the list of its exec */
	struct suspect *next, *prev; /* of the same root */
	struct range *owner;	     /* pinned; NULL: it was told, and is in no other list */
	uint64_t generation, value;
	struct suspect_place at;
};

_Atomic uint32_t suspect_count; /* written under the lock */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slab suspects = SLAB_INIT(struct suspect);
static struct map roots; /* struct range * -> its first suspect */

/* What goes back to the driver with @r; constant, and pinned by @r, while @r is. */
static const struct range *root_of(const struct range *r)
{
	bool is_block = load_relaxed(&r->kind) == RANGE_BLOCK;

	return is_block && r->outer != NULL ? r->outer : r;
}

static struct suspect *first_of(const struct range *root)
{
	return map_get(&roots, (uint64_t)(uintptr_t)root);
}

/* Into the list of its root. Lock held. @return false: no memory. */
static bool link_up(struct suspect *s)
{
	const struct range *root = root_of(s->owner);

	s->prev = NULL;
	s->next = first_of(root);
	if (map_put(&roots, (uint64_t)(uintptr_t)root, s) != 0)
		return false;
	if (s->next != NULL)
		s->next->prev = s;
	add_relaxed(&suspect_count, 1);
	return true;
}

/* Out of that list. Lock held. @return its owner, to be unpinned; NULL: it was in none. */
static struct range *unlink_it(struct suspect *s)
{
	struct range *owner = s->owner;
	const struct range *root;

	if (owner == NULL)
		return NULL;
	root = root_of(owner);
	if (s->next != NULL)
		s->next->prev = s->prev;
	if (s->prev != NULL)
		s->prev->next = s->next;
	else if (s->next != NULL)
		map_put(&roots, (uint64_t)(uintptr_t)root, s->next); /* overwrites: cannot fail */
	else
		map_remove(&roots, (uint64_t)(uintptr_t)root);
	s->owner = NULL;
	add_relaxed(&suspect_count, -1u);
	return owner;
}

/* ---- the list of an exec ---- */

bool suspect_add(struct suspect **list, const struct suspect_place *at, uint64_t value,
		 const struct range_view *v)
{
	struct suspect *s =
		load_relaxed(&suspect_count) < SUSPECTS_MAX ? slab_get(&suspects) : NULL;
	bool is_kept;

	if (s == NULL)
		return false;
	*s = (struct suspect){
		.of_exec = *list, .generation = v->generation, .value = value, .at = *at
	};
	is_kept = ledger_pin(v);
	if (is_kept) {
		s->owner = v->owner;
		pthread_mutex_lock(&lock);
		is_kept = link_up(s);
		pthread_mutex_unlock(&lock);
		if (!is_kept)
			ledger_unpin(v->owner);
	}
	if (is_kept)
		*list = s;
	else
		slab_put(&suspects, s);
	return is_kept;
}

/* @s is in the list of no exec any more. */
static void drop(struct suspect *s)
{
	struct range *owner;

	pthread_mutex_lock(&lock);
	owner = unlink_it(s);
	pthread_mutex_unlock(&lock);
	if (owner != NULL)
		ledger_unpin(owner);
	slab_put(&suspects, s);
}

void suspect_forget(struct suspect *list)
{
	struct suspect *next;

	for (; list != NULL; list = next) {
		next = list->of_exec;
		drop(list);
	}
}

void suspect_forget_node(struct suspect **list, uint32_t node)
{
	struct suspect *s;

	while ((s = *list) != NULL) {
		if (s->at.node != node) {
			list = &s->of_exec;
			continue;
		}
		*list = s->of_exec;
		drop(s);
	}
}

/* ---- frees ---- */

/* Is @s about @r, or about a block in it that was there until now? */
static bool is_about(const struct suspect *s, const struct range *r)
{
	const struct range *o = s->owner;

	/* Relaxed: pinned, and whoever frees comes here itself. */
	return o == r || (load_relaxed(&r->kind) != RANGE_BLOCK &&
			  (load_relaxed(&o->state) == RANGE_LIVE || block_pooled(o)));
}

bool suspect_points(const struct range *r)
{
	const struct suspect *s;

	if (!suspect_any())
		return false;
	pthread_mutex_lock(&lock);
	for (s = first_of(root_of(r)); s != NULL && !is_about(s, r); s = s->next)
		;
	pthread_mutex_unlock(&lock);
	if (s == NULL)
		return false;
	ledger_holders_lock();
	exec_mark_all();
	ledger_holders_unlock();
	return true;
}

static struct finding_ref tell(const struct suspect *s)
{
	return (struct finding_ref){
		.exec_serial = s->at.exec_serial,
		.node = s->at.node,
		.node_kind = NODE_KERNEL,
		.reason = STALE_FREED,
		.confidence = CONFIDENCE_SUSPECT,
		.name = s->at.name,
		.param = s->at.param,
		.offset = s->at.offset,
		.value = s->value,
		.table = s->at.table,
		.table_offset = s->at.table_offset,
		.old = finding_range(s->owner, s->generation),
	};
}

/* Take the next one about @r, if any. @return its owner, to be unpinned; NULL: no more. */
static struct range *take(const struct range *r, struct finding_ref *out)
{
	struct range *owner = NULL;
	struct suspect *s;

	pthread_mutex_lock(&lock);
	for (s = first_of(root_of(r)); s != NULL && !is_about(s, r); s = s->next)
		;
	if (s != NULL) {
		*out = tell(s);
		owner = unlink_it(s);
	}
	pthread_mutex_unlock(&lock);
	return owner;
}

void suspect_freed(const struct range *r, uint32_t stack)
{
	struct finding_ref refs[TOLD_MAX], ref;
	struct finding f = { .kind = FINDING_SUSPECT_FREED, .stack = stack, .refs = refs };
	struct range *owner;

	while (suspect_any() && (owner = take(r, &ref)) != NULL) {
		f.key = (f.key ^ ref.exec_serial << 32 ^ ref.old.generation) * 0x9e3779b97f4a7c15u;
		if (f.refs_count < TOLD_MAX)
			refs[f.refs_count++] = ref;
		f.refs_total++;
		ledger_unpin(owner);
	}
	if (f.refs_total != 0)
		finding_emit(&f);
}
