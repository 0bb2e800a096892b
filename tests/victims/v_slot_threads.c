/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two threads stage different layers of one reload, each in its own stream, while the scopes of
 * each thread are its own. VICTIM_ROUNDS=N makes it N reloads: what a device does in another order
 * once in a thousand shows when there are thousands.
 */
#include "slots.h"

#include <pthread.h>

#define LAYERS	 2
#define RELOADS	 5
#define SLOTS	 8
#define VERSIONS 1000 /* they come round: sums stay in an int */

static struct arena *a[LAYERS];
static pthread_barrier_t together;
static CUdeviceptr out, w[LAYERS][SLOTS];

struct job {
	int layer, version;
};

static void stage_layer(const struct job *job)
{
	struct arena *here = NULL;
	char name[16], key[32];

	AK(arena_enter(a[job->layer]));
	for (int k = 0; k < SLOTS; k++) {
		CUdeviceptr live;

		snprintf(name, sizeof(name), "w%d", k);
		snprintf(key, sizeof(key), "layers.%d.%s", job->layer, name);
		AK(arena_receive(key, 0, 4 * N_INTS));
		AK(arena_current(&here));
		MUST(here == a[job->layer]);
		live = slot_put_value(here, name, job->version + k, ARENA_STAGED);
		MUST(!w[job->layer][k] || w[job->layer][k] == live);
		w[job->layer][k] = live;
	}
	commit(a[job->layer]);
	AK(arena_leave());
}

static void *worker(void *arg)
{
	victim_thread_start();
	pthread_barrier_wait(&together);
	stage_layer(arg);
	/* The publication may still be on its way; the next stream may have the handle. */
	CK(cuStreamDestroy(S));
	return NULL;
}

static void load(const char *name, int version)
{
	struct job jobs[LAYERS];
	pthread_t threads[LAYERS];
	uint64_t id = reload_begin(NULL);

	for (int l = 0; l < LAYERS; l++) {
		jobs[l] = (struct job){ l, version * (l + 1) };
		MUST(!pthread_create(&threads[l], NULL, worker, &jobs[l]));
	}
	for (int l = 0; l < LAYERS; l++)
		pthread_join(threads[l], NULL);
	reload_end(name, id);
}

static void decode(void)
{
	for (int l = 0; l < LAYERS; l++)
		for (int k = 0; k < SLOTS; k++)
			run_acc(out, w[l][k]);
}

static int rounds(void)
{
	const char *text = getenv("VICTIM_ROUNDS");

	return text ? atoi(text) : RELOADS;
}

static void two_layers(void)
{
	int sum = 0, count = rounds();
	CUgraphExec e;

	arena_needed();
	pthread_barrier_init(&together, NULL, LAYERS);
	out = dev_alloc("out", BIG);
	poke(out, 0);
	a[0] = layer("model.layers.0");
	a[1] = layer("model.layers.1");
	load("cold", 1);
	CAPTURE_EXEC(e, decode());
	for (int i = 0; i < count; i++) {
		int version = 2 + i % VERSIONS;

		load("R", version);
		if (version == 2) {
			poke(out, 0);
			sum = 0;
		}
		replay("E", e);
		sum += SLOTS * 3 * version + 2 * (SLOTS * (SLOTS - 1) / 2);
		if (peek(out) != sum)
			printf("round %d: %d, not %d\n", i, peek(out), sum);
		MUST(peek(out) == sum);
	}
}

VICTIM({ "two-layers", two_layers });
