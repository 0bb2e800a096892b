/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: a decode step as one graph a batch size, and greedy serving. Inputs (positions, slots,
 * lengths) are static buffers that the host fills before each replay, as engines do; the graph
 * feeds its own tokens back. One thread.
 */
#include "tests/engine/decode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/decode/decode.h"
#include "tests/engine/family.h"

static const int batches[BATCHES] = { 1, 2, BATCH_MAX };

/* ---- static inputs ---- */

static CUdeviceptr ids(struct engine *e)
{
	return buffer(e, "ids", 8 * BATCH_MAX);
}

static CUdeviceptr logits(struct engine *e)
{
	return buffer(e, "logits", 4 * BATCH_MAX * dims.vocab);
}

/* A sequence's blocks lie apart, in an order of their own. */
static int32_t block_of(int seq, int i)
{
	return (i * BATCH_MAX + (seq * 3 + 1) % BATCH_MAX + i * i) % BATCH_MAX + i * BATCH_MAX;
}

static void upload(struct engine *e, const char *name, const void *from, uint64_t bytes)
{
	CK(cuMemcpyHtoD(buffer(e, name, bytes), from, bytes));
}

/* cos and sin of a position and its @rot / 2 angles. */
static void angles(struct engine *e, const char *name, uint32_t rot)
{
	static float table[POSITIONS * DECODE_HEAD_MAX];

	for (uint32_t p = 0; p < POSITIONS; p++)
		for (uint32_t i = 0; i < rot / 2; i++) {
			double angle = p * pow(10000, -2.0 * i / rot);

			table[p * rot + i] = (float)cos(angle);
			table[p * rot + rot / 2 + i] = (float)sin(angle);
		}
	upload(e, name, table, 4ull * POSITIONS * rot);
	CK(cuStreamSynchronize(CU_STREAM_LEGACY)); /* the table is filled anew */
}

/* What does not change: tables, rotary angles. */
static void constants(struct engine *e)
{
	int32_t tables[BATCH_MAX][SEQ_BLOCKS];

	for (int s = 0; s < BATCH_MAX; s++)
		for (int i = 0; i < SEQ_BLOCKS; i++)
			tables[s][i] = block_of(s, i);
	angles(e, "cos_sin", dims.head);
	angles(e, "cos_sin_rope", dims.rope);
	upload(e, "tables", tables, sizeof(tables));
	CK(cuStreamSynchronize(CU_STREAM_LEGACY));
}

/* Of step @step: one more token a sequence. */
static void inputs(struct engine *e, int step)
{
	int64_t positions[BATCH_MAX], slots[BATCH_MAX];
	int32_t lens[BATCH_MAX];

	for (int s = 0; s < BATCH_MAX; s++) {
		positions[s] = step;
		slots[s] = (int64_t)block_of(s, step / BLOCK) * BLOCK + step % BLOCK;
		lens[s] = step + 1;
	}
	upload(e, "positions", positions, sizeof(positions));
	upload(e, "slots", slots, sizeof(slots));
	upload(e, "lens", lens, sizeof(lens));
	CK(cuStreamSynchronize(CU_STREAM_LEGACY));
}

/* Different prompts of one token. */
static void prompt(struct engine *e)
{
	int64_t first[BATCH_MAX];

	for (int s = 0; s < BATCH_MAX; s++)
		first[s] = (7 + 31 * s) % dims.vocab;
	upload(e, "ids", first, sizeof(first));
	CK(cuStreamSynchronize(CU_STREAM_LEGACY));
}

/* ---- a step ---- */

static void add_norm(struct layer *l, CUdeviceptr x, const char *name)
{
	struct engine *e = l->engine;

	RUN(e, decode_fused_add_rms_norm, .x = x,
	    .residual = buffer(e, "residual", 2 * BATCH_MAX * dims.hidden), .weight = at(l, name),
	    .tokens = (uint32_t)e->tokens, .hidden = dims.hidden, .eps = EPS);
}

static void step(struct engine *e, int tokens)
{
	struct layer *top = &e->layers[dims.layers];
	uint32_t n = (uint32_t)tokens;
	CUdeviceptr x = buffer(e, "x", 2 * BATCH_MAX * dims.hidden);

	e->tokens = tokens;
	RUN(e, decode_embedding, .ids = ids(e), .table = at(top, "model.embed_tokens.weight"),
	    .out = buffer(e, "residual", 2 * BATCH_MAX * dims.hidden), .tokens = n,
	    .hidden = dims.hidden, .vocab = dims.vocab);
	CK(cuMemsetD8Async(x, 0, 2 * BATCH_MAX * dims.hidden, e->stream));
	for (uint32_t i = 0; i < dims.layers; i++) {
		struct layer *l = &e->layers[i];

		add_norm(l, x, "input_layernorm.weight");
		e->opt.family->attention(l, x);
		add_norm(l, x, "post_attention_layernorm.weight");
		e->opt.family->mlp(l, x);
	}
	add_norm(top, x, "model.norm.weight");
	RUN(e, decode_gemm, .x = x, .w = at(top, "lm_head.weight"), .out = logits(e), .tokens = n,
	    .n = dims.vocab, .k = dims.hidden, .x_stride = dims.hidden, .flags = DECODE_F32);
	RUN(e, decode_argmax, .logits = logits(e), .out = ids(e), .tokens = n, .n = dims.vocab,
	    .flags = DECODE_F32);
}

/* Scratch and objects that nobody made before the first forward. */
void decode_lazily(struct engine *e)
{
	for (uint32_t i = 0; i <= dims.layers; i++) {
		struct layer *l = &e->layers[i];

		for (uint32_t t = 0; t < l->tensors_count; t++)
			if (l->tensors[t].origin == SCRATCH)
				storage_scratch(l, &l->tensors[t]);
		if (l->object_type)
			storage_object(l);
	}
	settle(e);
}

void decode_capture(struct engine *e, struct decoder *d)
{
	constants(e);
	prompt(e);
	inputs(e, 0);
	step(e, BATCH_MAX);
	settle(e);
	for (int b = 0; b < BATCHES; b++) {
		CUgraph graph;

		CK(cuStreamBeginCapture(e->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
		step(e, batches[b]);
		CK(cuStreamEndCapture(e->stream, &graph));
		CK(cuGraphInstantiate(&d->exec[b], graph, 0));
		CK(cuGraphDestroy(graph));
	}
}

/* ---- serving ---- */

static uint64_t hash(uint64_t h, const void *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		h = (h ^ ((const unsigned char *)from)[i]) * 0x100000001b3;
	return h;
}

static uint64_t hash_logits(struct engine *e, uint64_t h, size_t rows)
{
	size_t bytes = 4 * rows * dims.vocab;
	float *row = malloc(bytes);

	if (!row)
		engine_die(1, "no host memory for %zu bytes of logits", bytes);
	CK(cuMemcpyDtoH(row, logits(e), bytes));
	h = hash(h, row, bytes);
	free(row);
	return h;
}

static void empty_caches(struct engine *e)
{
	for (uint32_t i = 0; i < e->buffers_count; i++)
		if (strstr(e->buffers[i].name, "cache"))
			CK(cuMemsetD8Async(e->buffers[i].at, 0, e->buffers[i].bytes, e->stream));
	settle(e);
}

static CUresult replay(struct engine *e, CUgraphExec exec)
{
	CUresult r = cuGraphLaunch(exec, e->stream);

	return r ? r : cuStreamSynchronize(e->stream);
}

static CUresult serve_batch(struct engine *e, const struct decoder *d, int b, int number)
{
	int64_t tokens[POSITIONS][BATCH_MAX];
	size_t n = (size_t)batches[b];
	uint64_t h = 0xcbf29ce484222325;
	CUresult r;

	empty_caches(e);
	prompt(e);
	for (int i = 0; i < e->opt.tokens; i++) {
		inputs(e, i);
		r = replay(e, d->exec[b]);
		if (r)
			return r;
		h = hash_logits(e, h, n);
		CK(cuMemcpyDtoH(tokens[i], ids(e), 8 * n));
	}
	printf("serve %d batch %zu logits %016llx tokens", number, n, (unsigned long long)h);
	for (size_t s = 0; s < n; s++)
		for (int i = 0; i < e->opt.tokens; i++)
			printf("%c%lld", i ? ',' : ' ', (long long)tokens[i][s]);
	printf("\n");
	return CUDA_SUCCESS;
}

CUresult decode_serve(struct engine *e, const struct decoder *d, int number)
{
	CUresult r = CUDA_SUCCESS;

	for (int b = 0; b < BATCHES && !r; b++)
		r = serve_batch(e, d, b, number);
	return r;
}
