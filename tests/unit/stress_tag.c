/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tags, kept virtual memory and objects from many threads, each in an arena of its own: what one is
 * served another frees, while layers are published and sequences are verified.
 *
 *	stress_tag PASSES
 */
#include <pthread.h>

#include "arena/keep.h"
#include "arena/object.h"
#include "fake_device.h"

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

		MUST(tag_verify(NULL, &f) == 0);
		MUST(f.count == 0);
		slot_findings_free(&f);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS], looking;
	uint64_t id;

	passes = argc > 1 ? atoi(argv[1]) : 1000;
	fake_start();
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
	return EXIT_SUCCESS;
}
