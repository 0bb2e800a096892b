/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small decode engine over the driver API, for reloads under captured graphs: what its parts
 * share. A family (family.h) declares the tensors of a layer, how some follow from others, and the
 * kernels of a decode step; the rest is the same for all of them.
 *
 * One thread. A driver call that fails ends the program, but for launches (decode.h).
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "arena/arena.h"
#include "tests/engine/safetensors.h"

#define BATCH_MAX  4
#define BLOCK	   8 /* tokens of a cache block */
#define POSITIONS  64
#define SEQ_BLOCKS (POSITIONS / BLOCK)
#define BLOCKS	   (BATCH_MAX * SEQ_BLOCKS)
#define EPS	   1e-6f

#define TENSORS_MAX 64
#define DERIVES_MAX 24
#define ARGS_MAX    12
#define NAME_BYTES  96

/* Sizes of the model (config.c): constant once the checkpoints are there. */
struct dims {
	uint32_t hidden, inter; /* inter: of a dense MLP */
	uint32_t heads, kv_heads, head;
	uint32_t nope, rope, v, latent; /* of latent attention */
	uint32_t vocab, experts, expert_inter, topk;
	uint32_t layers;
};
extern struct dims dims;

/* How a tensor comes into being. */
enum origin {
	LOADED,	 /* from the checkpoint, in parts */
	DERIVED, /* by a derivation, from others of its layer */
	SCRATCH, /* contents mean nothing between steps, or have to be 0 */
	PART,	 /* scratch that the layer's object allocates inside of itself */
};

/* What a second pass does without an arena, after the confirmed faults of public reports. */
enum naive {
	COPY_BACK,  /* a registered parameter: the new value is copied into the old storage */
	REBIND,	    /* an attribute: it gets new storage, the old is freed */
	HELD,	    /* the same, and a closure holds the old, which lives on with the old value */
	/* From here on values are wrong. */
	PADDED,	    /* made from memory that is not zero: the ends of its rows are not */
	ONCE,	    /* converted at the first pass, left alone from then on */
	ACCUMULATE, /* multiplied in place, what the last pass left too */
};

/* What a synthetic checkpoint has in a tensor; each has one dtype (checkpoint.c). */
enum fill {
	FILL_WEIGHT,
	FILL_NORM,
	FILL_EMBED,
	FILL_BIAS,
	FILL_SINK,
	FILL_CODES,
	FILL_GROUPS,
	FILL_SCALE,
	FILL_FP8,
	FILL_FP8_SCALE,
	FILL_FP4,
	FILL_FP4_SCALE,
	FILL_GLOBAL,
	FILL_INPUT_GLOBAL,
	FILL_RECIPROCAL,
};

struct part {
	char key[NAME_BYTES]; /* in the checkpoint */
	enum fill fill;
	uint64_t rows, cols;
	uint64_t at, bytes; /* in the tensor */
};

struct tensor {
	char name[NAME_BYTES];
	enum origin origin;
	enum naive naive;
	bool zero; /* scratch: has to be 0 when a graph starts */
	uint64_t bytes;
	uint32_t parts_count;
	struct part *parts;
	char factor[NAME_BYTES]; /* ACCUMULATE: by what */
	uint64_t width, pitch;	 /* PADDED: bytes of a row, and to the next one */
	CUdeviceptr live;	 /* what graphs read */
	CUdeviceptr fresh;	 /* of the pass under way */
};

struct derive_arg {
	const char *param;
	char tensor[NAME_BYTES]; /* "": a number */
	uint64_t value;
};

struct derivation {
	const char *kernel;
	uint32_t args_count;
	struct derive_arg args[ARGS_MAX];
};

struct layer {
	struct engine *engine;
	char path[NAME_BYTES];
	uint32_t index; /* dims.layers: what belongs to no layer */
	struct arena *arena;
	uint32_t tensors_count, derives_count;
	struct tensor tensors[TENSORS_MAX];
	struct derivation derives[DERIVES_MAX];
	const char *object_type; /* NULL: it has none */
	void *object;
	bool is_loaded;
};

struct options {
	const struct family *family;
	bool arena, copied, lazy, mistakes, partial, pressure, careless, silent, derived;
	int reloads, fail_at, tokens; /* fail_at: layer, or -1 */
	const char *omit, *keep, *config;
	const char *read[2], *write[2]; /* files of A and B */
	uint64_t seed;
};

struct engine {
	struct options opt;
	CUcontext context;
	CUstream stream;
	CUmodule decode_module, derive_module;
	struct safetensors checkpoint[2]; /* A, B */
	struct layer *layers;		  /* dims.layers + 1 */
	struct buffer {
		char name[NAME_BYTES];
		CUdeviceptr at;
		uint64_t bytes;
	} * buffers; /* activations, inputs, caches: fixed for ever */
	uint32_t buffers_count;
	int tokens; /* of the step under way */
};

/* ---- driver.c ---- */

#define CK(x) engine_check((x), #x, __FILE__, __LINE__)
void engine_check(CUresult r, const char *what, const char *file, int line);
/* Print one line and end: @code 1 error, 2 usage, 77 this cannot run here. */
_Noreturn void engine_die(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
void engine_start(struct engine *e);
void settle(struct engine *e);

/* ---- memory.c: blocks of a caching allocator ---- */

/* Memory comes filled with ones: int 1 is an index that exists, a lock that is taken, and next to
 * nothing as a floating-point number. Freed memory is left like that too. */
CUdeviceptr memory_new(struct engine *e, uint64_t bytes);
void memory_free(struct engine *e, CUdeviceptr p);
/* Something else, as a cache that grows, takes every free block; what it holds must stay. */
void memory_pressure(struct engine *e);
void memory_release(struct engine *e); /* it gives them back */
/* @return how many of its blocks somebody else has written into. */
unsigned memory_harmed(struct engine *e);
/* A buffer of its own, made at the first call. */
CUdeviceptr buffer(struct engine *e, const char *name, uint64_t bytes);
/* The same, one a layer. */
CUdeviceptr layer_buffer(struct layer *l, const char *name, uint64_t bytes);

/* ---- driver.c, again: launches ---- */

/* Launch a kernel of kernels/decode or kernels/ by name; @args is its struct. */
void run_decode(struct engine *e, const char *kernel, void *args);
void run_derive(struct engine *e, const char *kernel, void *args);
#define RUN(e, kernel, ...) run_decode(e, #kernel, &(struct kernel##_args){ __VA_ARGS__ })

/* ---- layer.c: what a family declares ---- */

struct tensor *layer_find(struct layer *l, const char *name);
CUdeviceptr at(struct layer *l, const char *name); /* live address, for a step */
struct tensor *loaded(struct layer *l, const char *name, enum naive naive);
/* One more part, [rows, cols], behind those before; @key below the layer's path. */
void part(struct layer *l, struct tensor *t, enum fill fill, const char *key,
	  const uint64_t shape[2]);
#define SHAPE(rows, cols) ((const uint64_t[2]){ rows, cols })
/* loaded() with one part of the same name. */
void weight(struct layer *l, enum fill fill, const char *name, const uint64_t shape[2]);
struct tensor *derived(struct layer *l, const char *name, uint64_t bytes, enum naive naive);
/* REBIND: made anew at each pass; COPY_BACK: kept. */
void scratch(struct layer *l, const char *name, uint64_t bytes, enum naive naive);
/* The same that has to be 0 when a graph starts, made anew at each pass. */
void zeroed(struct layer *l, const char *name, uint64_t bytes);
void object_part(struct layer *l, const char *name, uint64_t bytes);
/* A derivation; then its parameters, each a tensor or a number. */
void derive(struct layer *l, const char *kernel);
void derive_tensor(struct layer *l, const char *param, const char *tensor);
void derive_number(struct layer *l, const char *param, uint64_t value);

/* ---- config.c ---- */

#define LAYERS_MAX 64

struct size {
	const char *name; /* as in the config.json of a model: "hidden_size" */
	uint32_t *value, usual, least, most, step;
};
#define SIZES 14
extern const struct size sizes[SIZES];

/* Set the sizes from the files of the checkpoints that are open, else from --config. */
void config_read(struct engine *e);

/* ---- checkpoint.c ---- */

const char *fill_dtype(enum fill fill);
uint32_t fill_bytes(enum fill fill); /* of an element */
/* Write what the layers declare, by @seed, to a file. */
void checkpoint_write(struct engine *e, uint64_t seed, const char *path);
/* The same to a file of its own, and open it. */
void checkpoint_make(struct engine *e, uint64_t seed, struct safetensors *out);
/* End unless the file has what the layers declare, in type and shape. */
void checkpoint_check(const struct engine *e, const struct safetensors *s, const char *path);

/* ---- reload.c ---- */

enum outcome { RELOAD_PASS, RELOAD_REFUSED, RELOAD_ABORTED, RELOAD_UNCHECKED, RELOAD_WARNED };
/* Cold load and reloads: @number 0 is the cold load. */
enum outcome reload(struct engine *e, int number);

/* ---- storage.c ---- */

/* Of a tensor whose fresh value is there; or of scratch. */
void storage_publish(struct layer *l, struct tensor *t);
void storage_scratch(struct layer *l, struct tensor *t);
void storage_object(struct layer *l);
/* Say what follows from what, for commits. */
void storage_derive(struct layer *l);
/* The library computes the derived tensors of this layer, from the second pass on. */
bool storage_computes(const struct layer *l);

#endif
