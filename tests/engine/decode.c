/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: a decode step as one graph a batch size, and greedy serving. Inputs (positions, slots,
 * lengths) are static buffers that the host fills before each replay, as engines do; the graph
 * feeds its own tokens back. One thread.
 */
#include "tests/engine/decode.h"

#include <math.h>
#include <stdio.h>
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
	return buffer(e, "logits", 4 * BATCH_MAX * VOCAB);
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

/* What does not change: tables, rotary angles. */
static void constants(struct engine *e)
{
	static float cos_sin[POSITIONS][HEAD];
	int32_t tables[BATCH_MAX][SEQ_BLOCKS];

	for (int p = 0; p < POSITIONS; p++)
		for (int i = 0; i < HEAD / 2; i++) {
			double angle = p * pow(10000, -2.0 * i / HEAD);

			cos_sin[p][i] = (float)cos(angle);
			cos_sin[p][HEAD / 2 + i] = (float)sin(angle);
		}
	for (int s = 0; s < BATCH_MAX; s++)
		for (int i = 0; i < SEQ_BLOCKS; i++)
			tables[s][i] = block_of(s, i);
	upload(e, "cos_sin", cos_sin, sizeof(cos_sin));
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
		first[s] = (7 + 31 * s) % VOCAB;
	upload(e, "ids", first, sizeof(first));
	CK(cuStreamSynchronize(CU_STREAM_LEGACY));
}

/* ---- a step ---- */

static void add_norm(struct layer *l, CUdeviceptr x, const char *name)
{
	struct engine *e = l->engine;

	RUN(e, decode_fused_add_rms_norm, .x = x,
	    .residual = buffer(e, "residual", 2 * BATCH_MAX * HIDDEN), .weight = at(l, name),
	    .tokens = (uint32_t)e->tokens, .hidden = HIDDEN, .eps = EPS);
}

static void step(struct engine *e, int tokens)
{
	struct layer *top = &e->layers[LAYERS];
	uint32_t n = (uint32_t)tokens;
	CUdeviceptr x = buffer(e, "x", 2 * BATCH_MAX * HIDDEN);

	e->tokens = tokens;
	RUN(e, decode_embedding, .ids = ids(e), .table = at(top, "model.embed_tokens.weight"),
	    .out = buffer(e, "residual", 2 * BATCH_MAX * HIDDEN), .tokens = n, .hidden = HIDDEN,
	    .vocab = VOCAB);
	CK(cuMemsetD8Async(x, 0, 2 * BATCH_MAX * HIDDEN, e->stream));
	for (int i = 0; i < LAYERS; i++) {
		struct layer *l = &e->layers[i];

		add_norm(l, x, "input_layernorm.weight");
		e->opt.family->attention(l, x);
		add_norm(l, x, "post_attention_layernorm.weight");
		e->opt.family->mlp(l, x);
	}
	add_norm(top, x, "model.norm.weight");
	RUN(e, decode_gemm, .x = x, .w = at(top, "lm_head.weight"), .out = logits(e), .tokens = n,
	    .n = VOCAB, .k = HIDDEN, .x_stride = HIDDEN, .flags = DECODE_F32);
	RUN(e, decode_argmax, .logits = logits(e), .out = ids(e), .tokens = n, .n = VOCAB,
	    .flags = DECODE_F32);
}

/* Scratch and objects that nobody made before the first forward. */
void decode_lazily(struct engine *e)
{
	for (int i = 0; i <= LAYERS; i++) {
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
	float row[BATCH_MAX * VOCAB];
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
		CK(cuMemcpyDtoH(row, logits(e), 4 * n * VOCAB));
		CK(cuMemcpyDtoH(tokens[i], ids(e), 8 * n));
		h = hash(h, row, 4 * n * VOCAB);
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
