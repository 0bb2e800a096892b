/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads on ledger, births and execs, with a printed seed (ARENA_TEST_SEED). A plain program, so
 * that it runs under TSan as it is. Argument: rounds per thread.
 *
 * Each thread has memory, a template and execs of its own and knows the verdict of each launch of
 * them. All threads also hold shared memory that any of them frees, and launch execs that another
 * thread may just destroy: there only order and memory are checked. One exec is sound all the time
 * and one is stale all the time, whoever launches them. At the end nothing is held.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "arena/device.h"
#include "arena/exec.h"
#include "arena/sync.h"
#include "tests/unit/seed.h"

#define THREADS	       8
#define PLACES	       6 /* of one thread; the last one is a part of a reservation */
#define SHARED	       4
#define EXECS	       3
#define NODES	       3
#define MIB	       ((uint64_t)1 << 20)
#define BASE(t, p)     ((uint64_t)0x7f0000000000 + ((uint64_t)(t)*PLACES + (p)) * 2 * MIB)
#define SHARED_BASE(p) ((uint64_t)0x100000000000 + (p)*2 * MIB)
#define STEADY	       ((uint64_t)0x180000000000)
#define STEADY_MAPPED  ((uint64_t)0x190000000000)
#define GONE	       ((uint64_t)0x1a0000000000)
#define HANDLE(t, e)   ((uint64_t)(t)*EXECS + (e) + 1)
#define NODE(t, i)     ((uint64_t)(t)*NODES + (i) + 1)

struct ref {
	unsigned place;
	uint64_t generation;
}; /* generation 0: none */
struct exec_model {
	bool is_live;
	struct ref refs[NODES];
};

struct worker {
	pthread_t thread;
	unsigned number;
	uint64_t seed;
	uint64_t generations[PLACES]; /* 0: nothing there */
	bool is_mapped;
	struct exec_model execs[EXECS];
};

static unsigned rounds = 20000;
static struct worker workers[THREADS];
static pthread_mutex_t shared_locks[SHARED];
static bool shared_live[SHARED];

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static unsigned below(struct worker *w, unsigned limit)
{
	return (unsigned)seed_below(&w->seed, limit);
}

static bool busy(uint64_t stream)
{
	return stream & 1;
}

static uint64_t open_at(enum range_kind kind, uint64_t base)
{
	struct range *r =
		ledger_open(&(struct range_desc){ .base = base, .size_bytes = MIB, .kind = kind });

	if (!r)
		fail("no memory for %#lx", (unsigned long)base);
	return load_relaxed(&r->generation);
}

static void free_at(uint64_t base, bool done)
{
	struct range *r = ledger_close_begin(base, 0);

	if (!r)
		fail("%#lx is lost", (unsigned long)base);
	ledger_close_end(r, done);
}

static void toggle_own(struct worker *w, unsigned p)
{
	if (w->generations[p] == 0) {
		w->generations[p] = open_at(RANGE_DEVICE, BASE(w->number, p));
		return;
	}
	if (below(w, 4) == 0) {
		free_at(BASE(w->number, p), false);
		return;
	}
	free_at(BASE(w->number, p), true);
	w->generations[p] = 0;
}

static void toggle_mapping(struct worker *w)
{
	uint64_t base = BASE(w->number, PLACES - 1);
	struct unmap_batch b = { 0 };

	if (w->is_mapped) {
		ledger_unmap_begin(base, MIB, 0, &b);
		ledger_unmap_end(&b, true);
	} else if (!ledger_map(&(struct range_desc){
			   .base = base, .size_bytes = MIB, .kind = RANGE_MAPPED })) {
		fail("no memory for a mapping");
	}
	w->is_mapped = !w->is_mapped;
}

static void toggle_shared(struct worker *w)
{
	unsigned p = below(w, SHARED);

	pthread_mutex_lock(&shared_locks[p]);
	if (shared_live[p])
		free_at(SHARED_BASE(p), true);
	else
		open_at(RANGE_POOL, SHARED_BASE(p));
	shared_live[p] = !shared_live[p];
	pthread_mutex_unlock(&shared_locks[p]);
}

static struct ref resolve(const struct worker *w, unsigned p)
{
	bool is_there = p < PLACES - 1 || w->is_mapped;

	return (struct ref){ p, is_there ? w->generations[p] : 0 };
}

static bool is_stale(const struct worker *w, const struct ref *r)
{
	return r->generation && (r->generation != w->generations[r->place] ||
				 (r->place == PLACES - 1 && !w->is_mapped));
}

/* Node @i with one word of this thread's memory. */
static struct node_desc node_of(struct worker *w, unsigned i, struct word *word, unsigned p)
{
	*word = (struct word){ .value = BASE(w->number, p) + 64, .confidence = CONFIDENCE_EXACT };
	return (struct node_desc){
		.graph = w->number + 1, .node = NODE(w->number, i), .words = word, .words_count = 1
	};
}

/* Instantiate or update: nodes are born now, and one more node reads shared memory. */
static void build(struct worker *w, unsigned e)
{
	struct exec_builder *b = exec_build_begin();
	struct exec_model *m = &w->execs[e];
	struct word word;

	for (unsigned i = 0; i < NODES; i++) {
		unsigned p = below(w, PLACES);
		struct node_desc n = node_of(w, i, &word, p);

		m->refs[i] = resolve(w, p);
		birth_record(&n);
		if (below(w, 2))
			birth_copy(n.graph, n.node, n.graph + THREADS, n.node + 10000);
		exec_build_node(b, &n);
	}
	if (m->is_live && below(w, 2))
		exec_update(HANDLE(w->number, e), b);
	else
		exec_open(HANDLE(w->number, e), w->number + 1, b);
	m->is_live = true;
}

/* A mirror of somebody who reads shared memory; nobody knows its verdict. */
static void build_shared(struct worker *w)
{
	uint64_t handle = HANDLE(THREADS, below(w, 4));
	struct word word = { .value = SHARED_BASE(below(w, SHARED)) + 8,
			     .confidence = CONFIDENCE_STRUCT };
	struct node_desc n = { .graph = 1, .node = 1, .words = &word, .words_count = 1 };
	struct exec_builder *b;

	switch (below(w, 4)) {
	case 0:
		b = exec_build_begin();
		exec_build_node(b, &n);
		exec_open(handle, 0, b);
		break;
	case 1:
		exec_close(handle);
		break;
	case 2:
		exec_set_node(handle, &n);
		break;
	default:
		guard_launch(handle, w->number);
	}
}

/* Memory that nobody can free: the driver refuses each time. Its graph is sound all the time. */
static void build_steady(void)
{
	struct word words[] = { { .value = STEADY, .confidence = CONFIDENCE_EXACT },
				{ .value = STEADY_MAPPED, .confidence = CONFIDENCE_EXACT } };
	struct node_desc n = { .graph = 1000, .node = 1000, .words = words, .words_count = 2 };
	struct exec_builder *b = exec_build_begin();

	open_at(RANGE_DEVICE, STEADY);
	open_at(RANGE_RESERVED, STEADY_MAPPED);
	ledger_map(&(struct range_desc){
		.base = STEADY_MAPPED, .size_bytes = MIB, .kind = RANGE_MAPPED });
	exec_build_node(b, &n);
	exec_open(HANDLE(THREADS + 2, 0), 0, b);
}

/* Memory that was freed before anybody launches. */
static void build_gone(void)
{
	struct word word = { .value = GONE, .confidence = CONFIDENCE_EXACT };
	struct node_desc n = { .graph = 1001, .node = 1001, .words = &word, .words_count = 1 };
	struct exec_builder *b = exec_build_begin();

	open_at(RANGE_DEVICE, GONE);
	exec_build_node(b, &n);
	exec_open(HANDLE(THREADS + 2, 1), 0, b);
	free_at(GONE, true);
}

static void use_steady(struct worker *w)
{
	struct unmap_batch b = { 0 };

	switch (below(w, 4)) {
	case 0:
		/* NULL: another thread is at it. */
		ledger_close_end(ledger_close_begin(STEADY, 0), false);
		break;
	case 1:
		ledger_unmap_begin(STEADY_MAPPED, MIB, 0, &b);
		ledger_unmap_end(&b, false);
		break;
	case 2:
		for (unsigned i = 0; i < 20; i++)
			if (guard_launch(HANDLE(THREADS + 2, 1), w->number))
				fail("thread %u: one of many launches is missed", w->number);
		break;
	default:
		if (!guard_launch(HANDLE(THREADS + 2, 0), w->number))
			fail("thread %u: a launch is refused, as a free was", w->number);
		guard_launched();
	}
}

static void edit(struct worker *w, unsigned e)
{
	unsigned i = below(w, NODES), p = below(w, PLACES);
	struct word word;
	struct node_desc n = node_of(w, i, &word, p);

	if (!w->execs[e].is_live)
		return;
	exec_set_node(HANDLE(w->number, e), &n);
	w->execs[e].refs[i] = resolve(w, p);
}

static void launch(struct worker *w, unsigned e)
{
	struct exec_model *m = &w->execs[e];
	bool stale = false;

	if (!m->is_live)
		return;
	for (unsigned i = 0; i < NODES; i++)
		stale |= is_stale(w, &m->refs[i]);
	if (guard_launch(HANDLE(w->number, e), w->number) == stale)
		fail("thread %u: a launch is %s", w->number, stale ? "missed" : "refused");
}

static void *work(void *arg)
{
	struct worker *w = arg;

	w->generations[PLACES - 1] = open_at(RANGE_RESERVED, BASE(w->number, PLACES - 1));
	for (unsigned i = 0; i < rounds; i++) {
		unsigned e = below(w, EXECS);

		switch (below(w, 10)) {
		case 0:
			toggle_own(w, below(w, PLACES - 1));
			break;
		case 1:
			toggle_mapping(w);
			break;
		case 2:
			toggle_shared(w);
			break;
		case 3:
			build(w, e);
			break;
		case 4:
			build_shared(w);
			break;
		case 5:
			edit(w, e);
			break;
		case 6:
			use_steady(w);
			break;
		case 7:
			if (below(w, 4) == 0) {
				exec_close_context(w->number + 1);
				for (e = 0; e < EXECS; e++)
					w->execs[e].is_live = false;
			}
			break;
		default:
			launch(w, e);
		}
	}
	exec_close_context(w->number + 1);
	birth_forget_graph(w->number + 1);
	birth_forget_graph(w->number + 1 + THREADS);
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t seed = seed_start("stress_graph");
	struct exec_counters c;

	if (argc > 1)
		rounds = (unsigned)strtoul(argv[1], NULL, 0);
	if (ledger_init())
		fail("no memory for the ledger");
	guard_refuses = true;
	device.stream_busy = busy;
	build_steady();
	build_gone();
	for (unsigned t = 0; t < THREADS; t++) {
		workers[t].number = t;
		workers[t].seed = seed_next(&seed);
		if (t < SHARED)
			pthread_mutex_init(&shared_locks[t], NULL);
	}
	for (unsigned t = 0; t < THREADS; t++)
		if (pthread_create(&workers[t].thread, NULL, work, &workers[t]))
			fail("no thread");
	for (unsigned t = 0; t < THREADS; t++)
		pthread_join(workers[t].thread, NULL);
	exec_close_context(0);
	exec_read_counters(&c);
	fprintf(stderr, "# %lu execs, %lu launches judged, %lu refused, %lu findings\n",
		(unsigned long)c.execs_opened, (unsigned long)c.launches_judged,
		(unsigned long)c.launches_refused, (unsigned long)finding_count(SEVERITY_ERROR));
	if (c.execs_live || c.bytes || c.dropped)
		fail("%lu execs and %lu bytes are left, %lu dropped", (unsigned long)c.execs_live,
		     (unsigned long)c.bytes, (unsigned long)c.dropped);
	if (!c.launches_refused)
		fail("nothing was ever stale");
	return 0;
}
