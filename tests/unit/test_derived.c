/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verification by value: derivations in commits, on a device whose memory is the host's and which
 * knows two of them, "widen" (bf16 to f32) and "product" (of two f32).
 */
#include "world.h"

#include "arena/derived.h"
#include "fake_device.h"

#define COUNT 64u
#define BYTES (4u * COUNT)

struct args {
	uint64_t a, b, out;
};

static struct arena *layer;
static struct {
	int err; /* what the next derivation comes to */
	unsigned runs;
} kernels;

/* ---- the device ---- */

static int derive(const struct device_derivation *d, uint64_t stream)
{
	const struct args *p = d->args;
	float *out = (float *)(uintptr_t)p->out;
	int err = kernels.err;

	kernels.err = 0;
	if (err)
		return err;
	kernels.runs++;
	for (uint32_t i = 0; i < COUNT; i++) {
		if (strcmp(d->name, "widen") == 0) {
			uint32_t bits = (uint32_t)((const uint16_t *)(uintptr_t)p->a)[i] << 16;

			memcpy(&out[i], &bits, 4);
		} else {
			out[i] = ((const float *)(uintptr_t)p->a)[i] *
				 ((const float *)(uintptr_t)p->b)[i];
		}
	}
	return 0;
}

static int fingerprint(const struct device_span *spans, uint32_t count, uint64_t stream,
		       uint64_t *out)
{
	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *p = (const uint8_t *)(uintptr_t)spans[i].addr;

		out[i] = 0;
		for (uint64_t k = 0; k < spans[i].bytes; k++)
			out[i] = out[i] * 1000003 + p[k] + 1;
	}
	return fake_fails() ? -EIO : 0;
}

static int compare(const struct device_copy *pairs, uint32_t count, uint64_t stream,
		   uint64_t *first)
{
	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *a = (const uint8_t *)(uintptr_t)pairs[i].dst;
		const uint8_t *b = (const uint8_t *)(uintptr_t)pairs[i].src;
		uint64_t k = 0;

		while (k < pairs[i].bytes && a[k] == b[k])
			k++;
		first[i] = k < pairs[i].bytes ? k : UINT64_MAX;
	}
	return fake_fails() ? -EIO : 0;
}

static void start(void)
{
	world_start();
	fake_start();
	device.derive = derive;
	device.fingerprint = fingerprint;
	device.compare = compare;
	layer = fake_arena("m.layers.0");
}

TestSuite(derived, .init = start);

/* ---- what an engine does ---- */

/* Numbers of a checkpoint: of @seed, the same in both formats. */
static float number(uint32_t seed, uint32_t i)
{
	return (float)(1 + (seed * 7 + i * 3) % 50);
}

static uint16_t bf16(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, 4);
	return (uint16_t)(bits >> 16);
}

static void put_bytes(const char *name, const void *from, uint64_t bytes)
{
	struct slot *s = fake_slot(layer, name, ARENA_VALUE, bytes);
	uint64_t id;

	cr_assert(s != NULL);
	cr_assert_eq(reload_enter_put(&id), 0);
	fake_touch(s);
	cr_assert_eq(reload_put(s, s->base, (uint64_t)(uintptr_t)from, false, FAKE_STREAM), 0);
	reload_leave_put();
}

static void put_bf16(const char *name, uint32_t seed)
{
	uint16_t v[COUNT];

	for (uint32_t i = 0; i < COUNT; i++)
		v[i] = bf16(number(seed, i));
	put_bytes(name, v, sizeof(v));
}

static void put_floats(const char *name, uint32_t seed, float factor)
{
	float v[COUNT];

	for (uint32_t i = 0; i < COUNT; i++)
		v[i] = number(seed, i) * factor;
	put_bytes(name, v, sizeof(v));
}

static const float *live(const char *name)
{
	return (const float *)(uintptr_t)fake_find(layer, name)->base;
}

static struct derived_value value(const char *name, uint64_t bytes, size_t offset, bool result)
{
	return (struct derived_value){ .slot = fake_find(layer, name),
				       .bytes = bytes,
				       .offset = (uint16_t)offset,
				       .result = result };
}

static void declare(const struct derivation *d)
{
	registry_lock();
	cr_assert_eq(derived_declare(layer, d), 0);
	registry_unlock();
}

static void declare_widen(enum arena_derive_mode mode)
{
	struct derivation d = { .name = "widen", .mode = mode, .count = 2 };

	d.values[0] = value("sinks", 2 * COUNT, offsetof(struct args, a), false);
	d.values[1] = value("sinks_f32", BYTES, offsetof(struct args, out), true);
	declare(&d);
}

static void declare_product(enum arena_derive_mode mode)
{
	struct derivation d = { .name = "product", .mode = mode, .count = 3 };

	d.values[0] = value("ws", BYTES, offsetof(struct args, a), false);
	d.values[1] = value("a13", BYTES, offsetof(struct args, b), false);
	d.values[2] = value("g1", BYTES, offsetof(struct args, out), true);
	declare(&d);
}

static uint64_t begin(void)
{
	uint64_t id = 0;

	cr_assert_eq(reload_begin(NULL, &id), 0, "%s", arena_message());
	return id;
}

static int commit(void)
{
	return reload_commit(layer, FAKE_STREAM);
}

/* @return does its outcome list this finding for @slot (NULL: it passes)? */
static bool ends(uint64_t id, enum finding_kind kind, const char *slot)
{
	struct reload_outcome out;
	bool as_said;

	cr_assert_eq(reload_end(id, &out), 0);
	as_said = slot == NULL
			  ? out.verdict == RELOAD_PASS && !fake_lists(&out.findings, kind, NULL)
			  : out.verdict == RELOAD_FAIL && fake_lists(&out.findings, kind, slot);
	reload_outcome_free(&out);
	return as_said;
}

static bool passes(uint64_t id)
{
	return ends(id, FINDING_STALE_VALUE, NULL);
}

/* A cold load of the sinks that is right, checked at its commit. */
static void load_sinks(uint32_t seed)
{
	uint64_t id = begin();

	put_bf16("sinks", seed);
	put_floats("sinks_f32", seed, 1);
	declare_widen(ARENA_DERIVE_CHECK);
	cr_assert_eq(commit(), 0, "%s", arena_message());
	cr_assert(passes(id));
}

static void load_scales(uint32_t seed)
{
	float v[COUNT];
	uint64_t id = begin();

	put_floats("ws", seed, 1);
	put_floats("a13", seed + 1, 1);
	for (uint32_t i = 0; i < COUNT; i++)
		v[i] = number(seed, i) * number(seed + 1, i);
	put_bytes("g1", v, sizeof(v));
	declare_product(ARENA_DERIVE_CHECK);
	cr_assert_eq(commit(), 0, "%s", arena_message());
	cr_assert(passes(id));
}

/* ---- checks ---- */

Test(derived, right_values_pass)
{
	load_sinks(1);
	cr_assert_eq(kernels.runs, 1);
	load_sinks(2);
	cr_assert_eq(kernels.runs, 2);
	cr_assert_eq(live("sinks_f32")[5], number(2, 5));
}

/* The sinks: a second pass finds f32, and does nothing. */
Test(derived, not_put_again)
{
	uint64_t id;

	load_sinks(1);
	id = begin();
	put_bf16("sinks", 2);
	cr_assert_eq(commit(), ARENA_E_REFUSED);
	cr_assert(strstr(arena_message(), "[stale-value] sinks_f32"), "%s", arena_message());
	cr_assert(strstr(arena_message(), "old value"), "%s", arena_message());
	cr_assert_eq(live("sinks_f32")[5], number(1, 5));
	cr_assert(ends(id, FINDING_STALE_VALUE, "sinks_f32"));
}

Test(derived, old_value_put_again)
{
	uint64_t id;

	load_sinks(1);
	id = begin();
	put_bf16("sinks", 2);
	put_floats("sinks_f32", 1, 1);
	cr_assert_eq(commit(), ARENA_E_REFUSED);
	cr_assert(strstr(arena_message(), "old value"), "%s", arena_message());
	cr_assert(ends(id, FINDING_STALE_VALUE, "sinks_f32"));
}

Test(derived, wrong_value)
{
	uint64_t id;
	float v[COUNT];

	load_sinks(1);
	id = begin();
	put_bf16("sinks", 2);
	for (uint32_t i = 0; i < COUNT; i++)
		v[i] = number(2, i) + (i == 10);
	put_bytes("sinks_f32", v, sizeof(v));
	cr_assert_eq(commit(), ARENA_E_REFUSED);
	cr_assert(strstr(arena_message(), "not what widen makes"), "%s", arena_message());
	cr_assert(ends(id, FINDING_STALE_VALUE, "sinks_f32"));
}

/* After a refusal everything is put again, rightly. */
Test(derived, retry)
{
	uint64_t id;

	load_sinks(1);
	id = begin();
	put_bf16("sinks", 2);
	cr_assert_eq(commit(), ARENA_E_REFUSED);
	put_bf16("sinks", 2);
	cr_assert_eq(commit(), ARENA_E_REFUSED);
	put_bf16("sinks", 2);
	put_floats("sinks_f32", 2, 1);
	cr_assert_eq(commit(), 0, "%s", arena_message());
	cr_assert(passes(id));
	cr_assert_eq(live("sinks_f32")[5], number(2, 5));
}

/* A reload that does not concern the sources is not held up. */
Test(derived, untouched)
{
	unsigned runs;
	uint64_t id;

	load_sinks(1);
	runs = kernels.runs;
	id = begin();
	put_floats("other", 1, 1);
	cr_assert_eq(commit(), 0, "%s", arena_message());
	cr_assert(passes(id));
	cr_assert_eq(kernels.runs, runs);
}

/* The NVFP4 trap: alphas multiplied in place once more. */
Test(derived, accumulated)
{
	float v[COUNT];
	uint64_t id;

	load_scales(1);
	id = begin();
	put_floats("ws", 3, 1);
	put_floats("a13", 4, 1);
	for (uint32_t i = 0; i < COUNT; i++)
		v[i] = live("g1")[i] * number(4, i);
	put_bytes("g1", v, sizeof(v));
	cr_assert_eq(commit(), ARENA_E_REFUSED);
	cr_assert(strstr(arena_message(), "[accumulated] g1"), "%s", arena_message());
	cr_assert(strstr(arena_message(), "times a13"), "%s", arena_message());
	cr_assert(ends(id, FINDING_ACCUMULATED, "g1"));
	load_scales(3);
}

/* The same in memory of somebody else, where the old value is gone: it was kept. */
Test(derived, accumulated_in_place)
{
	static float own[COUNT];
	uint64_t id = begin();

	world_open((uint64_t)(uintptr_t)own, sizeof(own), RANGE_DEVICE);
	put_floats("ws", 1, 1);
	put_floats("a13", 2, 1);
	cr_assert(fake_add(layer, "g1", ARENA_BOUND, BYTES, (uint64_t)(uintptr_t)own) != NULL);
	declare_product(ARENA_DERIVE_CHECK);
	for (uint32_t i = 0; i < COUNT; i++)
		own[i] = number(1, i) * number(2, i);
	cr_assert_eq(commit(), 0, "%s", arena_message());
	cr_assert(passes(id));
	id = begin();
	put_floats("ws", 3, 1);
	put_floats("a13", 4, 1);
	for (uint32_t i = 0; i < COUNT; i++)
		own[i] *= number(4, i);
	cr_assert_eq(commit(), ARENA_E_REFUSED);
	cr_assert(ends(id, FINDING_ACCUMULATED, "g1"), "%s", arena_message());
	/* Something else, and then what it should be. */
	id = begin();
	put_floats("ws", 5, 1);
	put_floats("a13", 6, 1);
	own[3] = 0.5f;
	cr_assert_eq(commit(), ARENA_E_REFUSED);
	cr_assert(strstr(arena_message(), "not what product makes"), "%s", arena_message());
	put_floats("ws", 5, 1);
	put_floats("a13", 6, 1);
	for (uint32_t i = 0; i < COUNT; i++)
		own[i] = number(5, i) * number(6, i);
	cr_assert_eq(commit(), 0, "%s", arena_message());
	cr_assert(passes(id));
}

/* Memory of somebody else is checked where it is. */
Test(derived, bound)
{
	static float own[COUNT];
	uint64_t id = begin();

	world_open((uint64_t)(uintptr_t)own, sizeof(own), RANGE_DEVICE);
	put_bf16("sinks", 1);
	fake_add(layer, "sinks_f32", ARENA_BOUND, BYTES, (uint64_t)(uintptr_t)own);
	declare_widen(ARENA_DERIVE_CHECK);
	for (uint32_t i = 0; i < COUNT; i++)
		own[i] = number(1, i);
	cr_assert_eq(commit(), 0, "%s", arena_message());
	cr_assert(passes(id));
	id = begin();
	put_bf16("sinks", 2);
	cr_assert_eq(commit(), ARENA_E_REFUSED);
	cr_assert(strstr(arena_message(), "old value"), "%s", arena_message());
	cr_assert(ends(id, FINDING_STALE_VALUE, "sinks_f32"));
}

/* Nothing of the library's: a parameter that is loaded in place, and what was made of it once. */
Test(derived, loaded_in_place)
{
	static uint16_t parameter[COUNT];
	static float own[COUNT];
	uint64_t id = begin();

	world_open((uint64_t)(uintptr_t)parameter, sizeof(parameter), RANGE_DEVICE);
	world_open((uint64_t)(uintptr_t)own, sizeof(own), RANGE_DEVICE);
	fake_add(layer, "sinks", ARENA_BOUND, 2 * COUNT, (uint64_t)(uintptr_t)parameter);
	fake_add(layer, "sinks_f32", ARENA_BOUND, BYTES, (uint64_t)(uintptr_t)own);
	declare_widen(ARENA_DERIVE_CHECK);
	for (int seed = 1; seed < 3; seed++) {
		id = seed == 1 ? id : begin();
		scope_enter(layer);
		cr_assert_eq(reload_receive("sinks.weight", 0, 2 * COUNT), 0);
		scope_leave();
		for (uint32_t i = 0; i < COUNT; i++)
			parameter[i] = bf16(number((uint32_t)seed, i));
		for (uint32_t i = 0; seed == 1 && i < COUNT; i++)
			own[i] = number(1, i);
		cr_assert_eq(commit(), seed == 1 ? 0 : ARENA_E_REFUSED, "%s", arena_message());
		cr_assert(ends(id, FINDING_STALE_VALUE, seed == 1 ? NULL : "sinks_f32"));
	}
}

/* What is bound may be gone, as raw weights are after loading: it is left alone, and that is said.
 */
Test(derived, bound_and_gone)
{
	uint16_t *own =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct reload_outcome out;
	uint64_t id = begin();

	world_open((uint64_t)(uintptr_t)own, 4096, RANGE_DEVICE);
	for (uint32_t i = 0; i < COUNT; i++)
		own[i] = bf16(number(1, i));
	fake_add(layer, "sinks", ARENA_BOUND, 2 * COUNT, (uint64_t)(uintptr_t)own);
	put_floats("sinks_f32", 1, 1);
	declare_widen(ARENA_DERIVE_CHECK);
	cr_assert_eq(commit(), 0, "%s", arena_message());
	cr_assert(passes(id));
	world_free((uint64_t)(uintptr_t)own);
	munmap(own, 4096);
	id = begin();
	put_floats("sinks_f32", 2, 1);
	cr_assert_eq(commit(), 0, "%s", arena_message());
	cr_assert_eq(reload_end(id, &out), 0);
	cr_assert_eq(out.verdict, RELOAD_PASS);
	cr_assert(fake_lists(&out.findings, FINDING_STALE_VALUE, "sinks_f32"));
	reload_outcome_free(&out);
	declare_widen(ARENA_DERIVE_COMPUTE);
	id = begin();
	put_floats("sinks_f32", 3, 1);
	cr_assert_eq(commit(), ARENA_E_SPEC);
	cr_assert(strstr(arena_message(), "slot sinks has no memory"), "%s", arena_message());
	cr_assert(!passes(id));
}

/* ---- computed ---- */

Test(derived, computed)
{
	struct reload_outcome out;
	uint64_t id;

	load_sinks(1);
	declare_widen(ARENA_DERIVE_COMPUTE);
	id = begin();
	put_bf16("sinks", 2);
	cr_assert_eq(live("sinks_f32")[5], number(1, 5));
	cr_assert_eq(commit(), 0, "%s", arena_message());
	for (uint32_t i = 0; i < COUNT; i++)
		cr_assert_eq(live("sinks_f32")[i], number(2, i));
	cr_assert_eq(reload_end(id, &out), 0);
	cr_assert_eq(out.verdict, RELOAD_PASS);
	cr_assert_eq(out.published_bytes, 2 * COUNT + BYTES);
	reload_outcome_free(&out);
}

/* What is computed joins a publication that zeroes scratch. */
Test(derived, computed_beside_locks)
{
	struct slot *locks = fake_slot(layer, "locks", ARENA_SCRATCH, 64);
	char *bytes = (char *)(uintptr_t)locks->base;
	uint64_t id;

	load_sinks(1);
	locks->spec.flags = ARENA_SPEC_ZERO;
	memset(bytes, 5, 64);
	declare_widen(ARENA_DERIVE_COMPUTE);
	id = begin();
	put_bf16("sinks", 2);
	cr_assert_eq(commit(), 0, "%s", arena_message());
	cr_assert_eq(live("sinks_f32")[5], number(2, 5));
	cr_assert_eq(bytes[0] + bytes[63], 0);
	cr_assert(passes(id));
}

/* What was computed is a source of what follows. */
Test(derived, chain)
{
	uint64_t id;

	load_sinks(1);
	load_scales(1);
	declare_widen(ARENA_DERIVE_COMPUTE);
	declare(&(struct derivation){
		.name = "product",
		.mode = ARENA_DERIVE_COMPUTE,
		.count = 3,
		.values = { value("sinks_f32", BYTES, offsetof(struct args, a), false),
			    value("a13", BYTES, offsetof(struct args, b), false),
			    value("g1", BYTES, offsetof(struct args, out), true) } });
	id = begin();
	put_bf16("sinks", 5);
	put_floats("a13", 6, 1);
	cr_assert_eq(commit(), 0, "%s", arena_message());
	cr_assert(passes(id));
	cr_assert_eq(live("g1")[7], number(5, 7) * number(6, 7));
}

Test(derived, off)
{
	uint64_t id;

	load_sinks(1);
	declare_widen(ARENA_DERIVE_OFF);
	id = begin();
	put_bf16("sinks", 2);
	cr_assert_eq(commit(), 0, "%s", arena_message());
	cr_assert(passes(id));
}

/* ---- faults ---- */

/* A launch that fails refuses the layer, and what was staged can be committed once it works. */
Test(derived, launch_fails)
{
	static const int errors[][2] = { { -EIO, ARENA_E_DEVICE },
					 { -EBUSY, ARENA_E_BUSY },
					 { -ENOSYS, ARENA_E_DEVICE } };
	enum arena_derive_mode modes[] = { ARENA_DERIVE_CHECK, ARENA_DERIVE_COMPUTE };
	uint32_t seed = 1;

	load_sinks(seed);
	for (size_t m = 0; m < 2; m++)
		for (size_t i = 0; i < 3; i++) {
			uint64_t id = begin();

			declare_widen(modes[m]);
			put_bf16("sinks", ++seed);
			put_floats("sinks_f32", seed, 1);
			kernels.err = errors[i][0];
			cr_assert_eq(commit(), errors[i][1], "%s", arena_message());
			cr_assert_eq(live("sinks_f32")[5], number(seed - 1, 5));
			cr_assert_eq(commit(), 0, "%s", arena_message());
			cr_assert_eq(live("sinks_f32")[5], number(seed, 5));
			cr_assert(passes(id));
		}
}

/* Whatever call of the device fails: all old and refused, or all new. Nothing is left behind. */
Test(derived, any_call_fails)
{
	uint64_t held = 0;
	enum arena_derive_mode modes[] = { ARENA_DERIVE_CHECK, ARENA_DERIVE_COMPUTE };

	for (size_t m = 0; m < 2; m++)
		for (uint64_t nth = 1; nth < 30; nth++) {
			uint32_t seed = (uint32_t)(2 * nth + m);
			uint64_t id;
			int err;

			load_sinks(seed);
			held = held ? held : load_relaxed(&fake.bytes_live);
			declare_widen(modes[m]);
			id = begin();
			put_bf16("sinks", seed + 1);
			if (modes[m] == ARENA_DERIVE_CHECK)
				put_floats("sinks_f32", seed + 1, 1);
			fake_fail(nth);
			err = commit();
			fake_fail(0);
			cr_assert_eq(live("sinks_f32")[5], number(seed + (err == 0), 5),
				     "call %lu: %d %s", nth, err, arena_message());
			cr_assert_eq(passes(id), err == 0);
			cr_assert_eq(load_relaxed(&fake.bytes_live), held, "call %lu", nth);
		}
}
