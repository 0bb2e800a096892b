/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traps (A17, A26, A28): what captures allocate in a private pool is the graphs'. They free it,
 * carve it again, share it, and give it back with the pool; none of that is a fault.
 */
#include "blocks.h"

#include <pthread.h>

#define SIZES  40
#define TENSOR (16 * (size_t)1024)

static struct pool ordinary, private_pool;
static CUdeviceptr out, in;
static CUgraphExec e[SIZES];

static void start(void)
{
	out = dev_alloc("out", BIG);
	in = block_alloc(&ordinary, "in", TENSOR);
	poke(out, 0);
	poke(in, 1);
}

/* One forward pass: two temporaries, the first freed before the second is made, and a result. */
static CUdeviceptr forward(struct pool *p, size_t bytes)
{
	CUdeviceptr a = block_alloc(p, "tmp", bytes), b, c;

	run_set(a, 0);
	run_acc(a, in);
	b = block_alloc(p, "tmp2", bytes);
	run_set(b, 0);
	run_acc(b, a);
	block_free(p, a);
	c = block_alloc(p, "result", bytes);
	run_set(c, 0);
	run_acc(c, b);
	run_acc(out, c);
	block_free(p, b);
	return c;
}

/* 40 batch sizes, largest first; of each result only its address is kept. */
static void capture_sizes(void)
{
	for (size_t i = 0; i < SIZES; i++) {
		CUdeviceptr c = 0;

		CAPTURE_EXEC(e[i], c = forward(&private_pool, (SIZES - i) * TENSOR));
		block_free(&private_pool, c);
	}
}

static void forty_sizes(void)
{
	start();
	capture_sizes();
	for (size_t i = 0; i < SIZES; i++)
		replay("any", e[i * 7 % SIZES]);
	MUST(peek(out) == SIZES);
	for (size_t i = 0; i < SIZES; i++)
		CK(cuGraphExecDestroy(e[i]));
	pool_empty(&private_pool);
}

/* The pool is gone with its graphs; its addresses become ordinary memory, where a free counts. */
static void pool_gone(void)
{
	CUgraphExec plain;
	CUdeviceptr w;

	/* Its addresses come back under other names. */
	private_pool.is_quiet = true;
	start();
	capture_sizes();
	replay("any", e[0]);
	for (size_t i = 0; i < SIZES; i++)
		CK(cuGraphExecDestroy(e[i]));
	pool_empty(&private_pool);
	(void)block_alloc(&ordinary, "pad", SEGMENT);
	w = block_alloc(&ordinary, "w", TENSOR);
	poke(w, 1);
	CAPTURE_EXEC(plain, run_acc(out, w));
	block_free(&ordinary, w);
	replay("plain", plain);
}

/* The pool is freed under its graphs: that is one. */
static void pool_freed(void)
{
	start();
	CAPTURE_EXEC(e[0], block_free(&private_pool, forward(&private_pool, TENSOR)));
	replay("E", e[0]);
	pool_empty(&private_pool);
	victim_only_harmless(false);
	replay("E", e[0]);
}

/* cudagraph trees: an input is copied into the pool before the recording, and freed in it. */
static void recorded_input(void)
{
	CUdeviceptr copy, c = 0;

	start();
	/* Warm-up in the pool, outside of any capture. */
	block_free(&private_pool, forward(&private_pool, TENSOR));
	copy = block_alloc(&private_pool, "copy", TENSOR);
	poke(copy, 1);
	CAPTURE_EXEC(e[0], {
		run_acc(out, copy);
		block_free(&private_pool, copy);
		c = forward(&private_pool, TENSOR);
	});
	block_free(&private_pool, c);
	/* The warm-up of the next function takes the same memory. */
	block_free(&private_pool, forward(&private_pool, TENSOR));
	replay("E", e[0]);
}

/* A result is the input of the next graph, and is dropped; later captures take its memory. */
static void chained(void)
{
	CUdeviceptr c = 0, d = 0;

	start();
	CAPTURE_EXEC(e[0], c = forward(&private_pool, TENSOR));
	CAPTURE_EXEC(e[1], run_acc(out, c));
	block_free(&private_pool, c);
	CAPTURE_EXEC(e[2], d = forward(&private_pool, TENSOR));
	block_free(&private_pool, d);
	for (int i = 0; i < 3; i++)
		replay((const char *[]){ "E0", "E1", "E2" }[i], e[i]);
}

static CUdeviceptr eager;

static void *allocate_eagerly(void *unused)
{
	eager = block_alloc(&ordinary, "eager", TENSOR);
	return unused;
}

/* Another thread allocates while one captures: its block is an ordinary one. */
static void eager_thread(void)
{
	pthread_t t;

	start();
	CAPTURE_EXEC(e[0], {
		MUST(pthread_create(&t, NULL, allocate_eagerly, NULL) == 0);
		pthread_join(t, NULL);
		run_acc(out, in);
	});
	poke(eager, 1);
	CAPTURE_EXEC(e[1], run_acc(out, eager));
	block_free(&ordinary, eager);
	replay("E0", e[0]);
	replay("E1", e[1]);
}

/* A thread that does not capture (autograd's) allocates what the next graph reads; it is dropped,
 * and the third capture has it allocated there again. */
static void helper_thread(void)
{
	pthread_t t;

	start();
	for (int i = 0; i < 3; i++)
		CAPTURE_EXEC(e[i], {
			if (i == 2)
				block_free(&ordinary, eager);
			if (i != 1) {
				MUST(pthread_create(&t, NULL, allocate_eagerly, NULL) == 0);
				pthread_join(t, NULL);
			}
			run_acc(out, i == 0 ? in : eager);
		});
	poke(eager, 1);
	for (int i = 0; i < 3; i++)
		replay((const char *[]){ "E0", "E1", "E2" }[i], e[i]);
}

/* Sleep and wake: the segments of both pools are unmapped, and mapped again at their place. */
static void pause_and_resume(void)
{
	ordinary.is_mapped = private_pool.is_mapped = true;
	start();
	CAPTURE_EXEC(e[0], block_free(&private_pool, forward(&private_pool, TENSOR)));
	replay("E", e[0]);
	pool_pause(&ordinary);
	pool_pause(&private_pool);
	pool_resume(&ordinary);
	pool_resume(&private_pool);
	poke(in, 2);
	replay("E", e[0]);
	MUST(peek(out) == 1 + 2);
	block_free(&ordinary, in);
	replay("E", e[0]);
}

static void asleep(void)
{
	ordinary.is_mapped = private_pool.is_mapped = true;
	start();
	CAPTURE_EXEC(e[0], block_free(&private_pool, forward(&private_pool, TENSOR)));
	pool_pause(&private_pool);
	victim_only_harmless(false);
	replay("E", e[0]);
}

VICTIM({ "forty-sizes", forty_sizes }, { "pool-gone", pool_gone }, { "pool-freed", pool_freed },
       { "recorded-input", recorded_input }, { "chained", chained },
       { "eager-thread", eager_thread }, { "helper-thread", helper_thread },
       { "pause-and-resume", pause_and_resume }, { "asleep", asleep });
