/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: synthetic checkpoints: for each tensor that a family loads, numbers by seed and key, in the
 * type and range that such a tensor has in real ones, so that activations stay of the order of 1
 * and each tensor has its say in the logits; or files of others that have the same tensors. One
 * thread.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/number.h"
#include "tests/engine/engine.h"

#define GROUP 32 /* rows of a scale, GPTQ */

static const struct {
	const char *dtype;
	float low, high; /* of numbers */
} fills[] = {
	[FILL_WEIGHT] = { "BF16", -1, 1 }, /* over the root of the columns */
	[FILL_NORM] = { "BF16", 0.75f, 1.25f },
	[FILL_EMBED] = { "BF16", -1.7f, 1.7f },
	[FILL_BIAS] = { "BF16", -0.2f, 0.2f },
	[FILL_SINK] = { "BF16", -1, 3 },
	[FILL_CODES] = { "I32", 0, 0 },
	[FILL_GROUPS] = { "I32", 0, 0 },
	[FILL_SCALE] = { "BF16", 0.015f, 0.025f },
	[FILL_FP8] = { "F8_E4M3", -240, 240 },
	[FILL_FP8_SCALE] = { "F32", 5e-4f, 8e-4f },
	[FILL_FP4] = { "U8", 0, 0 },
	[FILL_FP4_SCALE] = { "F8_E4M3", 100, 440 },
	[FILL_GLOBAL] = { "F32", 7000, 10000 },
	[FILL_INPUT_GLOBAL] = { "F32", 500, 800 },
	[FILL_RECIPROCAL] = { "F32", 1.0e-4f, 1.4e-4f },
};

const char *fill_dtype(enum fill fill)
{
	return fills[fill].dtype;
}

uint32_t fill_bytes(enum fill fill)
{
	return safetensors_dtype_bytes(fills[fill].dtype);
}

/* splitmix64 */
static uint64_t next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static float uniform(uint64_t *state, const struct part *p)
{
	float u = (float)(next(state) >> 40) / 16777216.0f;
	float x = fills[p->fill].low + u * (fills[p->fill].high - fills[p->fill].low);

	return p->fill == FILL_WEIGHT ? x * 1.7f / sqrtf((float)p->cols) : x;
}

/* Group of each row, in an order that is not the rows': act-order. */
static void fill_groups(int32_t *out, uint64_t count, uint64_t *state)
{
	for (uint64_t i = 0; i < count; i++)
		out[i] = (int32_t)(i / GROUP);
	for (uint64_t i = count - 1; i > 0; i--) {
		uint64_t other = next(state) % (i + 1);
		int32_t kept = out[i];

		out[i] = out[other];
		out[other] = kept;
	}
}

static void fill_numbers(const struct part *p, void *out, uint64_t *state)
{
	for (uint64_t i = 0; i < p->rows * p->cols; i++) {
		float x = uniform(state, p);

		if (!strcmp(fills[p->fill].dtype, "BF16"))
			((uint16_t *)out)[i] = number_to_bf16(x);
		else if (!strcmp(fills[p->fill].dtype, "F32"))
			((float *)out)[i] = x;
		else
			((uint8_t *)out)[i] = number_to_e4m3(x);
	}
}

static void fill_part(const struct part *p, void *out, uint64_t seed)
{
	uint64_t state = seed * 0x100000001b3;

	for (const char *c = p->key; *c; c++)
		state = (state ^ (uint64_t)*c) * 0x100000001b3;
	if (p->fill == FILL_GROUPS)
		fill_groups(out, p->rows * p->cols, &state);
	else if (p->fill == FILL_CODES || p->fill == FILL_FP4)
		for (uint64_t i = 0; i < p->bytes; i++)
			((uint8_t *)out)[i] = (uint8_t)(next(&state) >> 56);
	else
		fill_numbers(p, out, &state);
}

/* Without data. */
static struct safetensor described(const struct part *p)
{
	struct safetensor t = { .name = p->key, .dtype = fill_dtype(p->fill), .bytes = p->bytes };

	if (p->rows > 1)
		t.shape[t.ndim++] = p->rows;
	t.shape[t.ndim++] = p->cols;
	return t;
}

static struct safetensor tensor_of(const struct part *p, uint64_t seed)
{
	struct safetensor t = described(p);
	void *data = malloc(p->bytes);

	if (!data)
		engine_die(1, "no host memory for tensor %s", p->key);
	fill_part(p, data, seed);
	t.data = data;
	return t;
}

static size_t tensors_of(struct engine *e, uint64_t seed, struct safetensor *out)
{
	size_t n = 0;

	for (uint32_t l = 0; l <= dims.layers; l++)
		for (uint32_t t = 0; t < e->layers[l].tensors_count; t++)
			for (uint32_t p = 0; p < e->layers[l].tensors[t].parts_count; p++, n++)
				if (out)
					out[n] = tensor_of(&e->layers[l].tensors[t].parts[p], seed);
	return n;
}

/* The sizes of the model, so that the file can be served without a word. */
static const char *const *metadata_of(void)
{
	static char numbers[SIZES][12];
	static const char *out[2 * SIZES + 1];

	for (int i = 0; i < SIZES; i++) {
		snprintf(numbers[i], sizeof(numbers[i]), "%u", *sizes[i].value);
		out[2 * i] = sizes[i].name;
		out[2 * i + 1] = numbers[i];
	}
	return out;
}

void checkpoint_write(struct engine *e, uint64_t seed, const char *path)
{
	size_t count = tensors_of(e, seed, NULL);
	struct safetensor *tensors = calloc(count, sizeof(*tensors));

	if (!tensors)
		engine_die(1, "no host memory for a checkpoint");
	tensors_of(e, seed, tensors);
	if (safetensors_write(path, tensors, count, metadata_of()))
		engine_die(1, "cannot write %s: %s", path, strerror(errno));
	for (size_t i = 0; i < count; i++)
		free((void *)tensors[i].data);
	free(tensors);
}

/* "BF16 [128, 64]" */
static const char *text_of(const struct safetensor *t, char *out, size_t bytes)
{
	int n = snprintf(out, bytes, "%s [", t->dtype);

	for (uint32_t d = 0; d < t->ndim && (size_t)n < bytes; d++)
		n += snprintf(out + n, bytes - (size_t)n, "%s%llu", d ? ", " : "",
			      (unsigned long long)t->shape[d]);
	if ((size_t)n < bytes)
		snprintf(out + n, bytes - (size_t)n, "]");
	return out;
}

static void check_part(const struct safetensors *s, const struct part *p, const char *path)
{
	const struct safetensor want = described(p), *has = safetensors_find(s, p->key);
	char a[256], b[256];

	if (!has)
		engine_die(1, "%s: it has no tensor '%s', which the family loads", path, p->key);
	if (strcmp(has->dtype, want.dtype) != 0 || has->ndim != want.ndim ||
	    memcmp(has->shape, want.shape, want.ndim * sizeof(*want.shape)) != 0)
		engine_die(1, "%s: tensor '%s' is %s, the family loads %s", path, p->key,
			   text_of(has, a, sizeof(a)), text_of(&want, b, sizeof(b)));
}

/* What else is in the file is left alone. */
void checkpoint_check(const struct engine *e, const struct safetensors *s, const char *path)
{
	for (uint32_t l = 0; l <= dims.layers; l++)
		for (uint32_t t = 0; t < e->layers[l].tensors_count; t++)
			for (uint32_t p = 0; p < e->layers[l].tensors[t].parts_count; p++)
				check_part(s, &e->layers[l].tensors[t].parts[p], path);
}

/* The file is gone once it is mapped. */
void checkpoint_make(struct engine *e, uint64_t seed, struct safetensors *out)
{
	const char *folder = getenv("TMPDIR");
	char path[512], error[512];
	int fd;

	snprintf(path, sizeof(path), "%s/engine-XXXXXX", folder ? folder : "/tmp");
	fd = mkstemp(path);
	if (fd < 0)
		engine_die(1, "no file for a checkpoint at %s: %s; set TMPDIR", path,
			   strerror(errno));
	close(fd);
	checkpoint_write(e, seed, path);
	if (safetensors_open(path, out, error, sizeof(error)))
		engine_die(1, "%s", error);
	unlink(path);
}
