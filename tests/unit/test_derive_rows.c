/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of derivations, for whatever parameters a program passes. */
#include <criterion/criterion.h>
#include <string.h>

#include "kernels/derive.h"
#include "kernels/image.h"

static void any_parameters(int byte)
{
	for (size_t i = 0; derive_at(i) != NULL; i++) {
		const struct derive *d = derive_at(i);
		_Alignas(8) char args[DERIVE_ARGS_MAX];
		struct derive_range ranges[DERIVE_PARAMS_MAX];
		uint32_t count;

		memset(args, byte, sizeof(args));
		count = d->ranges(args, ranges);
		cr_assert(count > 0 && count <= d->params_count, "%s", d->name);
		for (uint32_t k = 0; k < count; k++)
			cr_assert_lt(ranges[k].offset, d->args_bytes, "%s", d->name);
	}
}

/* Parameters that were not given are 0, and nothing may be divided by them. */
Test(derive_rows, no_parameters)
{
	any_parameters(0);
}

Test(derive_rows, large_parameters)
{
	any_parameters(0xff);
}

/* ---- launches ---- */

static const struct derive_chip h200 = {
	.multiprocessors = 132,
	.shared = 232448,
	.cluster = DERIVE_CLUSTER_MAX,
};

static struct derive_launch repack(struct arena_marlin_repack_args a, struct derive_chip chip)
{
	struct derive_launch l;

	derive_launch(derive_find("arena_marlin_repack"), &a, &chip, &l);
	cr_assert(l.blocks != 0 && l.threads % 32 == 0);
	cr_assert_leq(l.shared, chip.shared);
	cr_assert(l.cluster == 1 || l.cluster <= chip.cluster);
	cr_assert_eq(l.blocks % l.cluster, 0);
	return l;
}
#define REPACK(chip, ...) repack((struct arena_marlin_repack_args){ __VA_ARGS__ }, chip)

Test(derive_launch, a_grid_that_fills_the_chip)
{
	struct derive_launch l = REPACK(h200, .q = 16, .k = 4096, .n = 14336, .bits = 4);

	cr_assert_str_eq(l.kernel, "arena_marlin_repack");
	cr_assert(l.blocks == 16 * 132 && l.threads == DERIVE_THREADS && l.shared == 0);
	l = REPACK(h200, .q = 16, .k = 16, .n = 640, .bits = 4);
	cr_assert_eq(l.blocks, 2);
	l = REPACK(h200, .q = 16, .k = 0, .n = 0, .bits = 4);
	cr_assert_eq(l.blocks, 1);
}

/* All rows of a stripe: in as few blocks as have room, from four on with two a multiprocessor. */
Test(derive_launch, act_order_in_shared_memory)
{
	struct derive_launch l;

	l = REPACK(h200, .q = 16, .perm = 16, .k = 4096, .n = 640, .bits = 4);
	cr_assert_str_eq(l.kernel, "arena_marlin_order");
	cr_assert(l.blocks == 10 && l.threads == MARLIN_ORDER_THREADS && l.cluster == 1);
	cr_assert_eq(l.shared, (4096 + 8) * 32 + 16);
	l = REPACK(h200, .q = 16, .perm = 16, .k = 14336, .n = 640, .bits = 4);
	cr_assert(l.blocks == 20 && l.cluster == 2 && l.shared == (14336 / 2 + 8) * 32 + 16);
	l = REPACK(h200, .q = 16, .perm = 16, .k = 16384, .n = 640, .bits = 4);
	cr_assert(l.blocks == 80 && l.cluster == 8 && l.shared == (16384 / 8 + 8) * 32 + 16);
	cr_assert_eq(l.threads, MARLIN_ORDER_THREADS / 2);
	l = REPACK(h200, .q = 16, .perm = 16, .k = 16384, .n = 640, .bits = 8);
	cr_assert(l.blocks == 160 && l.cluster == 16 && l.shared == (16384 / 16 + 2) * 64 + 16);
	l = REPACK(h200, .q = 16, .perm = 16, .k = 16384, .n = 640, .bits = 4, .flags = MARLIN_A8);
	cr_assert(l.blocks == 40 && l.cluster == 1 && l.shared == (16384 + 32) * 8 + 16);
}

/* Each takes stripe after stripe; clusters of 8 do not fill it. */
Test(derive_launch, no_more_blocks_than_run_at_a_time)
{
	struct derive_launch l;

	l = REPACK(h200, .q = 16, .perm = 16, .k = 4096, .n = 64 * 1000, .bits = 4);
	cr_assert_eq(l.blocks, 132);
	l = REPACK(h200, .q = 16, .perm = 16, .k = 2048, .n = 64 * 1000, .bits = 4);
	cr_assert(l.blocks == 2 * 132 && l.threads == MARLIN_ORDER_THREADS / 2);
	l = REPACK(h200, .q = 16, .perm = 16, .k = 16384, .n = 64 * 1000, .bits = 4);
	cr_assert_eq(l.blocks, 8 * 33);
}

/* Where they do not fit, the caller asks again with smaller ones. */
Test(derive_launch, smaller_clusters)
{
	struct derive_chip chip = h200;
	struct derive_launch l;

	chip.cluster = 4;
	l = REPACK(chip, .q = 16, .perm = 16, .k = 16384, .n = 640, .bits = 4);
	cr_assert(l.cluster == 4 && l.threads == MARLIN_ORDER_THREADS);
	for (chip.cluster = 3; chip.cluster-- > 0;) {
		l = REPACK(chip, .q = 16, .perm = 16, .k = 16384, .n = 640, .bits = 4);
		cr_assert_str_eq(l.kernel, "arena_marlin_repack");
		cr_assert_eq(l.cluster, 1);
	}
}

Test(derive_launch, never_more_shared_memory_than_there_is)
{
	struct derive_chip chip = h200;

	for (chip.shared = 0; chip.shared < 5000; chip.shared += 8)
		REPACK(chip, .q = 16, .perm = 16, .k = 64, .n = 64, .bits = 8);
}

Test(derive_launch, what_no_quicker_kernel_takes)
{
	struct derive_chip none = { .multiprocessors = 0 };
	struct derive_launch l;

	l = REPACK(h200, .q = 16, .perm = 16, .k = 1 << 17, .n = 640, .bits = 4);
	cr_assert_str_eq(l.kernel, "arena_marlin_repack", "too many rows");
	l = REPACK(h200, .q = 4, .perm = 16, .k = 64, .n = 640, .bits = 4);
	cr_assert_str_eq(l.kernel, "arena_marlin_repack", "q is not aligned");
	l = REPACK(h200, .q = 16, .perm = 4, .k = 64, .n = 640, .bits = 4);
	cr_assert_str_eq(l.kernel, "arena_marlin_repack", "perm is not aligned");
	l = REPACK(none, .q = 16, .perm = 16, .k = 64, .n = 640, .bits = 4);
	cr_assert_str_eq(l.kernel, "arena_marlin_repack", "nothing is known of the device");
	l = REPACK(none, .q = 16, .perm = 4, .k = 64, .n = 640, .bits = 4, .flags = MARLIN_AWQ);
	cr_assert_str_eq(l.kernel, "arena_marlin_awq");
}
