/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the sizes of the model. A checkpoint in a file says them in its metadata, by the names of a
 * model's config.json; where it says nothing, and for checkpoints by seed, they are the usual ones
 * but for --config. What the kernels cannot serve is refused here, with one line. One thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/decode/decode.h"
#include "tests/engine/engine.h"

struct dims dims;

/* The usual ones are small, so that the C twins keep up. Steps are what layouts need: 64 columns of
 * Marlin's tiles, 32 rows of a scale, 16 elements of a block scale. */
const struct size sizes[SIZES] = {
	{ "hidden_size", &dims.hidden, 128, 64, 8192, 64 },
	{ "intermediate_size", &dims.inter, 128, 64, 32768, 64 },
	{ "num_hidden_layers", &dims.layers, 2, 1, LAYERS_MAX, 1 },
	{ "num_attention_heads", &dims.heads, 4, 1, 128, 1 },
	{ "num_key_value_heads", &dims.kv_heads, 2, 1, 128, 1 },
	{ "head_dim", &dims.head, 32, 16, DECODE_HEAD_MAX, 16 },
	{ "vocab_size", &dims.vocab, 192, 16, 262144, 1 },
	{ "num_local_experts", &dims.experts, 4, 1, 256, 1 },
	{ "moe_intermediate_size", &dims.expert_inter, 64, 32, 8192, 32 },
	{ "num_experts_per_tok", &dims.topk, 2, 1, DECODE_TOPK_MAX, 1 },
	{ "qk_nope_head_dim", &dims.nope, 32, 8, 256, 8 },
	{ "qk_rope_head_dim", &dims.rope, 16, 8, DECODE_ROPE_MAX, 8 },
	{ "v_head_dim", &dims.v, 32, 8, 256, 8 },
	{ "kv_lora_rank", &dims.latent, 64, 16, DECODE_LATENT_MAX, 16 },
};

/* @from: the file, or the option. */
static uint32_t read_size(const struct size *s, const char *text, const char *from, int code)
{
	char *rest;
	unsigned long n = strtoul(text, &rest, 10);

	if (text[0] < '0' || text[0] > '9' || *rest || n < s->least || n > s->most || n % s->step)
		engine_die(code, "%s: %s is '%.20s': it is a multiple of %u from %u to %u", from,
			   s->name, text, s->step, s->least, s->most);
	return (uint32_t)n;
}

static void check_together(const char *from, int code)
{
	if (dims.heads % dims.kv_heads)
		engine_die(code,
			   "%s: %u num_attention_heads are no multiple of %u "
			   "num_key_value_heads",
			   from, dims.heads, dims.kv_heads);
	if (dims.kv_heads * dims.head % 64)
		engine_die(code, "%s: num_key_value_heads * head_dim is %u: it is a multiple of 64",
			   from, dims.kv_heads * dims.head);
	if (dims.topk > dims.experts)
		engine_die(code, "%s: num_experts_per_tok is %u, of %u num_local_experts", from,
			   dims.topk, dims.experts);
}

static void read_file(const struct safetensors *s, const char *path)
{
	for (int i = 0; i < SIZES; i++) {
		const char *text = safetensors_metadata(s, sizes[i].name);

		*sizes[i].value = text ? read_size(&sizes[i], text, path, 1) : sizes[i].usual;
	}
	check_together(path, 1);
}

static void check_same(const struct dims *a, const char *path)
{
	for (int i = 0; i < SIZES; i++) {
		size_t at = (size_t)((char *)sizes[i].value - (char *)&dims);
		uint32_t was;

		memcpy(&was, (const char *)a + at, sizeof(was));
		if (was != *sizes[i].value)
			engine_die(1, "%s: %s is %u, of A it is %u: a reload keeps the sizes", path,
				   sizes[i].name, *sizes[i].value, was);
	}
}

/* "hidden_size=256,num_hidden_layers=3" */
static void read_option(const char *config)
{
	char *copy = strdup(config), *rest = copy;

	for (char *item; copy && (item = strsep(&rest, ",")) != NULL;) {
		char *value = strchr(item, '=');
		int i = 0;

		if (value)
			*value++ = '\0';
		while (i < SIZES && strcmp(sizes[i].name, item) != 0)
			i++;
		if (i == SIZES || !value)
			engine_die(2, "--config: '%.40s' is no NAME=N of a size: --help lists them",
				   item);
		*sizes[i].value = read_size(&sizes[i], value, "--config", 2);
	}
	free(copy);
	check_together("--config", 2);
}

void config_read(struct engine *e)
{
	const char *const *path = e->opt.read;

	for (int i = 0; i < SIZES; i++)
		*sizes[i].value = sizes[i].usual;
	if (e->opt.config)
		read_option(e->opt.config);
	for (int i = 0; i < 2; i++) {
		struct dims a = dims;

		if (!path[i])
			continue;
		read_file(&e->checkpoint[i], path[i]);
		if (i == 1 && path[0])
			check_same(&a, path[1]);
	}
}
