/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two threads stage different layers of one reload, each in its own stream, while the scopes of
 * each thread are its own.
 */
#include "slots.h"

#include <pthread.h>

#define LAYERS	2
#define RELOADS 5
#define SLOTS	8

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

static void two_layers(void)
{
	int sum = 0;
	CUgraphExec e;

	arena_needed();
	pthread_barrier_init(&together, NULL, LAYERS);
	out = dev_alloc("out", BIG);
	poke(out, 0);
	a[0] = layer("model.layers.0");
	a[1] = layer("model.layers.1");
	load("cold", 1);
	CAPTURE_EXEC(e, decode());
	for (int version = 2; version < 2 + RELOADS; version++) {
		load("R", version);
		replay("E", e);
		sum += SLOTS * 3 * version + 2 * (SLOTS * (SLOTS - 1) / 2);
		MUST(peek(out) == sum);
	}
}

VICTIM({ "two-layers", two_layers });
