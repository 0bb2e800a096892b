/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads capture, free and launch at the same time, each in its own stream: each is told about
 * its own memory, and about no other.
 */
#include "victim.h"

#include <pthread.h>

#define THREADS 4

static pthread_barrier_t together;

static void *story(void *arg)
{
	long i = (long)arg;
	char range[8], out_name[8], exec[8];
	CUdeviceptr out, w;
	CUgraphExec e;

	victim_thread_start();
	snprintf(range, sizeof(range), "w%ld", i);
	snprintf(out_name, sizeof(out_name), "out%ld", i);
	snprintf(exec, sizeof(exec), "E%ld", i);
	out = dev_alloc(out_name, BIG);
	w = dev_alloc(range, BIG);
	poke(out, 0);
	poke(w, (int)i);
	pthread_barrier_wait(&together);
	CAPTURE_EXEC(e, run_acc(out, w));
	for (int k = 0; k < 50; k++)
		MUST(cuGraphLaunch(e, S) == CUDA_SUCCESS);
	MUST(peek(out) == 50 * (int)i);
	pthread_barrier_wait(&together);
	if (i % 2)
		dev_free(w);
	pthread_barrier_wait(&together);
	replay(exec, e);
	return NULL;
}

static void each_its_own(void)
{
	pthread_t threads[THREADS];

	victim_only_harmless(false);
	pthread_barrier_init(&together, NULL, THREADS);
	for (long i = 0; i < THREADS; i++)
		MUST(!pthread_create(&threads[i], NULL, story, (void *)i));
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

VICTIM({ "each-its-own", each_its_own });
