/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two maps, node -> struct witness and graph -> struct told_graph, and for each thread the order
 * in which it was told. Events of one call come on one thread, one after the other: that is how
 * bodies find their node. Any thread; see witness.h.
 */
#include "arena/witness.h"

#include <pthread.h>

#include "arena/body.h"
#include "arena/chunk.h"
#include "arena/map.h"

struct told_graph {
	uint64_t graph, original;
	uint64_t thread;
	uint32_t sequence;
	bool expected;
};

QUICK_WORD _Atomic bool witness_on;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct map nodes;  /* node -> struct witness; guarded by lock */
static struct map graphs; /* graph -> struct told_graph; guarded by lock */

/* What this thread is being told. The array goes when the exec is made. */
static _Thread_local struct {
	uint64_t thread; /* its number, 0: none yet */
	uint64_t *originals;
	uint32_t count, cap;
	uint32_t sequence;
	bool in_exec, framed, expects;
} told __attribute__((tls_model("initial-exec")));

static uint64_t this_thread(void)
{
	static _Atomic uint64_t last;

	if (told.thread == 0)
		told.thread = add_relaxed(&last, 1) + 1;
	return told.thread;
}

void witness_lock(void)
{
	pthread_mutex_lock(&lock);
}

void witness_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

struct witness *witness_get(uint64_t node)
{
	return map_get(&nodes, node);
}

/* ---- graphs ---- */

void witness_graph(uint64_t graph, uint64_t original)
{
	struct told_graph *g;

	witness_lock();
	g = map_get(&graphs, graph);
	if (!g) {
		g = chunk_get(sizeof(*g));
		if (g)
			g->original = 0;
		if (g && map_put(&graphs, graph, g)) {
			chunk_put(g, sizeof(*g));
			g = NULL;
		}
	}
	/* A clone may be told twice, as a clone and as a new graph: it stays a clone. */
	if (g && (original || !g->original))
		*g = (struct told_graph){
			.graph = graph,
			.original = original,
			.thread = this_thread(),
			.sequence = ++told.sequence,
			.expected = told.expects,
		};
	witness_unlock();
}

void witness_expect_graph(bool on)
{
	told.expects = on;
	witness_exec_over();
}

bool witness_complete(uint64_t graph)
{
	bool is;

	witness_lock();
	is = map_get(&graphs, graph) != NULL;
	witness_unlock();
	return is;
}

/* ---- nodes ---- */

static size_t witness_bytes(uint32_t refs_cap)
{
	return sizeof(struct witness) + refs_cap * sizeof(struct witness_ref);
}

static void witness_free(struct witness *w)
{
	if (w)
		chunk_put(w, witness_bytes(w->refs_cap));
}

static struct witness *witness_new(uint32_t refs_cap)
{
	struct witness *w = chunk_get(witness_bytes(refs_cap));

	if (w)
		*w = (struct witness){ .refs_cap = refs_cap };
	return w;
}

static void resolve(struct witness *w, const struct node_desc *n)
{
	struct range_view view;

	for (uint32_t i = 0; i < n->words_count; i++)
		if (n->words[i].confidence != CONFIDENCE_SUSPECT && word_find(&n->words[i], &view))
			w->refs[w->refs_count++] = (struct witness_ref){
				.value = n->words[i].value,
				.generation = view.generation,
			};
}

/* Make @w, which may be NULL, what is known of its node. Lock held. @return what was. */
static struct witness *enter(struct witness *w, uint64_t node)
{
	struct witness *old = map_get(&nodes, node);

	if (!w || map_put(&nodes, node, w)) {
		map_remove(&nodes, node);
		witness_free(w);
	}
	return old;
}

void witness_node(const struct node_desc *n)
{
	struct witness *w = witness_new(n->words_count), *old;

	if (w) {
		w->node = n->node;
		w->name = n->name;
		w->graph = n->graph;
		w->thread = this_thread();
		w->sequence = ++told.sequence;
		resolve(w, n);
	}
	witness_lock();
	old = enter(w, n->node);
	witness_unlock();
	witness_free(old);
}

static void note_original(uint64_t node)
{
	if (told.in_exec &&
	    chunk_grow(&told.originals, &told.cap, told.count + 1, sizeof(*told.originals)) == 0)
		told.originals[told.count++] = node;
}

void witness_clone(uint64_t from_node, uint64_t to_graph, uint64_t to_node)
{
	const struct witness *from;
	struct witness *w, *old;

	note_original(from_node);
	witness_lock();
	from = map_get(&nodes, from_node);
	w = from ? witness_new(from->refs_count) : NULL;
	if (w) {
		w->node = to_node;
		w->graph = to_graph;
		w->original = from_node;
		w->thread = this_thread();
		w->sequence = ++told.sequence;
		w->name = from->name;
		w->is_changed = from->is_changed;
		w->refs_count = from->refs_count;
		for (uint32_t i = 0; i < w->refs_count; i++)
			w->refs[i] = from->refs[i];
	}
	old = enter(w, to_node);
	witness_unlock();
	witness_free(old);
}

void witness_changed(uint64_t node)
{
	struct witness *w;

	witness_lock();
	w = map_get(&nodes, node);
	if (w)
		w->is_changed = true;
	witness_unlock();
}

bool witness_cloned(uint64_t graph, uint64_t node)
{
	const struct witness *w;
	bool cloned;

	witness_lock();
	w = map_get(&nodes, node);
	cloned = w && w->original && w->graph == graph;
	witness_unlock();
	return cloned;
}

bool witness_original(uint64_t node, uint64_t *graph, uint64_t *original)
{
	const struct witness *w, *from;

	witness_lock();
	w = map_get(&nodes, node);
	from = w && w->original ? map_get(&nodes, w->original) : NULL;
	if (from) {
		*graph = from->graph;
		*original = from->node;
	}
	witness_unlock();
	return from != NULL;
}

/* ---- what is forgotten ---- */

void witness_forget_node(uint64_t node)
{
	struct witness *old;

	witness_lock();
	old = enter(NULL, node);
	witness_unlock();
	witness_free(old);
}

/* Removal moves entries, so each round begins anew; a graph that was never told has no node. */
void witness_forget_graph(uint64_t graph)
{
	struct told_graph *g;
	uint32_t i = 0;

	witness_lock();
	g = map_get(&graphs, graph);
	map_remove(&graphs, graph);
	while (g && i < nodes.cap) {
		struct witness *w = nodes.slots[i].key ? nodes.slots[i].value : NULL;

		if (w && w->graph == graph)
			witness_free(enter(NULL, w->node)); /* another may have moved here */
		else
			i++;
	}
	witness_unlock();
	if (g)
		chunk_put(g, sizeof(*g));
}

static void empty(struct map *m, void (*release)(void *value))
{
	for (uint32_t i = 0; i < m->cap; i++)
		if (m->slots[i].key)
			release(m->slots[i].value);
	for (uint32_t i = 0; i < m->cap; i++)
		m->slots[i] = (struct map_slot){ 0, NULL };
	m->count = 0;
}

static void release_node(void *w)
{
	witness_free(w);
}

static void release_graph(void *g)
{
	chunk_put(g, sizeof(struct told_graph));
}

void witness_clear(void)
{
	witness_lock();
	empty(&nodes, release_node);
	empty(&graphs, release_graph);
	witness_unlock();
}

/* ---- who belongs to whom ---- */

static uint32_t distance(uint32_t a, uint32_t b)
{
	return a > b ? a - b : b - a;
}

uint64_t witness_clone_beside(uint64_t node, uint64_t original)
{
	const struct told_graph *best = NULL;
	const struct witness *w;

	witness_lock();
	w = map_get(&nodes, node);
	for (uint32_t i = 0; w && i < graphs.cap; i++) {
		const struct told_graph *g = graphs.slots[i].key ? graphs.slots[i].value : NULL;

		if (g && g->original == original && g->thread == w->thread &&
		    (!best ||
		     distance(g->sequence, w->sequence) < distance(best->sequence, w->sequence)))
			best = g;
	}
	node = best ? best->graph : 0;
	witness_unlock();
	return node;
}

/* The graph that @thread was told of as number @sequence and that may be a body. Lock held. */
static uint64_t body_at(uint64_t thread, uint32_t sequence)
{
	for (uint32_t i = 0; i < graphs.cap; i++) {
		const struct told_graph *g = graphs.slots[i].key ? graphs.slots[i].value : NULL;

		if (g && g->thread == thread && g->sequence == sequence)
			return g->original || g->expected ? 0 : g->graph;
	}
	return 0;
}

uint64_t witness_body(uint64_t node, uint32_t index)
{
	const struct witness *w;
	uint64_t body = 0;
	uint32_t first;

	witness_lock();
	w = map_get(&nodes, node);
	if (w && !w->original) {
		/* Told before their node, or after it. */
		for (first = w->sequence; body_at(w->thread, first - 1); first--)
			;
		body = body_at(w->thread,
			       first < w->sequence ? first + index : w->sequence + 1 + index);
		if (first < w->sequence && first + index >= w->sequence)
			body = 0;
	}
	witness_unlock();
	return body;
}

/* ---- the exec in hand ---- */

void witness_exec_begin(bool framed)
{
	if (told.framed)
		return;
	told.count = 0;
	told.in_exec = true;
	told.framed = framed;
}

bool witness_exec_end(bool framed)
{
	if (told.framed && !framed)
		return false;
	told.in_exec = told.framed = false;
	told.count = 0;
	chunk_put(told.originals, told.cap * sizeof(*told.originals));
	told.originals = NULL;
	told.cap = 0;
	return true;
}

void witness_exec_over(void)
{
	if (!told.framed)
		told.in_exec = false;
}

bool witness_in_exec(void)
{
	return told.in_exec;
}

const uint64_t *witness_originals(uint32_t *count)
{
	*count = told.count;
	return told.originals;
}

void witness_each(uint64_t graph, void (*tell)(void *to, struct witness *w), void *to)
{
	for (uint32_t i = 0; i < nodes.cap; i++) {
		struct witness *w = nodes.slots[i].key ? nodes.slots[i].value : NULL;

		if (w && w->graph == graph)
			tell(to, w);
	}
}
