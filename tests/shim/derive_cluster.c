/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A derivation that takes clusters of blocks, on the simulated driver: Marlin's repack in act-order
 * of more rows than one block has room for. With SIM_FAIL: where the driver says that no cluster of
 * a size has room, smaller ones are taken, at last none. Argument: "refused", if the launch itself
 * fails.
 */
#include <cuda.h>
#include <stdint.h>
#include <string.h>

#include "arena/derive.h"
#include "tests/shim/check.h"

#define WEIGHT_ROWS    16384
#define WEIGHT_COLUMNS 64
#define BYTES	       (WEIGHT_ROWS * WEIGHT_COLUMNS / 2) /* 4 bits */
#define OK(call)       CHECK((call) == CUDA_SUCCESS, "driver")

static const char *message(void)
{
	static char text[512];

	arena_last_message(text, sizeof(text));
	return text;
}

static void *put(struct arena *layer, const char *name, uint64_t bytes, CUdeviceptr from,
		 enum arena_publish how)
{
	struct arena_spec spec = ARENA_SPEC_INIT;
	void *live = NULL;

	spec.bytes = bytes;
	CHECK(arena_put(layer, name, &spec, (void *)from, how, &live, NULL) == 0, "%s", message());
	return live;
}

static void declare(struct arena *layer)
{
	const struct arena_derive_arg args[] = { { "q", "q", 0 },	 { "perm", "perm", 0 },
						 { "out", "out", 0 },	 { "k", NULL, WEIGHT_ROWS },
						 { "n", NULL, WEIGHT_COLUMNS }, { "bits", NULL, 4 } };
	struct arena_derivation d = ARENA_DERIVATION_INIT;

	d.mode = ARENA_DERIVE_COMPUTE;
	d.name = "arena_marlin_repack";
	d.args = args;
	d.args_count = sizeof(args) / sizeof(args[0]);
	CHECK(arena_derive(layer, &d) == 0, "%s", message());
}

/* All codes are the same ones: so is the result, whatever the order is. */
static bool is_all(CUdeviceptr at, unsigned char value)
{
	static unsigned char is[BYTES];

	OK(cuCtxSynchronize());
	OK(cuMemcpyDtoH(is, at, BYTES));
	return is[0] == value && memcmp(is, is + 1, BYTES - 1) == 0;
}

int main(int argc, char **argv)
{
	bool refused = argc > 1 && strcmp(argv[1], "refused") == 0;
	struct arena *layer;
	CUdeviceptr source, out;
	CUcontext ctx;
	uint64_t id;
	char *json = NULL;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	OK(cuMemAlloc(&source, BYTES));
	OK(cuMemsetD8(source, 0, BYTES));
	CHECK(arena_open("layer", &layer) == 0, "%s", message());
	put(layer, "q", BYTES, source, ARENA_DIRECT);
	put(layer, "perm", WEIGHT_ROWS * 4, source, ARENA_DIRECT);
	out = (CUdeviceptr)put(layer, "out", BYTES, source, ARENA_DIRECT);
	declare(layer);
	OK(cuCtxSynchronize());
	OK(cuMemsetD8(source, 0x33, BYTES));
	CHECK(arena_reload_begin(NULL, &id) == 0, "%s", message());
	put(layer, "q", BYTES, source, ARENA_STAGED);
	if (refused) {
		CHECK(arena_layer_commit(layer, NULL) == ARENA_E_DEVICE, "%s", message());
		CHECK(strstr(message(), "arena_marlin_repack") != NULL, "%s", message());
		CHECK(is_all(out, 0), "a refused layer has a new value");
	}
	CHECK(arena_layer_commit(layer, NULL) == 0, "%s", message());
	CHECK(arena_reload_end(id, &json) == 0, "%s", message());
	arena_free(json);
	CHECK(is_all(out, 0x33), "it was not computed");
	return check_result();
}
