/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Births: what the words of a template's node meant when they were written.
 *
 * Between the writing (a captured launch, cuGraphAddNode, NodeSetParams) and the walk at
 * instantiate, memory may be freed, replaced, or come to life under a word that was a plain
 * number. So each candidate word is kept with the range it hit, or with none; a hit pins the
 * owner. A birth is a function of the node alone: node handles are unique while nodes live.
 *
 * While the bytes of a node are those of its birth (the hash says so), its words are those of the
 * birth, also those that could not be read out of the bytes any more: descriptors that were
 * forgotten, pieces of a copy that were unmapped.
 *
 * Threads: any; one mutex guards the maps, taken once a node. Never held while the ledger's
 * locks are wanted by anything else than pin and unpin.
 */
#include <pthread.h>

#include "arena/binding.h"
#include "arena/body.h"
#include "arena/chunk.h"
#include "arena/map.h"
#include "arena/table.h"

struct birth {
	uint64_t graph, node;
	struct birth *next, *prev; /* births of one graph; next also links what is detached */
	uint64_t hash;		   /* of the bytes that the words were read from, 0: not known */
	uint32_t clock;		   /* binding_clock when the words were written */
	uint32_t words_count;
	struct ref words[]; /* owner NULL: hit nothing */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct map nodes;  /* node -> struct birth */
static struct map graphs; /* graph -> first struct birth; guarded by lock, too */

static size_t birth_bytes(uint32_t words_count)
{
	return sizeof(struct birth) + words_count * sizeof(struct ref);
}

static void birth_free(struct birth *b)
{
	for (uint32_t i = 0; i < b->words_count; i++)
		if (b->words[i].owner)
			ledger_unpin(b->words[i].owner);
	chunk_put(b, birth_bytes(b->words_count));
}

static struct birth *birth_new(uint32_t words_count)
{
	struct birth *b = chunk_get(birth_bytes(words_count));

	if (b)
		*b = (struct birth){ .words_count = words_count, .clock = binding_birth() };
	return b;
}

/* @w of a node of @kind as it reads now; a hit is pinned. */
static struct ref word_resolve(const struct word *w, enum node_kind kind)
{
	struct ref r = {
		.value = w->value,
		.param = w->param,
		.offset = w->offset,
		.confidence = w->confidence,
	};
	struct range_view view;

	if (word_find(w, &view) && ledger_pin(&view)) {
		r.owner = view.owner;
		r.generation = view.generation;
		r.bears = word_bears(kind, w->param, view.owner);
	}
	return r;
}

/* Into the list of its graph. Lock held. */
static void graph_link(struct birth *b, uint64_t graph)
{
	struct birth *first = map_get(&graphs, graph);

	/* Without a list the birth lives until its node is forgotten or born again. */
	if (!graph || map_put(&graphs, graph, b))
		return;
	b->graph = graph;
	b->next = first;
	if (first)
		first->prev = b;
}

static void graph_unlink(struct birth *b)
{
	if (b->next)
		b->next->prev = b->prev;
	if (b->prev)
		b->prev->next = b->next;
	else if (b->graph && b->next)
		map_put(&graphs, b->graph, b->next); /* overwrites, so it cannot fail */
	else if (b->graph)
		map_remove(&graphs, b->graph);
}

/* Take the birth of @node out of the maps. Lock held. */
static struct birth *birth_take(uint64_t node)
{
	struct birth *b = map_get(&nodes, node);

	if (b) {
		graph_unlink(b);
		map_remove(&nodes, node);
	}
	return b;
}

/* Make @b, which may be NULL, the birth of @node. */
static void birth_enter(struct birth *b, uint64_t graph, uint64_t node)
{
	struct birth *old, *lost = NULL;

	pthread_mutex_lock(&lock);
	old = birth_take(node);
	if (b) {
		b->node = node;
		if (map_put(&nodes, node, b))
			lost = b;
		else
			graph_link(b, graph || !old ? graph : old->graph);
	}
	pthread_mutex_unlock(&lock);
	counter_bump(!b || lost ? &exec_stats.dropped : &exec_stats.births);
	if (old)
		birth_free(old);
	if (lost)
		birth_free(lost);
}

void birth_record(const struct node_desc *n)
{
	struct birth *b = birth_new(n->words_count);

	if (b)
		b->hash = n->hash;
	for (uint32_t i = 0; b && i < n->words_count; i++)
		b->words[i] = word_resolve(&n->words[i], n->kind);
	birth_enter(b, n->graph, n->node);
}

static struct birth *birth_clone(const struct birth *from)
{
	struct birth *b = birth_new(from->words_count);

	if (b) {
		b->clock = from->clock;
		b->hash = from->hash;
	}
	for (uint32_t i = 0; b && i < from->words_count; i++) {
		const struct ref *r = &from->words[i];

		b->words[i] = *r;
		/* @from pins it, so this cannot fail. */
		if (r->owner)
			ledger_pin(&(struct range_view){ .owner = r->owner,
							 .generation = r->generation });
	}
	return b;
}

void birth_copy(uint64_t from_graph, uint64_t from_node, uint64_t to_graph, uint64_t to_node)
{
	const struct birth *from;
	struct birth *b = NULL;

	pthread_mutex_lock(&lock);
	from = map_get(&nodes, from_node);
	if (from)
		b = birth_clone(from);
	pthread_mutex_unlock(&lock);
	if (from)
		birth_enter(b, to_graph, to_node);
	else
		birth_forget_node(to_graph, to_node);
}

bool birth_known(uint64_t graph, uint64_t node)
{
	const struct birth *b;
	bool known;

	pthread_mutex_lock(&lock);
	b = map_get(&nodes, node);
	known = b && (b->graph == graph || !b->graph);
	pthread_mutex_unlock(&lock);
	return known;
}

struct birth *birth_detach_node(uint64_t node, struct birth *list)
{
	struct birth *b;

	pthread_mutex_lock(&lock);
	b = birth_take(node);
	pthread_mutex_unlock(&lock);
	if (!b)
		return list;
	b->next = list;
	return b;
}

struct birth *birth_detach_graph(uint64_t graph, struct birth *list)
{
	struct birth *first, *last = NULL;

	pthread_mutex_lock(&lock);
	first = map_get(&graphs, graph);
	map_remove(&graphs, graph);
	for (struct birth *b = first; b; last = b, b = b->next)
		map_remove(&nodes, b->node);
	pthread_mutex_unlock(&lock);
	if (!last)
		return list;
	last->next = list;
	return first;
}

void birth_attach(struct birth *list)
{
	struct birth *next, *lost = NULL;

	pthread_mutex_lock(&lock);
	for (struct birth *b = list; b; b = next) {
		uint64_t graph = b->graph;

		next = b->next;
		b->next = b->prev = NULL;
		b->graph = 0;
		/* A newer one: the node was born again while it was away. */
		if (map_get(&nodes, b->node) || map_put(&nodes, b->node, b)) {
			b->next = lost;
			lost = b;
		} else {
			graph_link(b, graph);
		}
	}
	pthread_mutex_unlock(&lock);
	birth_drop(lost);
}

void birth_drop(struct birth *list)
{
	struct birth *next;

	for (; list; list = next) {
		next = list->next;
		birth_free(list);
	}
}

void birth_forget_node(uint64_t graph, uint64_t node)
{
	birth_drop(birth_detach_node(node, NULL));
}

void birth_forget_graph(uint64_t graph)
{
	birth_drop(birth_detach_graph(graph, NULL));
}

/* The word of @b that was written where @w is; the scanner's order makes *@at right at once. */
static const struct ref *birth_word(const struct birth *b, const struct word *w, uint32_t *at)
{
	for (uint32_t k = 0; k < b->words_count; k++) {
		const struct ref *r = &b->words[*at];

		*at = *at + 1 < b->words_count ? *at + 1 : 0;
		if (r->param == w->param && r->offset == w->offset)
			return r->value == w->value ? r : NULL;
	}
	return NULL;
}

static int born_add(const struct ref *born, struct exec_body *to)
{
	if (!born->owner)
		return 0;
	if (born->confidence == CONFIDENCE_SUSPECT)
		return to->suspects++, 0;
	return body_add_ref(to, born);
}

/* The bytes are those of the birth. Lock held. */
static int add_all_born(const struct birth *b, struct exec_body *to)
{
	int err = 0;

	for (uint32_t i = 0; i < b->words_count && !err; i++)
		err = born_add(&b->words[i], to);
	to->nodes[to->nodes_count - 1].birth = b->clock;
	return err;
}

/* Word by word. Lock held; @b may be NULL. */
static int add_words(const struct node_desc *n, const struct birth *b, struct exec_body *to)
{
	bool is_born = true;
	uint32_t at = 0;
	int err = 0;

	/* All or nothing: a node with words that nobody saw written is of now. */
	for (uint32_t i = 0; i < n->words_count && !err; i++) {
		const struct ref *born = b ? birth_word(b, &n->words[i], &at) : NULL;

		is_born &= born != NULL;
		err = born ? born_add(born, to) : body_add_word(to, &n->words[i]);
	}
	if (is_born && b)
		to->nodes[to->nodes_count - 1].birth = b->clock;
	return err;
}

int birth_resolve(const struct node_desc *n, struct exec_body *to)
{
	struct birth *b;
	int err;

	if (!n->words_count && !n->hash)
		return 0;
	pthread_mutex_lock(&lock);
	b = map_get(&nodes, n->node);
	if (b && !b->graph)
		graph_link(b, n->graph);
	to->unborn |= !b && n->words_count;
	if (b && n->hash && b->hash == n->hash)
		err = add_all_born(b, to);
	else
		err = add_words(n, b, to);
	pthread_mutex_unlock(&lock);
	return err;
}

/* ---- births of the nodes of a captured launch ---- */

bool exec_replicate(uint64_t handle, struct exec_replica *out)
{
	struct exec *e;

	*out = (struct exec_replica){ .body = NULL };
	ledger_holders_lock();
	e = table_find(handle);
	if (e)
		out->body = body_pack(e->body);
	ledger_holders_unlock();
	return out->body != NULL;
}

void exec_replica_free(struct exec_replica *r)
{
	body_free(r->body);
}

static bool same_place(const struct exec_ref *r, const struct word *w)
{
	return r->param == w->param && r->offset == w->offset;
}

/* Ref @r of a body, pinned once more. */
static struct ref ref_copy(const struct exec_body *from, const struct exec_ref *r)
{
	const struct exec_owner *o = &from->owners[r->owner];

	/* @from pins it, so this cannot fail. */
	ledger_pin(&(struct range_view){ .owner = o->range, .generation = o->generation });
	return (struct ref){
		.value = body_value(from, r),
		.owner = o->range,
		.generation = o->generation,
		.param = r->param,
		.offset = r->offset,
		.confidence = r->confidence,
		.bears = o->bears,
	};
}

/* @w as the exec's node @n means it: what is no ref there hit nothing when it was written. */
static struct ref word_replicate(const struct exec_body *from, const struct exec_node *n,
				 const struct word *w)
{
	for (uint32_t k = n->first; k < n->first + n->count; k++)
		if (same_place(&from->refs[k], w))
			return ref_copy(from, &from->refs[k]);
	return (struct ref){ .value = w->value,
			     .param = w->param,
			     .offset = w->offset,
			     .confidence = w->confidence };
}

/* @return the word of @n that is written where @r is, or NULL. */
static const struct word *word_at(const struct node_desc *n, const struct exec_ref *r)
{
	for (uint32_t i = 0; i < n->words_count; i++)
		if (same_place(r, &n->words[i]))
			return &n->words[i];
	return NULL;
}

/* Is @n what node @at was made of, as far as the refs tell? */
static bool is_replica(const struct exec_body *from, const struct exec_node *at,
		       const struct node_desc *n)
{
	if (at->depth != n->depth || at->kind != (n->kind & 15) || at->name != n->name)
		return false;
	for (uint32_t k = at->first; k < at->first + at->count; k++) {
		const struct word *w = word_at(n, &from->refs[k]);

		/* A node whose bytes are hashed may have refs that cannot be read any more. */
		if (w ? w->value != body_value(from, &from->refs[k]) : !n->hash)
			return false;
	}
	return true;
}

static struct birth *birth_replica(const struct exec_body *from, const struct exec_node *at,
				   const struct node_desc *n)
{
	struct birth *b = birth_new(n->words_count + at->count);

	if (!b)
		return NULL;
	b->clock = at->birth;
	b->hash = n->hash;
	for (uint32_t i = 0; i < n->words_count; i++)
		b->words[i] = word_replicate(from, at, &n->words[i]);
	/* What cannot be read out of the bytes any more; the rest of the room hits nothing. */
	for (uint32_t k = 0; k < at->count; k++) {
		const struct exec_ref *r = &from->refs[at->first + k];

		b->words[n->words_count + k] =
			word_at(n, r) ? (struct ref){ .owner = NULL } : ref_copy(from, r);
	}
	return b;
}

bool birth_replicate(struct exec_replica *r, const struct node_desc *n)
{
	const struct exec_body *from = r->body;
	const struct exec_node *at;

	/* Bodies of conditional nodes: nobody can tell where they went. */
	while (r->next < from->nodes_count && from->nodes[r->next].depth > n->depth)
		r->next++;
	if (r->next == from->nodes_count)
		return false;
	at = &from->nodes[r->next++];
	if (!is_replica(from, at, n))
		return false;
	birth_enter(birth_replica(from, at, n), n->graph, n->node);
	return true;
}

void birth_each_ref(void (*tell)(uint64_t addr, uint64_t generation, uint32_t clock))
{
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < nodes.cap; i++) {
		const struct birth *b = nodes.slots[i].value;

		for (uint32_t k = 0; nodes.slots[i].key && k < b->words_count; k++)
			if (b->words[k].owner)
				tell(b->words[k].value, b->words[k].generation, b->clock);
	}
	pthread_mutex_unlock(&lock);
}
