/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the program: load, capture, serve, reload, serve. On stdout:
 *   slots N                                 tensors of all layers
 *   derived LAYER TENSOR                    what post-load processing makes (--derived)
 *   load N checkpoint A|B                   the cold load (0) or a reload
 *   reload N WORD                           what its end said: pass; warned (a finding, and the
 *                                           gate lets it pass), refused, aborted; unchecked
 *                                           (there is no library)
 *   serve N batch T logits HASH tokens ...  greedy tokens, and every bit of every logit
 *   serve N refused|failed CODE             a launch refused by the library, or by the device
 *   dirty N COUNT                           kernels that found a lock taken
 *   harmed N COUNT                          blocks of others that a graph wrote into
 * Exit: 0 everything was served; 1 an error; 2 usage; 3 something was refused, and not served; 4 a
 * launch failed on the device; 77 there is no library for --storage=arena. One thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/decode.h"
#include "tests/engine/family.h"
#include "tests/engine/options.h"

enum { EXIT_REFUSED = 3, EXIT_FAILED = 4 };

/* @return tensors of all layers. */
static unsigned declare(struct engine *e)
{
	unsigned slots = 0;

	e->layers = calloc(dims.layers + 1, sizeof(*e->layers));
	if (!e->layers)
		engine_die(1, "no host memory for %u layers", dims.layers);
	for (uint32_t i = 0; i <= dims.layers; i++) {
		struct layer *l = &e->layers[i];

		l->engine = e;
		l->index = i;
		if (i < dims.layers) {
			snprintf(l->path, sizeof(l->path), "model.layers.%u", i);
			weight(l, FILL_NORM, "input_layernorm.weight", SHAPE(1, dims.hidden));
			weight(l, FILL_NORM, "post_attention_layernorm.weight",
			       SHAPE(1, dims.hidden));
			e->opt.family->declare(l);
		} else {
			snprintf(l->path, sizeof(l->path), "model");
			weight(l, FILL_EMBED, "model.embed_tokens.weight",
			       SHAPE(dims.vocab, dims.hidden));
			weight(l, FILL_NORM, "model.norm.weight", SHAPE(1, dims.hidden));
			weight(l, FILL_WEIGHT, "lm_head.weight", SHAPE(dims.vocab, dims.hidden));
		}
		if (!e->opt.silent)
			arena_open(l->path, &l->arena);
		slots += l->tensors_count;
	}
	return slots;
}

static bool has_part(const struct engine *e, const char *key)
{
	for (uint32_t i = 0; i <= dims.layers; i++)
		for (uint32_t t = 0; t < e->layers[i].tensors_count; t++)
			for (uint32_t p = 0; p < e->layers[i].tensors[t].parts_count; p++)
				if (!strcmp(e->layers[i].tensors[t].parts[p].key, key))
					return true;
	return false;
}

/* Of those that a reload publishes. */
static bool has_tensor(const struct engine *e, const char *name)
{
	for (uint32_t i = 0; i <= dims.layers; i++)
		for (uint32_t t = 0; t < e->layers[i].tensors_count; t++)
			if (!strcmp(e->layers[i].tensors[t].name, name) &&
			    e->layers[i].tensors[t].origin <= DERIVED)
				return true;
	return false;
}

/* Does its post-load processing err in a value anywhere? */
static bool has_mistake(const struct engine *e)
{
	for (uint32_t i = 0; i <= dims.layers; i++)
		for (uint32_t t = 0; t < e->layers[i].tensors_count; t++)
			if (e->layers[i].tensors[t].naive >= PADDED)
				return true;
	return false;
}

static void check_names(const struct engine *e)
{
	if (e->opt.mistakes && !has_mistake(e))
		engine_die(2, "--mistakes: family %s makes none in values, with these sizes",
			   e->opt.family->name);
	if (e->opt.fail_at > (int)dims.layers)
		engine_die(2, "--fail-at=%d: it is a number from 0 to %u", e->opt.fail_at,
			   dims.layers);
	if (e->opt.omit && !has_part(e, e->opt.omit))
		engine_die(2, "--omit=%s: the family loads no tensor of that name", e->opt.omit);
	if (e->opt.keep && !has_tensor(e, e->opt.keep))
		engine_die(2,
			   "--keep=%s: no layer of the family has that tensor: --derived lists "
			   "those that are derived",
			   e->opt.keep);
}

/* The sizes come from them. */
static void open_files(struct engine *e)
{
	char error[512];

	for (int i = 0; i < 2; i++)
		if (e->opt.read[i] &&
		    safetensors_open(e->opt.read[i], &e->checkpoint[i], error, sizeof(error)))
			engine_die(1, "%s", error);
	config_read(e);
}

static bool write_checkpoints(struct engine *e)
{
	for (int i = 0; i < 2; i++)
		if (e->opt.write[i])
			checkpoint_write(e, e->opt.seed + (uint64_t)i, e->opt.write[i]);
	return e->opt.write[0] || e->opt.write[1];
}

static void list_derived(const struct engine *e)
{
	for (uint32_t i = 0; i <= dims.layers; i++)
		for (uint32_t t = 0; t < e->layers[i].tensors_count; t++)
			if (e->layers[i].tensors[t].origin == DERIVED)
				printf("derived %s %s\n", e->layers[i].path,
				       e->layers[i].tensors[t].name);
}

/* @return the exit code so far: 0, or why nothing was served. */
static int serve(struct engine *e, const struct decoder *d, int number)
{
	CUresult r = decode_serve(e, d, number);
	int32_t dirty = 0;
	unsigned harmed;

	if (r) {
		printf("serve %d %s %d\n", number,
		       r == CUDA_ERROR_ILLEGAL_STATE ? "refused" : "failed", (int)r);
		return r == CUDA_ERROR_ILLEGAL_STATE ? EXIT_REFUSED : EXIT_FAILED;
	}
	CK(cuMemcpyDtoH(&dirty, buffer(e, "status", 4), 4));
	if (dirty)
		printf("dirty %d %d\n", number, dirty);
	CK(cuMemsetD32(buffer(e, "status", 4), 0, 1));
	harmed = memory_harmed(e);
	if (harmed)
		printf("harmed %d %u\n", number, harmed);
	return 0;
}

static int cycle(struct engine *e, const struct decoder *d, int number)
{
	static const char *const words[] = { "pass", "refused", "aborted", "unchecked", "warned" };
	enum outcome outcome;

	memory_release(e);
	printf("load %d checkpoint %c\n", number, number % 2 ? 'B' : 'A');
	outcome = reload(e, number);
	printf("reload %d %s\n", number, words[outcome]);
	if (e->opt.lazy)
		decode_lazily(e);
	if (e->opt.pressure)
		memory_pressure(e);
	if ((outcome == RELOAD_REFUSED || outcome == RELOAD_ABORTED) && !e->opt.careless)
		return EXIT_REFUSED;
	return serve(e, d, number);
}

int main(int argc, char **argv)
{
	static struct engine e;
	struct decoder d;
	unsigned slots;
	int code = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	options_read(argc, argv, &e.opt);
	engine_start(&e);
	open_files(&e);
	slots = declare(&e);
	check_names(&e);
	if (write_checkpoints(&e))
		return 0;
	printf("slots %u\n", slots);
	if (e.opt.derived) {
		list_derived(&e);
		return 0;
	}
	for (int i = 0; i < 2; i++)
		if (e.opt.read[i])
			checkpoint_check(&e, &e.checkpoint[i], e.opt.read[i]);
		else
			checkpoint_make(&e, e.opt.seed + (uint64_t)i, &e.checkpoint[i]);
	printf("load 0 checkpoint A\n");
	if (reload(&e, 0) == RELOAD_REFUSED)
		engine_die(1, "the cold load is refused");
	if (e.opt.lazy)
		decode_lazily(&e);
	CK(cuMemsetD32(buffer(&e, "status", 4), 0, 1));
	decode_capture(&e, &d);
	code = serve(&e, &d, 0);
	for (int i = 1; i <= e.opt.reloads && code != EXIT_FAILED; i++) {
		int r = cycle(&e, &d, i);

		code = r > code ? r : code;
	}
	return code;
}
