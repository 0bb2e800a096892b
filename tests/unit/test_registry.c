/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas, slots, specs, messages; device storage of arenas. */
#include "slots.h"

#include <errno.h>

#include "arena/binding.h"
#include "arena/storage.h"
#include "seed.h"

TestSuite(registry, .init = world_start);

Test(registry, arenas_by_path)
{
	struct arena *a, *b;

	registry_lock();
	a = registry_open("model.layers.0");
	b = registry_open("model.layers.1");
	cr_assert(a && b && a != b);
	cr_assert_eq(registry_open("model.layers.0"), a);
	cr_assert_null(registry_open(""));
	cr_assert_eq(registry_first(), a);
	cr_assert_eq(a->next, b);
	cr_assert_null(b->next);
	registry_unlock();
}

Test(registry, slots_by_name)
{
	struct arena_spec spec = spec_of(64);
	struct arena *a, *b;
	struct slot *s, *t;

	registry_lock();
	a = registry_open("a");
	b = registry_open("b");
	cr_assert_null(slot_find(a, "w"));
	s = slot_add(a, "w", ARENA_VALUE, &spec);
	t = slot_add(a, "v", ARENA_SCRATCH, &spec);
	cr_assert_eq(slot_find(a, "w"), s);
	cr_assert_eq(slot_find(a, "v"), t);
	cr_assert_null(slot_find(b, "w"), "another arena");
	cr_assert_null(slot_find(a, ""));
	cr_assert_eq(a->slots, s);
	cr_assert_eq(s->next, t);
	cr_assert_eq(t->serial, 1);
	cr_assert_eq(a->slots_count, 2);
	cr_assert_eq(s->arena, a);
	cr_assert_eq(s->kind, ARENA_VALUE);
	registry_unlock();
}

/* ---- specs ---- */

static struct arena_spec full(void)
{
	return (struct arena_spec){
		.struct_bytes = sizeof(struct arena_spec),
		.bytes = 4096,
		.device = 1,
		.ndim = 3,
		.shape = { 4, 1, 256 },
		.dtype = "<f4",
		.layout = "marlin",
	};
}

Test(registry, spec_is_read_and_told)
{
	struct arena_spec in = full(), out;
	char buf[256], small[8];

	in.shape[5] = 77;
	strcpy(in.dtype + 5, "left");
	cr_assert_eq(spec_read(&in, &out), 0);
	cr_assert_eq(spec_text(&out, buf, sizeof(buf)), strlen(buf));
	cr_assert_str_eq(buf, "bytes=4096 dtype=<f4 shape=[4,1,256] strides=[256,1,1] device=1 "
			      "layout=marlin");
	cr_assert_eq(spec_text(&out, small, sizeof(small)), strlen(buf));
	cr_assert_str_eq(small, "bytes=4");
	cr_assert_eq(out.shape[5], 0);
}

/* What says the same is equal, in whatever words; each thing that differs makes a difference. */
Test(registry, spec_equality)
{
	struct arena_spec a, b, in = full();

	cr_assert_eq(spec_read(&in, &a), 0);
	memcpy(in.strides, (int64_t[]){ 256, 999, 1 }, 3 * sizeof(int64_t));
	cr_assert_eq(spec_read(&in, &b), 0);
	cr_assert(spec_equal(&a, &b), "the stride of one element says nothing");
#define DIFFERS(change)                                     \
	do {                                                \
		in = full();                                \
		change;                                     \
		cr_assert_eq(spec_read(&in, &b), 0);        \
		cr_assert_not(spec_equal(&a, &b), #change); \
	} while (0)
	DIFFERS(in.bytes = 8192; in.shape[0] = 8);
	DIFFERS(in.device = 0);
	DIFFERS(in.shape[0] = in.shape[1] = 2);
	DIFFERS(in.ndim = 0);
	DIFFERS(memcpy(in.strides, ((int64_t[]){ 1, 1, 4 }), 24));
	DIFFERS(in.dtype[1] = 'i');
	DIFFERS(in.layout[0] = 0);
	DIFFERS(in.flags = ARENA_SPEC_SCRATCH);
#undef DIFFERS
}

Test(registry, spec_of_another_version)
{
	struct {
		struct arena_spec spec;
		uint64_t more[2];
	} larger = { .spec = full() };
	struct arena_spec in = full(), out;

	in.struct_bytes = offsetof(struct arena_spec, ndim);
	cr_assert_eq(spec_read(&in, &out), 0, "%s", arena_message());
	cr_assert_eq(out.bytes, 4096);
	cr_assert_eq(out.ndim, 0);
	cr_assert_eq(out.struct_bytes, sizeof(out));
	larger.spec.struct_bytes = sizeof(larger);
	cr_assert_eq(spec_read(&larger.spec, &out), 0);
	larger.more[1] = 1;
	cr_assert_eq(spec_read(&larger.spec, &out), ARENA_E_INVALID);
}

Test(registry, bad_specs_are_refused_with_a_reason)
{
	struct arena_spec in, out;

#define REFUSED(field, change)                                                    \
	do {                                                                      \
		in = full();                                                      \
		change;                                                           \
		cr_assert_eq(spec_read(&in, &out), ARENA_E_INVALID, #change);     \
		cr_assert(strstr(arena_message(), field), "%s", arena_message()); \
	} while (0)
	cr_assert_eq(spec_read(NULL, &out), ARENA_E_INVALID);
	REFUSED("spec.struct_bytes", in.struct_bytes = 0);
	REFUSED("spec.struct_bytes", in.struct_bytes = 1u << 30);
	REFUSED("spec.bytes", in.bytes = 0);
	REFUSED("spec.bytes", in.bytes = UINT64_MAX);
	REFUSED("spec.device", in.device = -1);
	REFUSED("spec.ndim", in.ndim = 9);
	REFUSED("spec.flags", in.flags = 1u << 31);
	REFUSED("spec.shape[1]", in.shape[1] = -2);
	REFUSED("spec.shape", in.shape[0] = in.shape[2] = INT64_MAX);
	REFUSED("spec.dtype", memset(in.dtype, 'x', sizeof(in.dtype)));
	REFUSED("spec.layout", memset(in.layout, 'x', sizeof(in.layout)));
#undef REFUSED
}

static int fits(uint64_t bytes, const char *dtype, int64_t rows, int64_t stride)
{
	struct arena_spec in = full(), out;

	in.bytes = bytes;
	in.ndim = 2;
	in.shape[0] = rows;
	in.shape[1] = 8;
	in.strides[0] = stride;
	in.strides[1] = stride ? 1 : 0;
	in.layout[0] = 0;
	memset(in.dtype, 0, sizeof(in.dtype));
	strcpy(in.dtype, dtype);
	return spec_read(&in, &out);
}

Test(registry, a_shape_has_to_fit_its_bytes)
{
	static const struct {
		const char *dtype;
		uint64_t bytes;
	} known[] = { { "<f4", 4 },	      { "|u1", 1 },
		      { ">c16", 16 },	      { "=U3", 12 },
		      { "bool", 1 },	      { "bfloat16", 2 },
		      { "int64", 8 },	      { "complex64", 8 },
		      { "float8_e4m3fn", 1 }, { "float4_e2m1fnx2", 1 },
		      { "quint4x2", 1 } };
	struct arena_spec in = full(), out;

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		cr_expect_eq(fits(16 * known[i].bytes, known[i].dtype, 2, 0), 0, "%s",
			     arena_message());
		cr_expect_eq(fits(16 * known[i].bytes - 1, known[i].dtype, 2, 0), ARENA_E_INVALID,
			     "%s", known[i].dtype);
		cr_expect_eq(fits(16 * known[i].bytes + 1, known[i].dtype, 2, 0), 0, "padding");
	}
	fits(60, "<f4", 2, 0);
	cr_assert(strstr(arena_message(), "60, but") && strstr(arena_message(), "take 64;"), "%s",
		  arena_message());
	/* With gaps: from the first to the last element at least. */
	cr_expect_eq(fits(4 * 18, "<f4", 2, 10), 0);
	cr_expect_eq(fits(4 * 20, "<f4", 2, 10), 0);
	cr_expect_eq(fits(4 * 18 - 1, "<f4", 2, 10), ARENA_E_INVALID);
	cr_expect_eq(fits(4 * 18, "<f4", 2, -10), 0);
	cr_expect_eq(fits(4 * 8, "<f4", 1, 10), 0, "of one row the stride says nothing");
	cr_expect_eq(fits(1, "<f4", 0, 0), 0, "an empty one");
	cr_expect_eq(fits(64, "<f4", INT64_MAX / 8, INT64_MAX), ARENA_E_INVALID);
	/* What is not known is not judged, nor how a layout fills its bytes. */
	cr_expect_eq(fits(5, "fp6_packed", 2, 0), 0);
	cr_expect_eq(fits(5, "", 2, 0), 0);
	in.bytes = 8192;
	cr_expect_eq(spec_read(&in, &out), 0);
	in.bytes = 4095;
	cr_expect_eq(spec_read(&in, &out), ARENA_E_INVALID);
}

/* ---- storage ---- */

static struct {
	uint64_t next, bytes, fail_after, context;
	unsigned allocs, frees;
} gpu = { .next = 0x7f0000000000ull, .fail_after = UINT64_MAX };

static int gpu_alloc(uint64_t bytes, int32_t ordinal, uint64_t *addr)
{
	/* Deadlocks if it were called with the lock. */
	registry_lock();
	registry_unlock();
	if (gpu.allocs == gpu.fail_after)
		return -12;
	if (ordinal > 1)
		return -ENODEV;
	gpu.allocs++;
	gpu.bytes += bytes;
	*addr = gpu.next + ((uint64_t)ordinal << 48);
	gpu.next += bytes;
	return 0;
}

static void gpu_free(uint64_t addr)
{
	gpu.frees++;
}

static uint64_t gpu_context(int32_t ordinal)
{
	return gpu.context;
}

static int32_t gpu_devices(void)
{
	return 2;
}

static struct arena *arena_with_gpu(void)
{
	struct arena *a;

	device.alloc = gpu_alloc;
	device.free = gpu_free;
	device.context = gpu_context;
	device.devices = gpu_devices;
	registry_lock();
	a = registry_open("a");
	registry_unlock();
	return a;
}

static uint64_t take(struct arena *a, int32_t ordinal, uint64_t bytes)
{
	uint64_t addr = 0;
	struct range_view v;

	cr_assert_eq(storage_take(a, ordinal, bytes, &addr), 0, "%s", arena_message());
	cr_assert_eq(addr % 256, 0);
	cr_assert(ledger_find(addr, &v) && v.kind == RANGE_DEVICE);
	cr_assert_leq(addr + bytes, v.base + v.size_bytes);
	return addr;
}

Test(registry, storage_packs_small_slots)
{
	struct arena *a = arena_with_gpu();
	uint64_t first = take(a, 0, 4);

	for (unsigned i = 1; i < 256; i++)
		cr_assert_eq(take(a, 0, 4), first + i * 256);
	cr_assert_eq(gpu.allocs, 1);
	cr_assert_eq(gpu.bytes, 64 << 10);
	take(a, 0, 4);
	cr_assert_eq(gpu.bytes, (64 + 128) << 10, "the next chunk is twice as large");
	cr_assert_eq(storage_bytes(), gpu.bytes);
}

Test(registry, storage_of_large_slots_and_devices)
{
	struct arena *a = arena_with_gpu();
	uint64_t large = take(a, 0, MIB), other;

	cr_assert_eq(gpu.bytes, MIB);
	take(a, 0, 100);
	other = take(a, 1, 100);
	cr_assert_eq(other >> 48, 1);
	cr_assert_eq(large >> 48, 0);
	take(a, 0, MIB - 1);
	storage_untake(a, large, MIB);
	cr_assert_eq(gpu.frees, 1);
	cr_assert_not(ledger_find(large, &(struct range_view){ .base = 0 }));
}

Test(registry, storage_is_given_back)
{
	struct arena *a = arena_with_gpu();
	uint64_t first = take(a, 0, 1000), second = take(a, 0, 1000), third = take(a, 0, 256);

	storage_untake(a, second, 1000);
	cr_assert_eq(take(a, 0, 512), second);
	cr_assert_eq(take(a, 0, 512), second + 512);
	storage_untake(a, third, 256);
	cr_assert_eq(take(a, 0, 512), third, "joined with the rest behind it");
	storage_untake(a, first, 1000);
	cr_assert_eq(gpu.allocs, 1);
	cr_assert_eq(gpu.frees, 0);
}

Test(registry, storage_without_device_memory)
{
	struct arena *a = arena_with_gpu();
	uint64_t addr;

	gpu.fail_after = 0;
	cr_assert_eq(storage_take(a, 0, 100, &addr), ARENA_E_DEVICE);
	cr_assert(strstr(arena_message(), "65536 bytes"), "%s", arena_message());
	cr_assert_eq(storage_take(a, 0, MIB, &addr), ARENA_E_DEVICE);
	gpu.fail_after = UINT64_MAX;
	take(a, 0, 100);
	cr_assert_eq(gpu.allocs, 1);
}

Test(registry, storage_on_a_device_that_is_not_there)
{
	struct arena *a = arena_with_gpu();
	uint64_t addr;

	cr_assert_eq(storage_take(a, 9, 100, &addr), ARENA_E_DEVICE);
	cr_assert(strstr(arena_message(), "no device 9"), "%s", arena_message());
	cr_assert(strstr(arena_message(), "sees 2; pass 0 to 1"), "%s", arena_message());
}

static struct slot *slot_in(struct arena *a, const char *name, uint64_t bytes)
{
	struct arena_spec spec = spec_of(bytes);
	uint64_t base = take(a, 0, bytes);
	struct slot *s;

	registry_lock();
	s = slot_add(a, name, ARENA_VALUE, &spec);
	binding_set(s, base);
	registry_unlock();
	return s;
}

Test(registry, storage_dies_with_its_context)
{
	struct arena *a = arena_with_gpu(), *b;
	struct slot *small, *large, *other, *bound;
	uint64_t held, dead;

	registry_lock();
	b = registry_open("b");
	registry_unlock();
	gpu.context = 1;
	small = slot_in(a, "small", 100);
	large = slot_in(a, "large", 3 * MIB);
	dead = small->base;
	gpu.context = 2;
	other = slot_in(b, "other", 100);
	held = slot_in(a, "other", 100)->base;
	cr_assert(held - dead > 64 << 10, "a chunk of its own");
	bound = slot_in(b, "bound", 100);
	bound->kind = ARENA_BOUND;
	binding_set(bound, small->base);
	held = storage_bytes();

	ledger_close_context(1);
	storage_context_gone(1);
	cr_assert_eq(small->base, 0);
	cr_assert_eq(large->base, 0);
	cr_assert_neq(other->base, 0);
	cr_assert_eq(bound->base, dead, "its owner binds it");
	cr_assert_eq(held - storage_bytes(), 3 * MIB + (64 << 10));
	storage_untake(a, dead, 100);
	storage_untake(a, dead + MIB, 3 * MIB);
	cr_assert_eq(gpu.frees, 0, "the driver did it");
	/* The handle comes back, the memory does not. */
	gpu.context = 1;
	cr_assert(take(a, 0, 100) - dead > 64 << 10);
	gpu.context = 2;
	cr_assert_eq(take(b, 0, 100), other->base + 512);
	storage_context_gone(0);
	cr_assert_neq(other->base, 0);
}

/* No two pieces overlap, whatever is taken and given back. */
Test(registry, storage_model)
{
	enum { PIECES = 200 };
	struct {
		uint64_t addr, bytes;
	} pieces[PIECES] = { { 0, 0 } };
	uint64_t seed = seed_start("storage");
	struct arena *a = arena_with_gpu();

	for (unsigned round = 0; round < 20000; round++) {
		unsigned i = (unsigned)seed_below(&seed, PIECES);

		if (pieces[i].bytes) {
			storage_untake(a, pieces[i].addr, pieces[i].bytes);
			pieces[i].bytes = 0;
			continue;
		}
		pieces[i].bytes = 1 + seed_below(&seed, seed_below(&seed, 8) ? 5000 : 200000);
		pieces[i].addr = take(a, 0, pieces[i].bytes);
		for (unsigned k = 0; k < PIECES; k++)
			if (k != i && pieces[k].bytes)
				cr_assert(pieces[k].addr + pieces[k].bytes <= pieces[i].addr ||
						  pieces[i].addr + pieces[i].bytes <=
							  pieces[k].addr,
					  "round %u", round);
	}
	cr_assert_lt(gpu.bytes, 200 * MIB);
}
