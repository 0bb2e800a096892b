/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds, packs and edits the mirror of one exec (body.h). A body never changes the ledger other
 * than by pinning: who holds what is the business of exec.c.
 *
 * Threads: a body under construction belongs to its thread, a published one is guarded by the
 * holders lock.
 */
#include "arena/body.h"

#include <errno.h>
#include <string.h>

#include "arena/binding.h"
#include "arena/chunk.h"
#include "arena/slab.h"

#define FIND_TRIES 3

static struct slab bodies = SLAB_INIT(struct exec_body);

struct exec_body *body_new(void)
{
	struct exec_body *b = slab_get(&bodies);

	if (b)
		memset(b, 0, sizeof(*b));
	return b;
}

void body_clear(struct exec_body *b)
{
	for (uint32_t i = 0; i < b->owners_count; i++)
		ledger_unpin(b->owners[i].range);
	if (b->slots)
		memset(b->slots, 0, b->slots_cap * sizeof(*b->slots));
	b->nodes_count = b->refs_count = b->owners_count = b->owned_count = b->freed_count = 0;
	b->refs_loose = b->owners_dead = b->suspects = b->hint = 0;
	b->reported = 0;
	b->told_unsafe = b->unborn = false;
}

void body_free(struct exec_body *b)
{
	if (!b)
		return;
	body_clear(b);
	suspect_forget(b->found);
	chunk_put(b->nodes, b->nodes_cap * sizeof(*b->nodes));
	chunk_put(b->refs, b->refs_cap * sizeof(*b->refs));
	chunk_put(b->owners, b->owners_cap * sizeof(*b->owners));
	chunk_put(b->slots, b->slots_cap * sizeof(*b->slots));
	chunk_put(b->owned, b->owned_cap * sizeof(*b->owned));
	chunk_put(b->freed, b->freed_cap * sizeof(*b->freed));
	slab_put(&bodies, b);
}

/* The slot of @r in the hash of owners, or the free one where it would go. */
static uint32_t *owner_slot(const struct exec_body *b, const struct range *r)
{
	uint32_t mask = b->slots_cap - 1;
	uint32_t at = (uint32_t)((uintptr_t)r * 0x9e3779b97f4a7c15u >> 32) & mask;

	while (b->slots[at] && b->owners[b->slots[at] - 1].range != r)
		at = (at + 1) & mask;
	return &b->slots[at];
}

uint32_t body_owner(const struct exec_body *b, const struct range *r)
{
	if (b->slots)
		return *owner_slot(b, r) - 1; /* 0 - 1 is OWNER_NONE */
	for (uint32_t i = 0; i < b->owners_count; i++)
		if (b->owners[i].range == r)
			return i;
	return OWNER_NONE;
}

/* Hash slots for @owners entries, at most two thirds of them in use. */
static int slots_reserve(struct exec_body *b, uint32_t owners)
{
	uint32_t cap = b->slots_cap ? b->slots_cap : 16;
	uint32_t *slots;

	while (owners > cap - cap / 3)
		cap *= 2;
	if (owners <= OWNERS_LINEAR || cap == b->slots_cap)
		return 0;
	slots = chunk_get(cap * sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	memset(slots, 0, cap * sizeof(*slots));
	chunk_put(b->slots, b->slots_cap * sizeof(*b->slots));
	b->slots = slots;
	b->slots_cap = cap;
	for (uint32_t i = 0; i < b->owners_count; i++)
		*owner_slot(b, b->owners[i].range) = i + 1;
	return 0;
}

static bool is_own(const struct exec_body *b, const struct range *r)
{
	/* Relaxed, here and below: constant while the range is pinned. */
	if (load_relaxed(&r->kind) != RANGE_GRAPH)
		return false;
	for (uint32_t i = 0; i < b->owned_count; i++)
		if (b->owned[i] == load_relaxed(&r->base))
			return true;
	return false;
}

/* The entry of @r's owner, new and pinned if need be. */
static int owner_enter(struct exec_body *b, const struct ref *r, uint32_t *index)
{
	const struct range_view view = { .owner = r->owner, .generation = r->generation };
	uint32_t i = body_owner(b, r->owner);

	if (i == OWNER_NONE) {
		i = b->owners_count;
		if (i == OWNERS_MAX || slots_reserve(b, i + 1) ||
		    chunk_grow(&b->owners, &b->owners_cap, i + 1, sizeof(*b->owners)))
			return -ENOMEM;
		if (!ledger_pin(&view))
			return -ESTALE;
		b->owners[i] = (struct exec_owner){
			.range = r->owner,
			.generation = r->generation,
			.own = is_own(b, r->owner),
		};
		if (b->slots)
			*owner_slot(b, r->owner) = i + 1;
		b->owners_count++;
		b->owners_dead++; /* until the caller counts its ref */
	} else if (b->owners[i].generation != r->generation) {
		return -ESTALE; /* the view is older than our pin */
	}
	b->owners[i].bears |= r->bears;
	*index = i;
	return 0;
}

static void owner_count(struct exec_body *b, uint32_t i)
{
	b->owners_dead -= b->owners[i].refs++ == 0;
}

static void owner_uncount(struct exec_body *b, uint32_t i)
{
	if (--b->owners[i].refs != 0)
		return;
	b->owners_dead++;
	b->owners[i].bears = 0;
}

int body_add_node(struct exec_body *b, const struct node_desc *n)
{
	if (n->depth >= DEPTH_MAX ||
	    chunk_grow(&b->nodes, &b->nodes_cap, b->nodes_count + 1, sizeof(*b->nodes)))
		return -ENOMEM;
	b->nodes[b->nodes_count++] = (struct exec_node){
		.key = n->node,
		.name = n->name,
		.first = b->refs_count,
		.birth = binding_birth(),
		.depth = n->depth & (DEPTH_MAX - 1),
		.kind = n->kind & 15,
	};
	return 0;
}

int body_add_owned(struct exec_body *b, uint64_t base)
{
	if (chunk_grow(&b->owned, &b->owned_cap, b->owned_count + 1, sizeof(*b->owned)))
		return -ENOMEM;
	b->owned[b->owned_count++] = base;
	return 0;
}

int body_add_freed(struct exec_body *b, uint64_t base)
{
	if (chunk_grow(&b->freed, &b->freed_cap, b->freed_count + 1, sizeof(*b->freed)))
		return -ENOMEM;
	b->freed[b->freed_count++] = base;
	return 0;
}

int body_add_memory(struct exec_body *b, const struct exec_body *from)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < from->owned_count; i++)
		err = body_add_owned(b, from->owned[i]);
	for (uint32_t i = 0; !err && i < from->freed_count; i++)
		err = body_add_freed(b, from->freed[i]);
	return err;
}

uint64_t body_frees(const struct exec_body *b, uint32_t i)
{
	for (uint32_t k = 0; k < b->freed_count; k++) {
		uint32_t at = 0;

		while (at < b->owned_count && b->owned[at] != b->freed[k])
			at++;
		if (at == b->owned_count && i-- == 0)
			return b->freed[k];
	}
	return 0;
}

int body_add_ref(struct exec_body *b, const struct ref *r)
{
	struct exec_node *n = &b->nodes[b->nodes_count - 1];
	uint64_t distance;
	uint32_t i;
	int err;

	if (r->param >= PLACE_MAX || r->offset >= PLACE_MAX || n->count == UINT16_MAX ||
	    chunk_grow(&b->refs, &b->refs_cap, b->refs_count + 1, sizeof(*b->refs)))
		return -ENOMEM;
	err = owner_enter(b, r, &i);
	if (err)
		return err;
	/* Not before it is pinned: until then the object may become another range. */
	distance = r->value - load_relaxed(&r->owner->base);
	if (distance >= DISTANCE_MAX)
		return -ENOMEM;
	owner_count(b, i);
	b->refs[b->refs_count++] = (struct exec_ref){
		.distance = distance,
		.owner = i,
		.param = r->param,
		.offset = r->offset,
		.confidence = r->confidence,
	};
	n->count++;
	return 0;
}

int body_add_word(struct exec_body *b, const struct word *w)
{
	struct range_view view;
	int err = -ESTALE;

	/* Once more if the range was reused under our hands; then the race is the program's. */
	for (int i = 0; err == -ESTALE && i < FIND_TRIES && word_find(w, &view); i++) {
		const struct ref r = {
			.value = w->value,
			.owner = view.owner,
			.generation = view.generation,
			.param = w->param,
			.offset = w->offset,
			.confidence = w->confidence,
			.bears =
				word_bears(b->nodes[b->nodes_count - 1].kind, w->param, view.owner),
		};

		if (w->confidence == CONFIDENCE_SUSPECT)
			return b->suspects++, 0;
		err = body_add_ref(b, &r);
	}
	return err == -ESTALE ? 0 : err;
}

int body_add_copy(struct exec_body *b, const struct exec_body *from, uint32_t i, uint32_t depth)
{
	const struct exec_node *n = &from->nodes[i];

	if (body_add_node(b, &(struct node_desc){ .node = n->key,
						  .kind = n->kind,
						  .name = n->name,
						  .depth = n->depth + depth }))
		return -ENOMEM;
	b->nodes[b->nodes_count - 1].disabled = n->disabled;
	b->nodes[b->nodes_count - 1].birth = n->birth;
	for (uint32_t k = n->first; k < n->first + n->count; k++) {
		const struct exec_ref *r = &from->refs[k];
		const struct ref ref = {
			.value = body_value(from, r),
			.owner = from->owners[r->owner].range,
			.generation = from->owners[r->owner].generation,
			.param = r->param,
			.offset = r->offset,
			.confidence = r->confidence,
			.bears = from->owners[r->owner].bears,
		};

		if (body_add_ref(b, &ref))
			return -ENOMEM;
	}
	return 0;
}

static int body_reserve(struct exec_body *b, const struct exec_body *like)
{
	struct {
		void *array;
		uint32_t *cap;
		uint32_t need;
		size_t elem_bytes;
	} part[] = {
		{ &b->nodes, &b->nodes_cap, like->nodes_count, sizeof(*b->nodes) },
		{ &b->refs, &b->refs_cap, like->refs_count - like->refs_loose, sizeof(*b->refs) },
		{ &b->owners, &b->owners_cap, like->owners_count - like->owners_dead,
		  sizeof(*b->owners) },
		{ &b->owned, &b->owned_cap, like->owned_count, sizeof(*b->owned) },
		{ &b->freed, &b->freed_cap, like->freed_count, sizeof(*b->freed) },
	};

	for (unsigned i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
		void *p;

		if (!part[i].need)
			continue;
		p = chunk_get(part[i].need * part[i].elem_bytes);
		if (!p)
			return -ENOMEM;
		memcpy(part[i].array, &p, sizeof(p));
		*part[i].cap = part[i].need;
	}
	return slots_reserve(b, like->owners_count - like->owners_dead);
}

struct exec_body *body_pack(const struct exec_body *from)
{
	struct exec_body *b = body_new();
	int err;

	if (!b)
		return NULL;
	err = body_reserve(b, from);
	/* Owned bases first: they decide which owners are the exec's own. */
	if (!err)
		err = body_add_memory(b, from);
	for (uint32_t i = 0; !err && i < from->nodes_count; i++)
		err = body_add_copy(b, from, i, 0);
	if (err) {
		body_free(b);
		return NULL;
	}
	b->suspects = from->suspects;
	b->reported = from->reported;
	return b;
}

static void drop_refs(struct exec_body *b, struct exec_node *n)
{
	for (uint32_t k = n->first; k < n->first + n->count; k++)
		owner_uncount(b, b->refs[k].owner);
	b->refs_loose += n->count;
	n->count = 0;
}

int body_replace(struct exec_body *b, uint32_t i, const struct exec_body *from)
{
	struct exec_node *n = &b->nodes[i];
	uint32_t room = n->count, need = from->refs_count;

	drop_refs(b, n);
	n->name = from->nodes[0].name;
	n->birth = from->nodes[0].birth;
	if (need > room) {
		if (chunk_grow(&b->refs, &b->refs_cap, b->refs_count + need, sizeof(*b->refs)))
			return -ENOMEM;
		n->first = b->refs_count;
		b->refs_count += need;
		b->refs_loose += need;
	}
	for (uint32_t k = 0; k < need; k++) {
		const struct exec_owner *o = &from->owners[from->refs[k].owner];
		uint32_t owner;

		if (owner_enter(b,
				&(struct ref){ .owner = o->range,
					       .generation = o->generation,
					       .bears = o->bears },
				&owner)) {
			drop_refs(b, n);
			return -ENOMEM;
		}
		owner_count(b, owner);
		b->refs[n->first + k] = from->refs[k];
		b->refs[n->first + k].owner = owner;
		b->refs_loose--;
		n->count++;
	}
	return 0;
}

uint32_t body_node(struct exec_body *b, uint64_t key)
{
	for (uint32_t k = 0, i = b->hint; k < b->nodes_count; k++) {
		i = i + 1 < b->nodes_count ? i + 1 : 0;
		if (b->nodes[i].key == key)
			return b->hint = i;
	}
	return b->nodes_count;
}
