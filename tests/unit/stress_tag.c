/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tags, kept virtual memory and objects from many threads, each in an arena of its own: what one is
 * served another frees, while layers are published and sequences are verified. Then value tags of
 * one arena from all threads, of which some end under their tag, while reloads begin, commit and
 * end, and puts want the same slots. Then objects whose factories ask for each other.
 *
 *	stress_tag PASSES
 */
#include <pthread.h>

#include "arena/keep.h"
#include "arena/object.h"
#include "fake_device.h"
#include "seed.h"

#define THREADS 8
#define BYTES	1024u
#define GRANULE ((uint64_t)2 << 20)

#define MUST(condition)                                                                 \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			exit(EXIT_FAILURE);                                             \
		}                                                                       \
	} while (0)

static int passes;
static _Atomic uint64_t mail[THREADS]; /* addresses for another thread to free */
static _Atomic int objects_made;
static _Atomic bool done;

static struct arena *layer_of(unsigned n)
{
	char path[32];

	snprintf(path, sizeof(path), "layer%u", n);
	return fake_arena(path);
}

/* One allocation under a tag. Even threads have scratch, odd ones values. */
static uint64_t allocate(unsigned n)
{
	uint64_t addr = 0;

	MUST(tag_push("t", n % 2 ? ARENA_VALUE : ARENA_SCRATCH) == 0);
	MUST(tag_serve(&(struct tag_request){ .bytes = BYTES, .align = 1 }, &addr));
	MUST(tag_pop() == 0);
	return addr;
}

static void free_mail(unsigned box, uint64_t put)
{
	/* Pairs with the exchange of the thread that put it there. */
	uint64_t addr = swap_acq_rel(&mail[box], put);
	struct range_view v;

	/* Its range has not ended with the free of whoever had its address before. */
	MUST(addr == 0 || ledger_find(addr, &v));
	MUST(addr == 0 || tag_absorb(addr) == TAG_ABSORBED);
}

/* Virtual memory, of which the first pass is the driver's. */
static void map_and_unmap(unsigned n, bool first)
{
	const struct keep_physical p = { .bytes = GRANULE };
	struct keep_mapping m = { .bytes = GRANULE };
	uint64_t base = ((uint64_t)n + 1) << 40, handle = n + 1;
	struct keep_ticket t;

	MUST(tag_push("vm", ARENA_SCRATCH) == 0);
	if (keep_reserve(GRANULE, 0, &m.base, &t) == KEEP_FORWARD) {
		MUST(first);
		m.base = base;
		keep_reserved(&t, base, GRANULE);
	}
	if (keep_create(&p, &m.handle, &t) == KEEP_FORWARD) {
		MUST(first);
		m.handle = handle;
		keep_created(&t, &p, handle);
	}
	if (keep_map(&m) == KEEP_FORWARD) {
		MUST(first);
		keep_mapped(&m);
	}
	MUST(tag_pop() == 0 && m.base == base && m.handle == handle);
	MUST(keep_unmap(base, GRANULE) == KEEP_ABSORBED);
	MUST(keep_release(handle) == KEEP_ABSORBED);
	MUST(keep_address_free(base, GRANULE) == KEEP_ABSORBED);
}

static int make(void *ctx, void **object)
{
	add_relaxed(&objects_made, 1);
	*object = ctx;
	return 0;
}

/* All threads want the same objects. */
static void get_object(int i)
{
	static int things[64];
	struct object_request q = { layer_of(0), NULL, "thing", make, &things[i % 64] };
	char name[16];
	void *o;

	snprintf(name, sizeof(name), "o%d", i % 64);
	q.name = name;
	MUST(object_get(&q, &o) == 0 && o == &things[i % 64]);
}

static void *worker(void *arg)
{
	unsigned n = (unsigned)(uintptr_t)arg;
	uint64_t addr, first = 0;

	MUST(scope_enter(layer_of(n)) == 0);
	for (int i = 0; i < passes; i++) {
		addr = allocate(n);
		first = first ? first : addr;
		MUST(n % 2 || addr == first);
		if (n % 2 && i % 3 == 0)
			MUST(stage_publish(scope_current(), FAKE_STREAM) == 0);
		free_mail((n + 1) % THREADS, addr);
		free_mail(n, 0);
		map_and_unmap(n, i == 0);
		get_object(i);
	}
	MUST(scope_leave() == 0);
	return NULL;
}

static void *verifier(void *arg)
{
	while (!load_relaxed(&done)) {
		struct slot_findings f = { .list = NULL };

		MUST(tag_verify(NULL, NULL, &f) == 0);
		MUST(f.count == 0);
		slot_findings_free(&f);
	}
	return NULL;
}

/* ---- reloads under tags ---- */

static uint64_t first_seed;
/* Who puts into a slot while its layer is published, or another puts too, has a race of his own. */
static pthread_mutex_t one_put = PTHREAD_MUTEX_INITIALIZER;

static bool busy_or(int err, int other)
{
	return err == ARENA_E_BUSY || err == other;
}

#define PUT_SLOT 1 /* "shared#1" */

/* A pass in the arena of all, cut short at times. @return false: the thread is to end under it. */
static bool shared_pass(uint64_t *seed)
{
	uint64_t addr;
	int err = tag_push("shared", ARENA_VALUE);

	MUST(busy_or(err, 0));
	for (uint64_t i = 0, calls = seed_below(seed, 4); err == 0 && i < calls; i++) {
		/* Another size does not fit. */
		uint64_t bytes = BYTES + (seed_below(seed, 20) == 0);

		if (!tag_serve(&(struct tag_request){ .bytes = bytes, .align = 1 }, &addr))
			continue;
		if (i != PUT_SLOT)
			memset((void *)(uintptr_t)addr, 1, bytes);
		MUST(tag_absorb(addr) == TAG_ABSORBED);
	}
	if (err == 0 && seed_below(seed, 8) == 0)
		return false;
	MUST(err != 0 || tag_pop() == 0);
	pthread_mutex_lock(&one_put);
	err = fake_give(scope_current(), "shared#1", BYTES, 2, seed_below(seed, 2));
	pthread_mutex_unlock(&one_put);
	if (!busy_or(err, 0))
		fprintf(stderr, "put: %d, %s\n", err, arena_message());
	MUST(busy_or(err, 0));
	return true;
}

static void *short_life(void *arg)
{
	uint64_t seed = (uint64_t)(uintptr_t)arg;

	MUST(scope_enter(fake_arena("shared")) == 0);
	for (int i = 0; i < 8; i++)
		if (!shared_pass(&seed))
			break;
	return NULL;
}

static void *lives(void *arg)
{
	uint64_t seed = first_seed + (uintptr_t)arg;

	for (int i = 0; i < passes / 8; i++) {
		pthread_t thread;

		pthread_create(&thread, NULL, short_life, (void *)(uintptr_t)(seed + 1000u * i));
		pthread_join(thread, NULL);
	}
	return NULL;
}

static void *reloads(void *arg)
{
	struct arena *a = fake_arena("shared");
	uint64_t seed = first_seed;

	while (!load_relaxed(&done)) {
		struct reload_outcome o;
		uint64_t id;

		MUST(reload_begin(NULL, &id) == 0);
		for (int i = 0; i < 4; i++) {
			pthread_mutex_lock(&one_put);
			MUST(busy_or(reload_commit(a, FAKE_STREAM), 0) ||
			     strstr(arena_message(), "is not published"));
			pthread_mutex_unlock(&one_put);
		}
		MUST((seed_below(&seed, 2) ? reload_end(id, &o) : reload_abort(id, "", &o)) == 0);
		reload_outcome_free(&o);
	}
	return NULL;
}

static void reloads_under_tags(void)
{
	pthread_t threads[THREADS], reloading;
	struct slot *s;

	first_seed = seed_start("reloads under tags");
	store_relaxed(&done, false);
	pthread_create(&reloading, NULL, reloads, NULL);
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, lives, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	store_relaxed(&done, true);
	pthread_join(reloading, NULL);
	MUST(load_relaxed(&fake.bytes_live) == storage_bytes());
	/* Whoever wrote last, a value is whole. */
	for (s = fake_arena("shared")->slots; s != NULL; s = s->next)
		MUST(s->shadow == 0 && s->leases == 0 && fake_value(s) >= 0);
}

/* ---- objects in rings ---- */

#define RING 3

struct wish {
	int round, number;
};

static int ask(struct wish w, void **object);

/* It asks for the next of its ring, and goes on without it if that one waits for this one. */
static int make_asking(void *ctx, void **object)
{
	struct wish w = *(struct wish *)ctx;
	void *other;

	w.number = (w.number + 1) % RING;
	MUST(busy_or(ask(w, &other), 0));
	*object = &mail;
	return 0;
}

static int ask(struct wish w, void **object)
{
	char name[32];
	struct object_request q = { fake_arena("rings"), name, "thing", make_asking, &w };

	snprintf(name, sizeof(name), "%d.%d", w.round, w.number);
	return object_get(&q, object);
}

static void *asker(void *arg)
{
	int n = (int)(uintptr_t)arg;

	for (int i = 0; i < passes / 4; i++) {
		void *o = NULL;

		MUST(ask((struct wish){ i, n % RING }, &o) == 0 && o == &mail);
	}
	return NULL;
}

static void objects_in_rings(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, asker, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

static void arenas_of_their_own(void)
{
	pthread_t threads[THREADS], looking;
	struct reload_outcome o;
	uint64_t id;

	MUST(reload_begin(NULL, &id) == 0);
	pthread_create(&looking, NULL, verifier, NULL);
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, worker, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	store_relaxed(&done, true);
	pthread_join(looking, NULL);
	for (unsigned i = 0; i < THREADS; i++) {
		free_mail(i, 0);
		stage_discard(layer_of(i));
	}
	MUST(load_relaxed(&fake.bytes_live) == storage_bytes());
	MUST(load_relaxed(&objects_made) == (passes < 64 ? passes : 64));
	MUST(reload_abort(id, "", &o) == 0);
	reload_outcome_free(&o);
}

int main(int argc, char **argv)
{
	passes = argc > 1 ? atoi(argv[1]) : 1000;
	fake_start();
	arenas_of_their_own();
	reloads_under_tags();
	objects_in_rings();
	return EXIT_SUCCESS;
}
