/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Births: what the words of a template's node meant when they were written.
 *
 * Between the writing (a captured launch, cuGraphAddNode, NodeSetParams) and the walk at
 * instantiate, memory may be freed, replaced, or come to life under a word that was a plain
 * number. So each candidate word is kept with the range it hit, or with none; a hit pins the
 * owner. A birth is a function of the node alone: node handles are unique while nodes live.
 *
 * Threads: any; one mutex guards the maps, taken once a node. Never held while the ledger's
 * locks are wanted by anything else than pin and unpin.
 */
#include <pthread.h>

#include "arena/body.h"
#include "arena/chunk.h"
#include "arena/map.h"

struct birth {
	uint64_t graph, node;
	struct birth *next, *prev; /* births of one graph */
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
		*b = (struct birth){ .words_count = words_count };
	return b;
}

/* @w as it reads now; a hit is pinned. */
static struct ref word_resolve(const struct word *w)
{
	struct ref r = {
		.value = w->value,
		.param = w->param,
		.offset = w->offset,
		.confidence = w->confidence,
	};
	struct range_view view;

	if (ledger_find(w->value, &view) && ledger_pin(&view)) {
		r.owner = view.owner;
		r.generation = view.generation;
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

	for (uint32_t i = 0; b && i < n->words_count; i++)
		b->words[i] = word_resolve(&n->words[i]);
	birth_enter(b, n->graph, n->node);
}

static struct birth *birth_clone(const struct birth *from)
{
	struct birth *b = birth_new(from->words_count);

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

bool birth_known(uint64_t node)
{
	bool known;

	pthread_mutex_lock(&lock);
	known = map_get(&nodes, node) != NULL;
	pthread_mutex_unlock(&lock);
	return known;
}

void birth_forget_node(uint64_t graph, uint64_t node)
{
	struct birth *b;

	pthread_mutex_lock(&lock);
	b = birth_take(node);
	pthread_mutex_unlock(&lock);
	if (b)
		birth_free(b);
}

void birth_forget_graph(uint64_t graph)
{
	struct birth *b, *next;

	pthread_mutex_lock(&lock);
	b = map_get(&graphs, graph);
	map_remove(&graphs, graph);
	for (next = b; next; next = next->next)
		map_remove(&nodes, next->node);
	pthread_mutex_unlock(&lock);
	for (; b; b = next) {
		next = b->next;
		birth_free(b);
	}
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

static int word_add(const struct ref *born, const struct word *w, struct exec_body *to)
{
	if (!born)
		return body_add_word(to, w);
	if (!born->owner)
		return 0;
	if (w->confidence == CONFIDENCE_SUSPECT)
		return to->suspects++, 0;
	return body_add_ref(to, born);
}

int birth_resolve(const struct node_desc *n, struct exec_body *to)
{
	struct birth *b;
	uint32_t at = 0;
	int err = 0;

	if (!n->words_count)
		return 0;
	pthread_mutex_lock(&lock);
	b = map_get(&nodes, n->node);
	if (b && !b->graph)
		graph_link(b, n->graph);
	for (uint32_t i = 0; i < n->words_count && !err; i++)
		err = word_add(b ? birth_word(b, &n->words[i], &at) : NULL, &n->words[i], to);
	pthread_mutex_unlock(&lock);
	return err;
}
