/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads on slots, execs and snapshots, with a printed seed (ARENA_TEST_SEED). A plain program, so
 * that it runs under TSan as it is. Argument: rounds per thread.
 *
 * Each thread moves slots of its own, captures them and knows the verdict of each launch. All lie
 * in the same two ranges, in arenas that all threads snapshot and verify, so that every place,
 * holder and mark is shared. Storage is taken from one arena by all.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "arena/binding.h"
#include "arena/device.h"
#include "arena/snapshot.h"
#include "arena/storage.h"
#include "tests/unit/seed.h"

#define THREADS	  16
#define SLOTS	  6
#define PLACES	  8
#define BYTES	  4096ull
#define FRONT	  ((uint64_t)0x7f0000000000)
#define BACK	  ((uint64_t)0x7f4000000000)
#define HANDLE(t) ((uint64_t)(t) + 1)

struct worker {
	pthread_t thread;
	unsigned number;
	uint64_t seed;
	struct arena *arena;
	struct slot *slots[SLOTS];
	unsigned at[SLOTS]; /* place of each slot */
	unsigned captured[SLOTS];
	bool has_exec;
};

static unsigned rounds = 3000;
static struct worker workers[THREADS];
static _Atomic uint64_t device_next = 0x600000000000;

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static int device_alloc(uint64_t bytes, int32_t ordinal, uint64_t *addr)
{
	*addr = add_relaxed(&device_next, bytes);
	return 0;
}

static void device_free(uint64_t addr)
{
}

static unsigned below(struct worker *w, unsigned limit)
{
	return (unsigned)seed_below(&w->seed, limit);
}

/* Places of one thread and slot are its own; threads alternate within a range. */
static uint64_t base_of(const struct worker *w, unsigned slot, unsigned place)
{
	uint64_t n = ((uint64_t)slot * PLACES + place) * THREADS + w->number;

	return (place % 2 ? BACK : FRONT) + n * BYTES;
}

static void move(struct worker *w, unsigned i)
{
	w->at[i] = below(w, PLACES);
	registry_lock();
	if (below(w, 8) == 0)
		binding_clear(w->slots[i]);
	binding_set(w->slots[i], base_of(w, i, w->at[i]));
	registry_unlock();
}

static void capture(struct worker *w)
{
	struct exec_builder *b = exec_build_begin();
	struct word words[SLOTS];
	struct node_desc n = {
		.graph = w->number + 1, .node = w->number + 1, .words = words, .words_count = SLOTS
	};

	for (unsigned i = 0; i < SLOTS; i++) {
		words[i] = (struct word){ .value = base_of(w, i, w->at[i]) + 8 * i,
					  .param = (uint16_t)i,
					  .confidence = CONFIDENCE_EXACT };
		w->captured[i] = w->at[i];
	}
	birth_record(&n);
	exec_build_node(b, &n);
	exec_open(HANDLE(w->number), 0, b);
	w->has_exec = true;
}

static void launch(struct worker *w)
{
	bool stale = false;

	for (unsigned i = 0; i < SLOTS; i++)
		stale |= w->at[i] != w->captured[i];
	if (w->has_exec && guard_launch(HANDLE(w->number), 0) == stale)
		fail("thread %u: a launch is %s", w->number, stale ? "not refused" : "refused");
}

static void look(struct worker *w)
{
	struct arena_snapshot *s;
	struct slot_findings found = { .list = NULL };
	uint64_t addr;

	if (snapshot_take(NULL, &s))
		fail("%s", arena_message());
	move(w, below(w, SLOTS));
	if (snapshot_verify(s, below(w, 2) ? w->arena : NULL, &found))
		fail("%s", arena_message());
	slot_findings_normalise(&found);
	slot_findings_free(&found);
	snapshot_free(s);
	if (storage_take(workers[0].arena, 0, 1 + below(w, 9000), &addr))
		fail("%s", arena_message());
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < rounds; i++)
		switch (below(w, 8)) {
		case 0:
			capture(w);
			break;
		case 1:
			exec_close(HANDLE(w->number));
			w->has_exec = false;
			break;
		case 2:
			if (below(w, 8) == 0)
				look(w);
			break;
		case 3:
		case 4:
			move(w, below(w, SLOTS));
			break;
		default:
			launch(w);
		}
	exec_close(HANDLE(w->number));
	birth_forget_graph(w->number + 1);
	return NULL;
}

static void worker_start(struct worker *w, unsigned number, uint64_t seed)
{
	struct arena_spec in = ARENA_SPEC_INIT, spec;
	char name[32];

	in.bytes = BYTES;
	spec_read(&in, &spec);
	*w = (struct worker){ .number = number, .seed = seed + number };
	snprintf(name, sizeof(name), "thread.%u", number);
	registry_lock();
	w->arena = registry_open(name);
	for (unsigned i = 0; i < SLOTS; i++) {
		snprintf(name, sizeof(name), "slot%u", i);
		w->slots[i] = slot_add(w->arena, name, ARENA_BOUND, &spec);
	}
	registry_unlock();
	for (unsigned i = 0; i < SLOTS; i++)
		move(w, i);
}

int main(int argc, char **argv)
{
	uint64_t seed = seed_start("stress_slots"), size = THREADS * SLOTS * PLACES * BYTES;

	if (argc > 1)
		rounds = (unsigned)strtoul(argv[1], NULL, 0);
	device.alloc = device_alloc;
	device.free = device_free;
	guard_refuses = true;
	if (ledger_init() ||
	    !ledger_open(&(struct range_desc){ .base = FRONT, .size_bytes = size }) ||
	    !ledger_open(&(struct range_desc){ .base = BACK, .size_bytes = size }))
		fail("no memory");
	for (unsigned t = 0; t < THREADS; t++)
		worker_start(&workers[t], t, seed);
	for (unsigned t = 0; t < THREADS; t++)
		if (pthread_create(&workers[t].thread, NULL, work, &workers[t]))
			fail("no thread");
	for (unsigned t = 0; t < THREADS; t++)
		pthread_join(workers[t].thread, NULL);
	return 0;
}
