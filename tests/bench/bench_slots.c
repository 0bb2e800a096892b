/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshot and verify of 100,000 slots, bound in one range, of which nothing or one in a hundred
 * has moved since, with graphs that refer to all of them; and the judgement of a launch of such a
 * graph. Prints a table; asserts nothing but that the answers are right. Argument: [slots].
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "arena/binding.h"
#include "arena/snapshot.h"

#define START	   ((uint64_t)0x7f0000000000)
#define BYTES	   4096ull
#define PER_ARENA  50
#define NODE_WORDS 5
#define GRAPHS	   10
#define BATCHES	   20

static unsigned count = 100000;
static struct slot **slots;

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void check(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "bench_slots: %s\n", what);
	exit(1);
}

static void slots_make(void)
{
	struct arena_spec in = ARENA_SPEC_INIT, spec;
	struct arena *a = NULL;
	char name[32];

	in.bytes = BYTES;
	check(spec_read(&in, &spec) == 0, arena_message());
	slots = calloc(count, sizeof(*slots));
	registry_lock();
	for (unsigned i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "model.layers.%u", i / PER_ARENA);
		a = i % PER_ARENA ? a : registry_open(name);
		snprintf(name, sizeof(name), "slot%u", i % PER_ARENA);
		slots[i] = slot_add(a, name, ARENA_BOUND, &spec);
		binding_set(slots[i], START + i * BYTES);
	}
	registry_unlock();
}

static void graphs_make(void)
{
	for (unsigned g = 0; g < GRAPHS; g++) {
		struct exec_builder *b = exec_build_begin();
		struct word words[NODE_WORDS];

		for (unsigned i = g * NODE_WORDS; i + NODE_WORDS <= count;
		     i += GRAPHS * NODE_WORDS) {
			for (unsigned k = 0; k < NODE_WORDS; k++)
				words[k] = (struct word){ .value = START + (i + k) * BYTES,
							  .param = (uint16_t)k,
							  .confidence = CONFIDENCE_EXACT };
			exec_build_node(b, &(struct node_desc){ .graph = 1,
								.node = i + 1,
								.words = words,
								.words_count = NODE_WORDS });
		}
		exec_open(g + 1, 0, b);
	}
}

/* The best of several: other processes only make it slower. */
static double verify_ms(uint32_t expected)
{
	double best = 1e9;

	for (unsigned i = 0; i < (expected ? 1 : BATCHES); i++) {
		struct slot_findings found = { .list = NULL };
		struct arena_snapshot *s;
		double start;

		check(snapshot_take(NULL, &s) == 0, arena_message());
		registry_lock();
		for (unsigned k = 0; expected && k < count; k += count / expected)
			binding_set(slots[k], START + (count + k) * BYTES);
		registry_unlock();
		start = now_ms();
		check(snapshot_verify(s, NULL, &found) == 0, arena_message());
		start = now_ms() - start;
		best = start < best ? start : best;
		check(found.count == expected, "wrong number of findings");
		slot_findings_free(&found);
		snapshot_free(s);
	}
	return best;
}

static double take_ms(void)
{
	double best = 1e9;

	for (unsigned i = 0; i < BATCHES; i++) {
		double start = now_ms();
		struct arena_snapshot *s;

		check(snapshot_take(NULL, &s) == 0, arena_message());
		start = now_ms() - start;
		best = start < best ? start : best;
		snapshot_free(s);
	}
	return best;
}

static double launch_ms(void)
{
	double start = now_ms();

	check(guard_launch(1, 0), "a launch is refused");
	return now_ms() - start;
}

int main(int argc, char **argv)
{
	double start;

	if (argc > 1)
		count = (unsigned)strtoul(argv[1], NULL, 0);
	check(ledger_init() == 0 && ledger_open(&(struct range_desc){
					    .base = START, .size_bytes = 2 * count * BYTES }),
	      "no memory");
	start = now_ms();
	slots_make();
	printf("%u slots made and bound     %9.3f ms\n", count, now_ms() - start);
	graphs_make();
	printf("snapshot                    %9.3f ms\n", take_ms());
	printf("verify, nothing moved       %9.3f ms\n", verify_ms(0));
	printf("launch, not marked          %9.3f ms\n", launch_ms());
	printf("verify, %4u moved           %9.3f ms\n", count / 100, verify_ms(count / 100));
	printf("launch, judged              %9.3f ms\n", launch_ms());
	return 0;
}
