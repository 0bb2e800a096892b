/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the bandwidth of the derivations that move a weight, against a copy on the device of the
 * same bytes in the same run. One figure a line: name, value, unit. The best of several turns
 * counts, and their order is mixed. On the simulated driver it only shows that it works.
 * Threads: one.
 */
#include "kernels_check.h"

#include "tests/unit/seed.h"

#define TURNS 5
#define SCALE (1u << 8) /* of the large run: results of 256 MiB */

static CUevent begin, end;
static CUdeviceptr in, out, second;
static double copy_ms;

static double timed(void (*work)(void *ctx), void *ctx)
{
	double best = 1e30;

	work(ctx); /* the first use of a kernel loads it */
	for (int i = 0; i < TURNS; i++) {
		float ms;

		CK(cuEventRecord(begin, NULL));
		work(ctx);
		CK(cuEventRecord(end, NULL));
		CK(cuEventSynchronize(end));
		CK(cuEventElapsedTime(&ms, begin, end));
		if (ms < best)
			best = ms;
	}
	return best;
}

static void copy(void *ctx)
{
	CK(cuMemcpyDtoDAsync(out, in, *(size_t *)ctx, NULL));
}

struct work {
	const char *kernel;
	void *args;
};

static void launch(void *ctx)
{
	const struct work *w = ctx;
	const struct derive *d = derive_find(w->kernel);
	struct derive_launch l;

	derive_launch(d, w->args, kernel_chip(), &l);
	kernel_launch(d, w->args, &l);
}

/* Of @bytes in and as many out: the share of what a copy reaches. */
static void measure(const char *what, const char *kernel, void *args, size_t bytes)
{
	struct work w = { kernel, args };
	double ms;

	copy_ms = timed(copy, &bytes);
	ms = timed(launch, &w);
	printf("%-40s %8.1f GB/s\n", what, ms > 0 ? 2e-6 * (double)bytes / ms : 0);
	printf("%s, of a copy%*s %8.1f %%\n", what, 29 - (int)snprintf(NULL, 0, "%s", what), "",
	       ms > 0 ? 100 * copy_ms / ms : 0);
}

/* k = 16384; one of 256 MiB. */
static void measure_repack(uint32_t bits, uint32_t flags, uint64_t perm, const char *what)
{
	struct arena_marlin_repack_args a = {
		.q = in,
		.perm = perm,
		.out = out,
		.k = 64 * SCALE,
		.n = 0,
		.bits = bits,
		.flags = flags,
	};

	a.n = (uint32_t)((256ull << 20) * 8 / bits / a.k);
	measure(what, "arena_marlin_repack", &a, 256u << 20);
}

/* A layer of a model, 4 bits: k * n = 4096 * 14336. */
static void measure_layer(uint32_t k, uint32_t flags, uint64_t perm, const char *what)
{
	struct arena_marlin_repack_args a = {
		.q = in,
		.perm = perm,
		.out = out,
		.k = k,
		.n = 4096 * 14336 / k,
		.bits = 4,
		.flags = flags,
	};

	measure(what, "arena_marlin_repack", &a, 4096ull * 14336 / 2);
}

/* An order far from the identity: backwards, or any. */
static void fill_perm(CUdeviceptr to, uint32_t count, bool backwards)
{
	int32_t *perm = malloc(4ull * count);
	uint64_t seed = count;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t j = (uint32_t)seed_below(&seed, i + 1);

		perm[i] = backwards ? (int32_t)(count - 1 - i) : perm[j];
		if (!backwards)
			perm[j] = (int32_t)i;
	}
	CK(cuMemcpyHtoD(to, perm, 4ull * count));
	CK(cuStreamSynchronize(CU_STREAM_LEGACY));
	free(perm);
}

static void speed_large(void)
{
	struct arena_nvfp4_swizzle_args swizzle = { in, out, SCALE, 8192, 128 };
	struct arena_nvfp4_swizzle_args odd = { in, out, SCALE, 8100, 126 };
	struct arena_mla_split_args mla = { in, out, second, 1024, 128, 128, 512, 2 };

	measure_repack(4, 0, 0, "Marlin repack, 4 bits");
	measure_repack(8, 0, 0, "Marlin repack, 8 bits");
	measure_repack(4, MARLIN_A8, 0, "Marlin repack, 4 bits, a8");
	measure_repack(4, MARLIN_AWQ, 0, "Marlin repack, 4 bits, AWQ");
	measure_layer(4096, 0, 0, "Marlin repack, 4096 x 14336");
	measure_layer(4096, MARLIN_AWQ, 0, "Marlin repack, 4096 x 14336, AWQ");
	fill_perm(second, 64 * SCALE, true);
	measure_repack(4, 0, second, "Marlin repack, backwards");
	fill_perm(second, 64 * SCALE, false);
	measure_repack(4, 0, second, "Marlin repack, act-order");
	measure_repack(8, 0, second, "Marlin repack, act-order, 8 bits");
	measure_repack(4, MARLIN_A8, second, "Marlin repack, act-order, a8");
	measure_repack(4, MARLIN_AWQ, second, "Marlin repack, act-order, AWQ");
	fill_perm(second, 4096, false);
	measure_layer(4096, 0, second, "Marlin repack, 4096 x 14336, order");
	fill_perm(second, 14336, false);
	measure_layer(14336, 0, second, "Marlin repack, 14336 x 4096, order");
	measure("NVFP4 swizzle", "arena_nvfp4_swizzle", &swizzle, 256u << 20);
	measure("NVFP4 swizzle, padded", "arena_nvfp4_swizzle", &odd, 256u * 8100 * 126);
	measure("MLA split", "arena_mla_split", &mla, 256u << 20);
}

static void speed_small(void)
{
	struct arena_mla_split_args mla = { in, out, second, 2, 8, 8, 16, 2 };

	measure("MLA split", "arena_mla_split", &mla, 2 * 16 * 16 * 2);
}

void speed_run(bool large)
{
	size_t bytes = large ? 257u << 20 : 1u << 16;

	CK(cuEventCreate(&begin, 0));
	CK(cuEventCreate(&end, 0));
	CK(cuMemAlloc(&in, bytes));
	CK(cuMemAlloc(&out, bytes));
	CK(cuMemAlloc(&second, bytes));
	CK(cuMemsetD8(in, 0x5a, bytes));
	if (large)
		speed_large();
	else
		speed_small();
	CK(cuMemFree(in));
	CK(cuMemFree(out));
	CK(cuMemFree(second));
}
