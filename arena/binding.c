/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bindings of slots, filed by the generation of the range they lie in.
 *
 * A place is one range generation: its bindings in the order of their base, each with how far it
 * and those before it reach, so that all that cover an address are found without looking at the
 * rest. A place pins its range. A retired binding is kept as long as something captured may
 * still mean it; from time to time all that was captured is looked through (prune()), so memory
 * stays bounded under any number of reloads.
 *
 * Threads: binding_clock and binding_born by any; everything else is guarded by the holders lock
 * of ledger.h.
 */
#include "arena/binding.h"

#include <string.h>

#include "arena/body.h"
#include "arena/map.h"
#include "arena/slab.h"
#include "arena/table.h"

#define RETIRED_MIN 1024 /* fewer retired bindings are not worth looking for dead ones */

struct place {
	uint64_t generation;
	struct range *owner;   /* pinned */
	struct binding **list; /* ordered by base */
	uint32_t count, cap;
};

struct binding {
	struct slot *slot;
	struct place *place;
	struct binding *next; /* of the slot */
	uint64_t base, end;   /* the part of the extent that was there when it was bound */
	uint64_t reach;	      /* greatest end of this one and all before it in the place */
	uint64_t number;
	uint64_t spec; /* hash: is it bound under the same spec again? */
	uint32_t bound, retired;
	bool is_first;	 /* its slot was nowhere before */
	bool is_scratch; /* its contents mean nothing: the slot may move */
	bool wanted;	 /* of binding_set(), while it runs */
	bool meant;	 /* of prune(), while it runs: something captured means it */
};

_Atomic uint32_t binding_clock, binding_born;

static struct slab bindings = SLAB_INIT(struct binding);
static struct slab place_objects = SLAB_INIT(struct place);
static struct map places;
static _Atomic uint32_t bindings_count; /* also read without the lock */
static uint32_t retired_count, retired_limit = RETIRED_MIN;
static uint64_t numbers;

bool binding_any(void)
{
	/* Relaxed: whoever binds marks the execs concerned, and the mark is ordered. */
	return load_relaxed(&bindings_count) != 0;
}

/* ---- places ---- */

static struct place *place_get(const struct range_view *v)
{
	struct place *p = map_get(&places, v->generation);

	if (p != NULL)
		return p;
	p = slab_get(&place_objects);
	if (p == NULL)
		return NULL;
	*p = (struct place){ .generation = v->generation, .owner = v->owner };
	if (ledger_pin(v)) {
		if (map_put(&places, p->generation, p) == 0)
			return p;
		ledger_unpin(v->owner);
	}
	slab_put(&place_objects, p);
	return NULL;
}

static void place_drop(struct place *p)
{
	map_remove(&places, p->generation);
	ledger_unpin(p->owner);
	pages_put(p->list, p->cap * sizeof(*p->list));
	slab_put(&place_objects, p);
}

/* How many bindings of @p start at or below @addr. */
static uint32_t place_floor(const struct place *p, uint64_t addr)
{
	uint32_t low = 0, high = p->count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (p->list[mid]->base <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Set right how far bindings from @i on reach. */
static void place_reach(struct place *p, uint32_t i)
{
	for (; i < p->count; i++) {
		uint64_t before = i > 0 ? p->list[i - 1]->reach : 0;

		p->list[i]->reach = before > p->list[i]->end ? before : p->list[i]->end;
	}
}

static bool place_enter(struct place *p, struct binding *b)
{
	uint32_t at = place_floor(p, b->base);

	if (pages_grow(&p->list, &p->cap, p->count + 1, sizeof(*p->list)) != 0)
		return false;
	memmove(p->list + at + 1, p->list + at, (p->count - at) * sizeof(*p->list));
	p->list[at] = b;
	p->count++;
	place_reach(p, at);
	return true;
}

/* ---- what a captured word means ---- */

/*
 * The bindings that were in force at an address when the word was captured. If there were none,
 * what was captured is adopted by the slot that is bound there first after that, and by every
 * slot that is bound there before it is anywhere else; a slot that comes by later, as two that
 * are swapped do, has no part in it.
 */
struct hits {
	const struct place *place;
	uint64_t addr;
	uint32_t birth, adopter; /* clock of the first one after the birth; 0: some were in force */
	uint32_t at;
};

static bool is_in_force(const struct binding *b, uint32_t birth)
{
	return b->bound <= birth && (b->retired == 0 || b->retired > birth);
}

static uint32_t adopter_of(const struct hits *h)
{
	uint32_t first = UINT32_MAX;

	for (uint32_t i = h->at; i > 0 && h->place->list[i - 1]->reach > h->addr; i--) {
		const struct binding *b = h->place->list[i - 1];

		if (b->end <= h->addr)
			continue;
		if (is_in_force(b, h->birth))
			return 0;
		if (b->bound > h->birth && b->bound < first)
			first = b->bound;
	}
	return first;
}

static struct hits hits_of(uint64_t addr, uint64_t generation, uint32_t birth)
{
	struct hits h = { .place = map_get(&places, generation), .addr = addr, .birth = birth };

	h.at = h.place != NULL ? place_floor(h.place, addr) : 0;
	h.adopter = adopter_of(&h);
	return h;
}

/* Innermost first; NULL: no more. */
static struct binding *next_hit(struct hits *h)
{
	while (h->at > 0 && h->place->list[h->at - 1]->reach > h->addr) {
		struct binding *b = h->place->list[--h->at];

		if (b->end <= h->addr)
			continue;
		if (h->adopter == 0
			    ? is_in_force(b, h->birth)
			    : b->bound == h->adopter || (b->is_first && b->bound > h->adopter))
			return b;
	}
	return NULL;
}

/* ---- changes ---- */

/* As FNV-1a; what is unused in a spec is zero (spec_read()). */
static uint64_t spec_hash(const struct arena_spec *s)
{
	const unsigned char *byte = (const unsigned char *)s;
	uint64_t hash = 0xcbf29ce484222325u;

	for (size_t i = 0; i < sizeof(*s); i++)
		hash = (hash ^ byte[i]) * 0x100000001b3u;
	return hash;
}

/* How far [@base, @base + @bytes) is there, @v being the range at its start. */
static uint64_t end_of(uint64_t base, uint64_t bytes, const struct range_view *v)
{
	uint64_t end = v->base + v->size_bytes;
	struct range_view next;

	while (end - base < bytes && v->owner != v->range && ledger_find(end, &next) &&
	       next.owner == v->owner)
		end = next.base + next.size_bytes;
	return end - base < bytes ? end : base + bytes;
}

static struct binding *binding_new(struct slot *s, uint64_t base, uint64_t end,
				   const struct range_view *v)
{
	struct place *p = place_get(v);
	struct binding *b = p != NULL ? slab_get(&bindings) : NULL;

	if (b == NULL)
		return NULL;
	*b = (struct binding){ .slot = s, .place = p, .base = base, .end = end };
	if (!place_enter(p, b)) {
		slab_put(&bindings, b);
		return NULL;
	}
	b->next = s->bindings;
	s->bindings = b;
	add_relaxed(&bindings_count, 1);
	return b;
}

/* Memory of the slot itself, whatever an allocator carves out of it. */
static bool is_owned(const struct slot *s)
{
	return s->kind == ARENA_VALUE || s->kind == ARENA_SCRATCH;
}

/* The extent of @s that is wanted now: a binding that it has or had, else a new one. */
static void want(struct slot *s, uint64_t base, uint64_t bytes, uint64_t spec)
{
	uint32_t now = load_relaxed(&binding_clock) + 1;
	struct range_view v;
	struct binding *b;
	uint64_t end, number = 0;

	/* Nobody's memory cannot be watched. */
	if (is_owned(s) ? !ledger_find(base, &v) : !ledger_refer(base, &v))
		return;
	end = end_of(base, bytes, &v);
	for (b = s->bindings; b != NULL; b = b->next)
		if (b->base == base && b->end == end && b->spec == spec &&
		    b->place->generation == v.generation)
			break;
	/* What was captured while the slot was away does not mean it: a stretch of its own. */
	if (b != NULL && b->retired != 0 && b->retired <= load_relaxed(&binding_born)) {
		number = b->number;
		b = NULL;
	}
	if (b == NULL) {
		const struct binding *older = s->bindings;

		while (older != NULL && older->bound == now)
			older = older->next;
		b = binding_new(s, base, end, &v);
		if (b == NULL) {
			counter_bump(&exec_stats.dropped);
			return;
		}
		b->spec = spec;
		b->is_scratch = slot_is_scratch(s);
		b->is_first = older == NULL;
		b->number = number != 0 ? number : ++numbers;
		b->bound = now;
		b->retired = b->bound; /* until settle() */
		retired_count++;
	}
	b->wanted = true;
	if (s->base == base)
		s->generation = v.generation;
	s->binding = b->number;
}

/* Retire what is not wanted, take back what is. @return did anything change? */
static bool settle(struct slot *s)
{
	uint32_t clock = load_relaxed(&binding_clock) + 1;
	bool changed = false;

	for (struct binding *b = s->bindings; b != NULL; b = b->next) {
		if (b->wanted == (b->retired == 0)) {
			b->wanted = false;
			continue;
		}
		retired_count += b->wanted ? -1u : 1u;
		b->retired = b->wanted ? 0 : clock;
		b->wanted = false;
		changed = true;
	}
	if (!changed)
		return false;
	/* Relaxed: births that race with it are the program's race. */
	store_relaxed(&binding_clock, clock);
	for (struct binding *b = s->bindings; b != NULL; b = b->next)
		exec_mark_holders(b->place->owner);
	return true;
}

/* ---- forgetting ---- */

/* Note which retired bindings a captured word means. */
static void mean(uint64_t addr, uint64_t generation, uint32_t birth)
{
	struct hits h = hits_of(addr, generation, birth);
	struct binding *b;

	while ((b = next_hit(&h)) != NULL)
		b->meant = true;
}

static void mean_exec(const struct exec_body *b)
{
	for (uint32_t i = 0; i < b->nodes_count; i++) {
		const struct exec_node *n = &b->nodes[i];

		for (uint32_t k = n->first; k < n->first + n->count; k++)
			mean(body_value(b, &b->refs[k]), b->owners[b->refs[k].owner].generation,
			     n->birth);
	}
}

/* Take @b out of its slot. */
static void binding_free(struct binding *b)
{
	struct binding **at = &b->slot->bindings;

	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	slab_put(&bindings, b);
	add_relaxed(&bindings_count, -1u);
	retired_count--;
}

static void place_prune(struct place *p)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < p->count; i++) {
		struct binding *b = p->list[i];

		if (b->retired != 0 && !b->meant) {
			binding_free(b);
			continue;
		}
		b->meant = false;
		p->list[kept++] = b;
	}
	p->count = kept;
	place_reach(p, 0);
}

/* Forget the retired bindings that nothing captured means. */
static __attribute__((cold, noinline)) void prune(void)
{
	for (struct exec *e = table_next(NULL); e != NULL; e = table_next(e))
		mean_exec(e->body);
	birth_each_ref(mean);
	for (uint32_t i = 0; i < places.cap; i++) {
		struct place *p = places.slots[i].value;

		if (places.slots[i].key == 0)
			continue;
		place_prune(p);
		/* Removal moves others about: one that is missed now is found next time. */
		if (p->count == 0)
			place_drop(p);
	}
	retired_limit = 2 * retired_count > RETIRED_MIN ? 2 * retired_count : RETIRED_MIN;
}

void binding_set(struct slot *s, uint64_t base)
{
	uint64_t spec = spec_hash(&s->spec);

	ledger_holders_lock();
	s->arena->changes++;
	s->base = base;
	s->generation = 0;
	s->binding = 0;
	if (s->kind != ARENA_OBJECT)
		want(s, base, s->spec.bytes, spec);
	for (uint32_t i = 0; s->kind == ARENA_OBJECT && i < s->ranges_count; i++)
		want(s, s->ranges[i].base, s->ranges[i].size_bytes, spec);
	/* An object is another one each time; memory that nobody knows is not recognised. */
	if (s->kind == ARENA_OBJECT || s->binding == 0)
		s->binding = ++numbers;
	if (settle(s) && retired_count > retired_limit)
		prune();
	ledger_holders_unlock();
}

void binding_clear(struct slot *s)
{
	ledger_holders_lock();
	s->arena->changes++;
	s->base = 0;
	s->generation = 0;
	s->binding = 0;
	settle(s);
	ledger_holders_unlock();
}

/* ---- queries ---- */

/* The current binding of @s at @base; NULL: none. */
static const struct binding *current_at(const struct slot *s, uint64_t base)
{
	const struct binding *b = s->bindings;

	while (b != NULL && (b->retired != 0 || b->base != base))
		b = b->next;
	return b;
}

/* Where a slot that was bound at @b is now. */
static uint64_t now_base(const struct binding *b)
{
	const struct slot *s = b->slot;
	const struct binding *now = s->bindings;

	if (s->kind != ARENA_OBJECT)
		return s->base;
	if (current_at(s, b->base) != NULL)
		return b->base;
	while (now != NULL && now->retired != 0)
		now = now->next;
	return now != NULL ? now->base : 0;
}

/* Has the slot gone elsewhere? Scratch may. */
static bool is_left(const struct binding *b)
{
	const struct slot *s = b->slot;

	if (b->retired == 0 || s->base == 0 || b->is_scratch)
		return false;
	return s->kind == ARENA_OBJECT ? current_at(s, b->base) == NULL : s->base != b->base;
}

/* Was the slot bound, under the same spec, to what came back at its old address? Objects have
 * state, so memory that came back is not what they had. */
static bool is_rebound(const struct binding *b)
{
	const struct binding *now = current_at(b->slot, b->base);
	struct range_view v;

	return b->slot->kind != ARENA_OBJECT && now != NULL && now != b && now->spec == b->spec &&
	       ledger_find_inner(b->base, &v) && v.generation == now->place->generation;
}

/* What of the extent that the ref at @r was captured under is not there. */
static enum stale_reason hole(const struct binding *b, const struct binding_ref *r)
{
	struct range *owner = b->place->owner;
	struct range_view v;

	if (load_relaxed(&owner->kind) == RANGE_BLOCK && owner->outer != NULL)
		owner = owner->outer;
	/* Only a reservation loses a part of itself. */
	if (b->bound > r->birth || load_relaxed(&owner->kind) != RANGE_RESERVED)
		return STALE_REASON_COUNT;
	for (uint64_t addr = b->base; addr < b->end; addr = v.base + v.size_bytes)
		if (!ledger_find(addr, &v) || v.owner != owner)
			return STALE_UNMAPPED;
	return STALE_REASON_COUNT;
}

/* Has it a value that a reload refused? */
static bool is_withheld(const struct binding *b)
{
	return b->slot->arena->withheld && !slot_is_scratch(b->slot);
}

enum stale_reason binding_judge(const struct binding_ref *r, enum stale_reason health)
{
	struct hits h = hits_of(r->addr, r->generation, r->birth);
	enum stale_reason reason = health;
	const struct binding *b;

	while ((b = next_hit(&h)) != NULL) {
		enum stale_reason lost;

		if (health == STALE_GENERATION && is_rebound(b))
			return STALE_REASON_COUNT;
		if (health != STALE_REASON_COUNT)
			continue;
		lost = hole(b, r);
		if (lost != STALE_REASON_COUNT)
			return lost;
		if (is_left(b))
			reason = STALE_SLOT_MOVED;
		else if (reason == STALE_REASON_COUNT && is_withheld(b))
			reason = STALE_REFUSED;
	}
	return reason;
}

bool binding_about(const struct binding_ref *r, enum stale_reason reason, struct binding_view *out)
{
	struct hits h = hits_of(r->addr, r->generation, r->birth);
	const struct binding *b;

	/* The innermost one, or the innermost one that the slot has left. */
	while ((b = next_hit(&h)) != NULL) {
		if (reason == STALE_SLOT_MOVED && !is_left(b))
			continue;
		if (reason == STALE_REFUSED && !is_withheld(b))
			continue;
		*out = (struct binding_view){
			.slot = b->slot,
			.base = b->base,
			.bytes = b->end - b->base,
			.generation = b->place->generation,
			.number = b->number,
			.now_base = now_base(b),
		};
		return true;
	}
	return false;
}

bool binding_means(const struct slot *s, const struct binding_ref *r)
{
	struct hits h = hits_of(r->addr, r->generation, r->birth);
	const struct binding *b;

	while ((b = next_hit(&h)) != NULL)
		if (b->slot == s)
			return true;
	return false;
}

static void extend(struct exec_extent *x, const struct binding *b)
{
	uint32_t before = b->retired ? b->retired : UINT32_MAX;

	if (x->owner == NULL)
		*x = (struct exec_extent){ .slot = b->slot,
					   .owner = b->place->owner,
					   .generation = b->place->generation,
					   .base = b->base,
					   .since = UINT32_MAX };
	x->end = b->end > x->end ? b->end : x->end;
	x->since = b->bound < x->since ? b->bound : x->since;
	x->before = before > x->before ? before : x->before;
}

bool binding_extent(const struct slot *s, uint64_t number, struct exec_extent *out)
{
	*out = (struct exec_extent){ .owner = NULL };
	for (const struct binding *b = s->bindings; b != NULL; b = b->next)
		if (b->number == number)
			extend(out, b);
	return out->owner != NULL;
}

void binding_extent_at(const struct slot *s, uint64_t base, uint64_t generation,
		       struct exec_extent *out)
{
	*out = (struct exec_extent){ .owner = NULL };
	for (const struct binding *b = s->bindings; b != NULL; b = b->next)
		if (b->base == base && b->place->generation == generation)
			extend(out, b);
}

int binding_each_again(const struct exec_extent *of,
		       int (*tell)(void *ctx, const struct exec_extent *x), void *ctx)
{
	uint64_t spec = of->again != NULL ? spec_hash(of->again) : 0;
	int err = 0;

	for (const struct binding *b = spec ? of->slot->bindings : NULL; b != NULL; b = b->next) {
		struct exec_extent x = { .owner = NULL };

		if (err != 0 || b->base != of->base || b->spec != spec ||
		    (of->owner != NULL && b->place->generation == of->generation))
			continue;
		extend(&x, b);
		x.since = of->since < x.since ? of->since : x.since;
		err = tell(ctx, &x);
	}
	return err;
}
