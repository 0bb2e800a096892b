/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C twins of tests/victims/kernels.cu: what those kernels do, on simulated memory. One function
 * and one row a kernel; change both files together. Under sim_lock.
 *
 * A twin stops at its first illegal access, which poisons the process (range.c).
 */
#include "kernels/image.h"
#include "kernels/publish.h"
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

bool twin_load(uint64_t addr, void *to, size_t n)
{
	while (n) {
		size_t len = n;
		const void *from = access_at(addr, &len, false);

		if (!from)
			return false;
		memcpy(to, from, len);
		to = (char *)to + len;
		addr += len;
		n -= len;
	}
	return true;
}

bool twin_store(uint64_t addr, const void *from, size_t n)
{
	while (n) {
		size_t len = n;
		void *to = access_at(addr, &len, true);

		if (!to)
			return false;
		memcpy(to, from, len);
		from = (const char *)from + len;
		addr += len;
		n -= len;
	}
	return true;
}

static bool store_int(uint64_t addr, int v)
{
	return twin_store(addr, &v, sizeof(v));
}

/* Ints at a time: a look-up for each is what takes minutes under a sanitizer. */
#define RUN ((size_t)256)

struct set_args { uint64_t p; int v; size_t n; };
static void k_set(const void *args)
{
	const struct set_args *a = args;
	int v[RUN];

	for (size_t i = 0; i < RUN; i++)
		v[i] = a->v;
	for (size_t i = 0; i < a->n; i += RUN)
		if (!twin_store(a->p + 4 * i, v, 4 * MIN(a->n - i, RUN)))
			return;
}

struct acc_args { uint64_t d, s; size_t n; };
static void k_acc(const void *args)
{
	const struct acc_args *a = args;
	int d[RUN], s[RUN];

	for (size_t i = 0; i < a->n; i += RUN) {
		size_t n = MIN(a->n - i, RUN);

		if (!twin_load(a->s + 4 * i, s, 4 * n) || !twin_load(a->d + 4 * i, d, 4 * n))
			return;
		for (size_t k = 0; k < n; k++)
			d[k] = (int)((unsigned)d[k] + (unsigned)s[k]);
		if (!twin_store(a->d + 4 * i, d, 4 * n))
			return;
	}
}

static void k_copy(const void *args)
{
	const struct acc_args *a = args;

	access_copy(a->d, a->s, 4 * a->n);
}

struct two_args { uint64_t o, p; };
static void k_chase(const void *args)
{
	const struct two_args *a = args;
	uint64_t inner;
	int v;

	if (twin_load(a->p, &inner, sizeof(inner)) && twin_load(inner, &v, sizeof(v)))
		store_int(a->o, v);
}

static void k_bounded(const void *args)
{
	const struct two_args *a = args;
	int n;

	if (twin_load(a->p, &n, sizeof(n)))
		store_int(a->o, MAX(0, MIN(n, 1000000)));
}

static void k_ticket(const void *args)
{
	const struct two_args *a = args;	/* the counter first */
	int c;

	if (twin_load(a->o, &c, sizeof(c)) && store_int(a->o, c + 1))
		store_int(a->p, c);
}

/* Its stream stays busy meanwhile (op_stall()); what it writes, it writes at its end. */
struct spin_args { uint64_t p; long long cycles; };
static void k_spin(const void *args)
{
	const struct spin_args *a = args;

	store_int(a->p, 1);
}

struct seed_args { uint64_t out; unsigned long long seed; int n; };
static void k_seed(const void *args)
{
	const struct seed_args *a = args;
	float v;

	for (int i = 0; i < a->n; i++) {
		v = (float)(a->seed % 1024) + (float)i;
		if (!twin_store(a->out + 4 * (uint64_t)i, &v, sizeof(v)))
			return;
	}
}

struct range_args { uint64_t out, b, e; };
static void k_range(const void *args)
{
	const struct range_args *a = args;

	store_int(a->out, (int)((int64_t)(a->e - a->b) / 4));
}

struct by_value { uint64_t out; long long tag; uint64_t src; size_t n; };
static void k_struct(const void *args)
{
	const struct by_value *a = args;
	const struct acc_args acc = { a->out, a->src, a->n };

	k_acc(&acc);
}

/* The TMA unit fetches one box: 64 ints. */
static void load_box(uint64_t out, const CUtensorMap *map)
{
	int box[64];

	if (twin_load(tensormap_address(map), box, sizeof(box)))
		store_int(out, box[0]);
}

struct tma_args { uint64_t out; CUtensorMap map; };
static void k_tma(const void *args)
{
	const struct tma_args *a = args;

	load_box(a->out, &a->map);
}

static void k_tmap(const void *args)
{
	const struct two_args *a = args;
	CUtensorMap map;

	if (twin_load(a->p, &map, sizeof(map)))
		load_box(a->o, &map);
}

struct cond_args { uint64_t handle; int value; };
static void k_cond(const void *args)
{
	const struct cond_args *a = args;
	unsigned *value;

	if (!conditional_value(a->handle, &value))
		*value = (unsigned)a->value;
}

/* The kernels of the shim itself (kernels/): their twins are beside their code. */

static void copy(uint64_t dst, uint64_t src, uint64_t bytes)
{
	access_copy(dst, src, bytes);
}

static void arena_publish(const void *args)
{
	const struct arena_publish_args *a = args;
	struct publish_op *ops = malloc(a->count * sizeof(*ops));
	const struct publish_grid g = { ops, a->count, a->tiles };
	uint32_t blocks = (uint32_t)MIN(a->tiles, 7);

	if (twin_load(a->ops, ops, a->count * sizeof(*ops)))
		for (uint32_t i = 0; i < blocks; i++)
			publish_twin(&g, i, blocks, copy);
	free(ops);
}

#define PARAM(type, field)	{ offsetof(struct type, field), sizeof(((struct type *)0)->field) }
#define TWIN(kernel, type, n, ...)                                                            \
	{ #kernel, kernel, n, { __VA_ARGS__ }, sizeof(struct type) }

#define MAINTAIN(kernel, last)                                                                \
	TWIN(kernel, kernel##_args, 4, PARAM(kernel##_args, ops), PARAM(kernel##_args, count), \
	     PARAM(kernel##_args, tiles), PARAM(kernel##_args, last))

const struct twin twins[] = {
	TWIN(k_spin, spin_args, 2, PARAM(spin_args, p), PARAM(spin_args, cycles)),
	TWIN(k_set, set_args, 3, PARAM(set_args, p), PARAM(set_args, v), PARAM(set_args, n)),
	TWIN(k_acc, acc_args, 3, PARAM(acc_args, d), PARAM(acc_args, s), PARAM(acc_args, n)),
	TWIN(k_copy, acc_args, 3, PARAM(acc_args, d), PARAM(acc_args, s), PARAM(acc_args, n)),
	TWIN(k_chase, two_args, 2, PARAM(two_args, o), PARAM(two_args, p)),
	TWIN(k_bounded, two_args, 2, PARAM(two_args, o), PARAM(two_args, p)),
	TWIN(k_ticket, two_args, 2, PARAM(two_args, o), PARAM(two_args, p)),
	TWIN(k_seed, seed_args, 3, PARAM(seed_args, out), PARAM(seed_args, seed),
	     PARAM(seed_args, n)),
	TWIN(k_range, range_args, 3, PARAM(range_args, out), PARAM(range_args, b),
	     PARAM(range_args, e)),
	TWIN(k_struct, by_value, 1, { 0, sizeof(struct by_value) }),
	TWIN(k_tma, tma_args, 2, PARAM(tma_args, out), PARAM(tma_args, map)),
	TWIN(k_tmap, two_args, 2, PARAM(two_args, o), PARAM(two_args, p)),
	TWIN(arena_publish, arena_publish_args, 3, PARAM(arena_publish_args, ops),
	     PARAM(arena_publish_args, count), PARAM(arena_publish_args, tiles)),
	TWIN(arena_zero, arena_zero_args, 3, PARAM(arena_zero_args, ops),
	     PARAM(arena_zero_args, count), PARAM(arena_zero_args, tiles)),
	MAINTAIN(arena_compare, out),
	MAINTAIN(arena_fingerprint, out),
	MAINTAIN(arena_scan, job),
	TWIN(k_cond, cond_args, 2, PARAM(cond_args, handle), PARAM(cond_args, value)),
};
const size_t n_twins = ARRAY_SIZE(twins);
const struct twin *const twin_spin = &twins[0];
