/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads in one reload, with a printed seed (ARENA_TEST_SEED). A plain program, so that it runs
 * under TSan as it is. Arguments: threads, rounds.
 *
 * Each thread stages and commits a layer of its own, or one that it shares with a neighbour, while
 * others launch graphs over them and ask for the state. A round is opened and closed by the main
 * thread, which waits for the others first, or does not. A launch must find both values of a
 * layer from one publication.
 */
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>

#include "arena/exec.h"
#include "fake_device.h"
#include "seed.h"

#define THREADS_MAX 64
#define WATCHERS    2
#define BYTES	    256u

enum mode { WAITED, ABORTED, RACED, MODE_COUNT };

struct layer {
	struct arena *arena;
	struct slot *w, *v;
	char key[16];
	_Atomic bool is_staged; /* in this round, all of it */
};

static struct layer layers[THREADS_MAX];
static unsigned threads = 16, rounds = 200;
static pthread_barrier_t barrier; /* a round begins; it ends */
static _Atomic bool over;
static _Atomic uint64_t seen_values;
/* Of the round; written by the main thread before the barrier. */
static enum mode mode;
static int value;
static bool is_shared;
static unsigned bad; /* the thread that forgets a receipt; >= threads: none */

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, " (%s)\n", arena_message());
	exit(1);
}

/* ---- loading ---- */

static bool allowed(int rc, bool shared)
{
	if (rc == 0 || (rc == ARENA_E_BUSY && (shared || mode != WAITED)))
		return true;
	return rc == ARENA_E_REFUSED && bad < threads;
}

/* Unless the round is over, or about to be: then nobody would publish it. */
static void stage(struct layer *y, const char *name)
{
	uint64_t id;
	int rc = reload_enter_put(&id);

	if (rc != 0 && (mode == WAITED || rc != ARENA_E_BUSY))
		fail("put: %d", rc);
	if (rc != 0)
		return;
	if (id == 0 && mode == WAITED)
		fail("no reload is open");
	if (id != 0 && fake_stage(y->arena, name, BYTES, value) != 0)
		fail("stage");
	reload_leave_put();
}

static void load(unsigned t)
{
	unsigned l = is_shared ? t / 2 * 2 : t;
	struct layer *y = &layers[l];
	bool shared = is_shared && (l + 1 < threads);
	int rc;

	if (scope_enter(y->arena) != 0)
		fail("no scope");
	if (l == t && bad != t) {
		rc = reload_receive(y->key, 0, BYTES);
		if (rc != 0 && (mode == WAITED || rc != ARENA_E_BUSY))
			fail("receive: %d", rc);
	}
	if (l == t) {
		stage(y, "w");
		stage(y, "v");
		/* Release pairs with the acquire below. */
		store_release(&y->is_staged, true);
	}
	/* A neighbour that came earlier would publish one value alone. */
	while (!load_acquire(&y->is_staged))
		sched_yield();
	rc = reload_commit(y->arena, FAKE_STREAM + t);
	if (!allowed(rc, shared))
		fail("commit of layer %u in mode %u: %d", l, mode, rc);
	if (scope_leave() != 0)
		fail("scope lost");
}

static void *work(void *arg)
{
	unsigned t = (unsigned)(uintptr_t)arg;

	for (unsigned i = 0; i < rounds; i++) {
		pthread_barrier_wait(&barrier);
		load(t);
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

/* ---- watching ---- */

/* The order of launch and publication is kept by membarrier(), which TSan does not know. */
static __attribute__((no_sanitize("thread"))) bool halves_differ(const struct layer *y)
{
	const volatile char *w = (const volatile char *)(uintptr_t)y->w->base;
	const volatile char *v = (const volatile char *)(uintptr_t)y->v->base;

	for (unsigned i = 0; i < BYTES; i++)
		if (w[i] != v[BYTES - 1 - i])
			return true;
	return false;
}

static void *watch(void *arg)
{
	uint64_t seed = (uint64_t)(uintptr_t)arg, generation = 0;
	struct reload_outcome o;
	enum reload_verdict last;

	while (!load_relaxed(&over)) {
		unsigned l = (unsigned)seed_below(&seed, threads);

		if (guard_launch(l + 1, FAKE_STREAM)) {
			if (halves_differ(&layers[l]))
				fail("layer %u was half published", l);
			add_relaxed(&seen_values, 1);
		}
		guard_launched();
		if (reload_generation() < generation)
			fail("the generation went back");
		generation = reload_generation();
		reload_last(&last);
		stage_peak_bytes();
		if (reload_end(reload_id() + 1000000, &o) == 0)
			fail("closed by a stranger");
	}
	return NULL;
}

/* ---- rounds ---- */

static void check_layers(int before, const struct reload_outcome *o)
{
	for (unsigned l = 0; l < threads; l++) {
		int w = fake_value(layers[l].w);
		bool takes_part = !is_shared || l % 2 == 0;

		if (w != fake_value(layers[l].v))
			fail("layer %u is half published", l);
		if (mode != WAITED)
			continue;
		if (w != (bad != l && takes_part ? value : before) && !is_shared)
			fail("layer %u has %d", l, w);
	}
	if (mode == WAITED && !is_shared && o->layers_refused != (bad < threads))
		fail("%u layers refused", o->layers_refused);
	if (mode == WAITED && !is_shared &&
	    o->verdict != (bad < threads ? RELOAD_FAIL : RELOAD_PASS))
		fail("verdict %d", o->verdict);
	if (load_relaxed(&fake.bytes_live) != storage_bytes())
		fail("shadows are left");
}

static void round_run(uint64_t *seed, unsigned i)
{
	struct reload_outcome o;
	int before = value, err;
	uint64_t id;

	mode = i == 0 ? WAITED : (enum mode)seed_below(seed, MODE_COUNT);
	is_shared = i != 0 && seed_below(seed, 3) == 0;
	bad = i != 0 && seed_below(seed, 4) == 0 ? (unsigned)seed_below(seed, threads) : threads;
	value = (int)(i % 200) + 1;
	for (unsigned l = 0; l < threads; l++)
		store_relaxed(&layers[l].is_staged, false);
	if (reload_begin(NULL, &id) != 0)
		fail("begin");
	pthread_barrier_wait(&barrier);
	if (mode == WAITED)
		pthread_barrier_wait(&barrier);
	err = mode == ABORTED ? reload_abort(id, "cancelled", &o) : reload_end(id, &o);
	if (err)
		fail("end: %d", err);
	if (mode != WAITED)
		pthread_barrier_wait(&barrier);
	check_layers(before, &o);
	reload_outcome_free(&o);
	pthread_barrier_wait(&barrier);
}

/* A whole reload by this thread alone: every layer has one value again. */
static void level(int to)
{
	struct reload_outcome o;
	uint64_t id;

	if (reload_begin(NULL, &id) != 0)
		fail("begin");
	for (unsigned l = 0; l < threads; l++) {
		scope_enter(layers[l].arena);
		reload_receive(layers[l].key, 0, BYTES);
		fake_stage(layers[l].arena, "w", BYTES, to);
		fake_stage(layers[l].arena, "v", BYTES, to);
		if (reload_commit(layers[l].arena, FAKE_STREAM) != 0)
			fail("commit of layer %u alone", l);
		scope_leave();
	}
	if (reload_end(id, &o) != 0 || o.verdict != RELOAD_PASS || reload_unsafe())
		fail("a good reload: verdict %d", o.verdict);
	reload_outcome_free(&o);
	value = to;
}

static void make_layer(unsigned l)
{
	struct word words[2];
	struct node_desc n = {
		.graph = 1, .node = l + 1, .kind = NODE_KERNEL, .words = words, .words_count = 2
	};
	struct exec_builder *b = exec_build_begin();
	struct layer *y = &layers[l];
	char path[32];

	snprintf(path, sizeof(path), "m.layers.%u", l);
	snprintf(y->key, sizeof(y->key), "k%u", l);
	y->arena = fake_arena(path);
	y->w = fake_slot(y->arena, "w", ARENA_VALUE, BYTES);
	y->v = fake_slot(y->arena, "v", ARENA_VALUE, BYTES);
	words[0] = (struct word){ .value = y->w->base, .confidence = CONFIDENCE_EXACT };
	words[1] = (struct word){ .value = y->v->base, .param = 1, .confidence = CONFIDENCE_EXACT };
	exec_build_node(b, &n);
	exec_open(l + 1, 1, b);
}

int main(int argc, char **argv)
{
	uint64_t seed = seed_start("stress_reload");
	pthread_t workers[THREADS_MAX], watchers[WATCHERS];

	if (argc == 3) {
		threads = (unsigned)atoi(argv[1]);
		rounds = (unsigned)atoi(argv[2]);
	}
	if (threads < 1 || threads > THREADS_MAX)
		return 2;
	fake_start();
	guard_refuses = true;
	for (unsigned l = 0; l < threads; l++)
		make_layer(l);
	pthread_barrier_init(&barrier, NULL, threads + 1);
	for (unsigned i = 0; i < WATCHERS; i++)
		pthread_create(&watchers[i], NULL, watch, (void *)(uintptr_t)(seed + i));
	level(200);
	for (unsigned t = 0; t < threads; t++)
		pthread_create(&workers[t], NULL, work, (void *)(uintptr_t)t);
	for (unsigned i = 0; i < rounds; i++) {
		round_run(&seed, i);
		level((int)(i % 50) + 200);
	}
	store_relaxed(&over, true);
	for (unsigned t = 0; t < threads; t++)
		pthread_join(workers[t], NULL);
	for (unsigned i = 0; i < WATCHERS; i++)
		pthread_join(watchers[i], NULL);
	printf("%u threads, %u rounds, %lu launches looked at\n", threads, rounds,
	       (unsigned long)load_relaxed(&seen_values));
	return load_relaxed(&seen_values) == 0;
}
