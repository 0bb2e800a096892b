/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scanner of kernel parameters and its cache of layouts, on a driver of six functions.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include "shim/coverage.h"
#include "shim/hooks.h"
#include "shim/params.h"
#include "shim/tensormap.h"

/* ---- the driver ---- */

#define FUNCTION 0x1000u /* known as a CUfunction */
#define KERNEL	 0x2000u /* a CUkernel in a CUfunction's clothes */
#define SECRET	 0x3000u /* nobody tells its sizes */
#define PLAIN	 0x4000u /* takes no parameters */

/* (const float *x, int n, struct { int a; double *p; int b; } s, CUtensorMap m) */
static const struct param four[] = { { 0, 8 }, { 8, 4 }, { 16, 24 }, { 64, 128 } };
static const struct param *known = four;
static size_t known_count = 4;
static const char *known_name = "_Z4kernPKfi";
static _Atomic unsigned asked;

static CUresult tell(size_t i, size_t *offset, size_t *size_bytes)
{
	add_relaxed(&asked, 1);
	if (i >= known_count)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = known[i].offset;
	*size_bytes = known[i].size_bytes;
	return CUDA_SUCCESS;
}

static CUresult func_param(CUfunction f, size_t i, size_t *offset, size_t *size_bytes)
{
	if ((uint64_t)f == FUNCTION)
		return tell(i, offset, size_bytes);
	return (uint64_t)f == PLAIN ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult kernel_param(CUkernel k, size_t i, size_t *offset, size_t *size_bytes)
{
	return (uint64_t)k == KERNEL ? tell(i, offset, size_bytes) : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult func_name(const char **name, CUfunction f)
{
	*name = known_name;
	return (uint64_t)f == KERNEL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult kernel_name(const char **name, CUkernel k)
{
	*name = known_name;
	return (uint64_t)k == KERNEL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* As drivers before CUDA 13.2, or (counts) as those since. */
static bool counts;

static CUresult count_of(bool is_known, size_t *out)
{
	if (!counts)
		return CUDA_ERROR_NOT_FOUND;
	*out = known_count;
	return is_known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult func_count(CUfunction f, size_t *out)
{
	return count_of((uint64_t)f == FUNCTION, out);
}

static CUresult kernel_count(CUkernel k, size_t *out)
{
	return count_of((uint64_t)k == KERNEL, out);
}

struct real_driver real = {
	.cuFuncGetParamCount = func_count,
	.cuKernelGetParamCount = kernel_count,
	.cuFuncGetParamInfo = func_param,
	.cuKernelGetParamInfo = kernel_param,
	.cuFuncGetName = func_name,
	.cuKernelGetName = kernel_name,
};
counter_t coverage[COVERAGE_COUNT];

/* ---- a call ---- */

static struct params out;

struct pack {
	int32_t a;
	uint64_t p;
	int32_t b;
};

static struct call {
	uint64_t x;
	int32_t n;
	struct pack s;
	_Alignas(128) uint64_t map[16];
	void *params[4];
} call;

static void call_init(void)
{
	call = (struct call){ .x = 0x7f0000001000, .n = 7, .s = { 1, 0x7f0000002000, 2 } };
	call.params[0] = &call.x;
	call.params[1] = &call.n;
	call.params[2] = &call.s;
	call.params[3] = call.map;
}

static void reset(void)
{
	known = four;
	known_count = 4;
	known_name = "_Z4kernPKfi";
	counts = false;
	params_forget_all();
	call_init();
	store_relaxed(&asked, 0);
}

static void expect_word(uint32_t i, uint64_t value, unsigned param, unsigned offset,
			enum confidence confidence)
{
	cr_assert_lt(i, out.count);
	cr_assert_eq(out.words[i].value, value, "word %u is %#lx", i, out.words[i].value);
	cr_assert_eq(out.words[i].param, param);
	cr_assert_eq(out.words[i].offset, offset);
	cr_assert_eq(out.words[i].confidence, confidence);
}

TestSuite(params, .init = reset);

Test(params, pointers_are_exact_and_struct_members_are_struct)
{
	cr_assert_eq(params_read(&out, FUNCTION, call.params, NULL), PARAMS_READ);
	cr_assert_eq(out.count, 2);
	expect_word(0, 0x7f0000001000, 0, 0, CONFIDENCE_EXACT);
	expect_word(1, 0x7f0000002000, 2, 8, CONFIDENCE_STRUCT);
}

Test(params, kernel_handle_is_tried_when_the_function_form_refuses)
{
	cr_assert_eq(params_read(&out, KERNEL, call.params, NULL), PARAMS_READ);
	cr_assert_eq(out.count, 2);
	cr_assert_neq(out.name, 0);
}

Test(params, small_integers_and_kernel_addresses_are_no_candidates)
{
	call.x = 0xffff;
	call.s.p = UINT64_C(1) << 57;
	params_read(&out, FUNCTION, call.params, NULL);
	cr_assert_eq(out.count, 0);
	call.x = 0x10000;
	call.s.p = (UINT64_C(1) << 57) - 8;
	params_read(&out, FUNCTION, call.params, NULL);
	cr_assert_eq(out.count, 2);
}

/* Elements of bf16, fp8 and int8. */
Test(params, odd_values_are_addresses_like_any_other)
{
	call.x |= 1;
	call.s.p |= 2;
	params_read(&out, FUNCTION, call.params, NULL);
	expect_word(0, 0x7f0000001001, 0, 0, CONFIDENCE_EXACT);
	expect_word(1, 0x7f0000002002, 2, 8, CONFIDENCE_STRUCT);
}

Test(params, a_struct_that_is_less_aligned_holds_no_pointer)
{
	static const struct param odd[] = { { 4, 24 } };
	uint64_t bytes[3] = { 0x7f0000001000, 0x7f0000002000, 0x7f0000003000 };

	known = odd;
	known_count = 1;
	cr_assert_eq(params_read(&out, FUNCTION, (void *[]){ bytes }, NULL), PARAMS_READ);
	cr_assert_eq(out.count, 0);
}

Test(params, null_entries_and_unsized_kernels_are_not_read)
{
	call.params[0] = NULL;
	cr_assert_eq(params_read(&out, FUNCTION, call.params, NULL), PARAMS_READ);
	cr_assert_eq(out.count, 1);
	cr_assert_eq(params_read(&out, SECRET, (void *[]){ (void *)8 }, NULL), PARAMS_UNSIZED);
	cr_assert_eq(out.count, 0);
	cr_assert_eq(params_read(&out, PLAIN, (void *[]){ (void *)8 }, NULL), PARAMS_READ);
	cr_assert_eq(out.count, 0);
	cr_assert_eq(params_read(&out, 0, call.params, NULL), PARAMS_UNSIZED);
}

/* ---- packed buffers ---- */

static _Alignas(128) uint64_t packed[24];
static size_t packed_bytes;
static void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
			 &packed_bytes, CU_LAUNCH_PARAM_END };

static void pack(void)
{
	memset(packed, 0, sizeof(packed));
	packed[0] = 0x7f0000001000;
	packed[3] = 0x7f0000002000;
	packed_bytes = sizeof(packed);
}

Test(params, a_packed_buffer_is_split_by_the_layout)
{
	pack();
	packed[1] = 0x7f0000003000; /* under the int: not a parameter of 8 bytes */
	cr_assert_eq(params_read(&out, FUNCTION, NULL, extra), PARAMS_READ);
	cr_assert_eq(out.count, 2);
	expect_word(0, 0x7f0000001000, 0, 0, CONFIDENCE_EXACT);
	expect_word(1, 0x7f0000002000, 2, 8, CONFIDENCE_STRUCT);
}

Test(params, a_short_buffer_is_not_read_beyond_its_end)
{
	pack();
	packed_bytes = 39; /* the struct ends at 40 */
	params_read(&out, FUNCTION, NULL, extra);
	cr_assert_eq(out.count, 1);
}

Test(params, without_a_layout_every_word_is_suspect)
{
	pack();
	cr_assert_eq(params_read(&out, SECRET, NULL, extra), PARAMS_RAW);
	cr_assert_eq(out.count, 2);
	expect_word(0, 0x7f0000001000, 0, 0, CONFIDENCE_SUSPECT);
	expect_word(1, 0x7f0000002000, 0, 24, CONFIDENCE_SUSPECT);
}

Test(params, a_list_that_does_not_end_is_not_followed)
{
	void *endless[16];

	pack();
	for (int i = 0; i < 16; i += 2) {
		endless[i] = CU_LAUNCH_PARAM_BUFFER_SIZE;
		endless[i + 1] = &packed_bytes;
	}
	cr_assert_eq(params_read(&out, FUNCTION, NULL, endless), PARAMS_READ);
	cr_assert_eq(out.count, 0);
	endless[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
	endless[1] = packed;
	cr_assert_eq(params_read(&out, FUNCTION, NULL, endless), PARAMS_READ);
	cr_assert_eq(out.count, 0);
	endless[0] = (void *)77; /* nothing that the driver knows */
	cr_assert_eq(params_read(&out, FUNCTION, NULL, endless), PARAMS_READ);
	cr_assert_eq(out.count, 0);
}

/* ---- cache ---- */

Test(params, a_layout_is_asked_for_once)
{
	params_read(&out, FUNCTION, call.params, NULL);
	cr_assert_eq(load_relaxed(&asked), 5); /* four, and the one behind the last */
	params_read(&out, FUNCTION, call.params, NULL);
	cr_assert_eq(load_relaxed(&asked), 5);
}

Test(params, a_driver_that_counts_is_asked_for_nothing_that_it_refuses)
{
	counts = true;
	params_read(&out, FUNCTION, call.params, NULL);
	cr_assert_eq(load_relaxed(&asked), 4);
	cr_assert_eq(out.count, 2);
	params_read(&out, KERNEL, call.params, NULL);
	cr_assert_eq(load_relaxed(&asked), 8);
	cr_assert_eq(out.count, 2);
	cr_assert_neq(out.name, 0);
	known_count = 0;
	params_forget_all();
	cr_assert_eq(params_read(&out, FUNCTION, call.params, NULL), PARAMS_READ);
	cr_assert_eq(out.count, 0);
	cr_assert_eq(load_relaxed(&asked), 8);
}

Test(params, an_unload_makes_a_handle_mean_something_else)
{
	static const struct param one[] = { { 0, 4 } };
	uint32_t name;

	params_read(&out, FUNCTION, call.params, NULL);
	name = out.name;
	known = one;
	known_count = 1;
	known_name = "other";
	params_forget_all();
	params_read(&out, FUNCTION, call.params, NULL);
	cr_assert_eq(out.count, 0);
	cr_assert_neq(out.name, name);
}

/* Run it under TSan: readers find whole layouts while others forget and fill. */
#define READERS 3

static struct params read_by[READERS];

static void *reader(void *arg)
{
	struct params *mine = arg;
	uintptr_t wrong = 0;

	for (int i = 0; i < 5000; i++) {
		params_read(mine, i % 2 ? FUNCTION : KERNEL, call.params, NULL);
		wrong += mine->count != 2 || mine->name == 0;
		if (i % 64 == 0)
			params_forget_all();
	}
	return (void *)wrong;
}

Test(params, threads_share_the_cache)
{
	pthread_t threads[READERS];
	void *wrong;

	for (int i = 0; i < READERS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, reader, &read_by[i]), 0);
	for (int i = 0; i < READERS; i++) {
		cr_assert_eq(pthread_join(threads[i], &wrong), 0);
		cr_assert_null(wrong);
	}
}

Test(params, a_full_cache_still_answers)
{
	/* Handles of no kernel fill the table; a good one beyond them is read all the same. */
	for (uint64_t h = 1; h < 40000; h++)
		params_read(&out, h << 20, NULL, NULL);
	cr_assert_eq(params_read(&out, FUNCTION, call.params, NULL), PARAMS_READ);
	cr_assert_eq(out.count, 2);
}

Test(params, sizes_beyond_any_kernel_are_not_believed)
{
	static const struct param huge[] = { { 0, 40000 } };

	known = huge;
	known_count = 1;
	cr_assert_eq(params_read(&out, FUNCTION, call.params, NULL), PARAMS_UNSIZED);
}

/* ---- TMA descriptors ---- */

static void fill_map(uint64_t *map, uint64_t seed)
{
	for (int i = 0; i < 16; i++)
		map[i] = (seed + (uint64_t)i) * 0x9E3779B97F4A7C15u;
}

Test(params, a_descriptor_stands_for_its_address)
{
	fill_map(call.map, 1);
	params_read(&out, FUNCTION, call.params, NULL);
	cr_assert(out.count == 2 || out.words[2].param == 3, "words of an unknown descriptor");

	tensormap_remember(call.map, 0x7f0000005000);
	params_read(&out, FUNCTION, call.params, NULL);
	cr_assert_eq(out.count, 3);
	expect_word(2, 0x7f0000005000, 3, 0, CONFIDENCE_EXACT);
	call.map[15] ^= 1; /* one bit makes it another descriptor */
	params_read(&out, FUNCTION, call.params, NULL);
	for (uint32_t i = 2; i < out.count; i++)
		cr_assert_neq(out.words[i].value, 0x7f0000005000);
}

Test(params, a_descriptor_inside_a_struct)
{
	static const struct param big[] = { { 0, 256 } };
	static _Alignas(128) uint64_t bytes[32];
	void *params[] = { bytes };

	known = big;
	known_count = 1;
	memset(bytes, 0, sizeof(bytes));
	fill_map(bytes + 8, 2);	    /* at 64 */
	bytes[24] = 0x7f0000007000; /* the word behind it */
	tensormap_remember(bytes + 8, 0x7f0000006000);
	params_read(&out, FUNCTION, params, NULL);
	cr_assert_eq(out.count, 2);
	expect_word(0, 0x7f0000006000, 0, 64, CONFIDENCE_STRUCT);
	expect_word(1, 0x7f0000007000, 0, 192, CONFIDENCE_STRUCT);
}

Test(params, the_table_of_descriptors_forgets_the_oldest_and_counts)
{
	uint64_t map[16], address;

	for (uint64_t i = 0; i < 20000; i++) {
		fill_map(map, i << 8);
		tensormap_remember(map, 0x7f0000000000 + (i << 12));
		cr_assert(tensormap_find(map, &address));
		cr_assert_eq(address, 0x7f0000000000 + (i << 12));
	}
	fill_map(map, 0);
	cr_assert_not(tensormap_find(map, &address));
	cr_assert_gt(load_relaxed(&coverage[COVERAGE_TENSOR_MAP_EVICTED]), 0);
}

Test(params, a_parameter_that_may_hold_a_forgotten_descriptor_is_told)
{
	uint64_t map[16], hash;

	params_read(&out, FUNCTION, call.params, NULL);
	cr_assert_eq(out.hash, 0);
	fill_map(call.map, 1);
	tensormap_remember(call.map, 0x7f0000005000);
	params_read(&out, FUNCTION, call.params, NULL);
	hash = out.hash;
	cr_assert_neq(hash, 0);
	cr_assert_not(out.forgotten);
	for (uint64_t i = 0; i < 20000; i++) {
		fill_map(map, i << 8);
		tensormap_remember(map, 0x7f0000000000 + (i << 12));
	}
	params_read(&out, FUNCTION, call.params, NULL);
	cr_assert(out.forgotten);
	cr_assert_eq(out.hash, hash, "the bytes are the same");
	call.n++;
	params_read(&out, FUNCTION, call.params, NULL);
	cr_assert_neq(out.hash, hash);
}

Test(params, a_descriptor_that_comes_again_takes_no_second_place)
{
	uint64_t map[16], address;

	fill_map(map, 3);
	for (int i = 0; i < 10000; i++)
		tensormap_remember(map, 0x7f0000000000 + (uint64_t)i);
	cr_assert(tensormap_find(map, &address));
	cr_assert_eq(address, 0x7f0000000000 + 9999);
	cr_assert_eq(load_relaxed(&coverage[COVERAGE_TENSOR_MAP_EVICTED]), 0);
}
