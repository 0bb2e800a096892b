/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that kernels may touch now: a sorted array of ranges, and the checked access to it.
 * Under sim_lock.
 *
 * An access outside poisons the process, as on a real GPU: "This leaves the process in an
 * inconsistent state and any further CUDA work will return the same error." The simulation is
 * stricter than the hardware, which checks pages: here a small freed block in a shared 2 MiB page
 * is gone, too.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

static struct range **table;
static size_t count, capacity;
static uint64_t last_id;
static struct range *last_hit;	/* kernels walk along one buffer */

/* Index of the first range that ends behind @addr. */
static size_t lower(uint64_t addr)
{
	size_t lo = 0, hi = count, mid;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (table[mid]->base + table[mid]->size <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct range *range_new(uint64_t base, uint64_t size, char *host, enum range_kind kind)
{
	struct range *r = calloc(1, sizeof(*r));
	size_t at = lower(base);

	if (count == capacity) {
		capacity = capacity ? capacity * 2 : 1024;
		table = realloc(table, capacity * sizeof(*table));
	}
	memmove(table + at + 1, table + at, (count - at) * sizeof(*table));
	table[at] = r;
	count++;
	*r = (struct range){
		.base = base, .size = size, .host = host, .kind = kind, .ctx = context_current(),
		.readable = true, .writable = true, .id = ++last_id,
	};
	return r;
}

void range_end(struct range *r)
{
	size_t at = lower(r->base);

	memmove(table + at, table + at + 1, (count - at - 1) * sizeof(*table));
	count--;
	last_hit = NULL;
	free(r);
}

struct range *range_next(uint64_t addr)
{
	size_t at = lower(addr);

	return at < count ? table[at] : NULL;
}

struct range *range_at(uint64_t addr)
{
	struct range *r = range_next(addr);

	return r && r->base <= addr ? r : NULL;
}

struct range *range_exact(uint64_t base)
{
	struct range *r = range_next(base);

	return r && r->base == base ? r : NULL;
}

void *access_at(uint64_t addr, size_t *len, bool write)
{
	struct range *r = last_hit;

	if (!r || addr < r->base || addr - r->base >= r->size)
		r = range_at(addr);
	if (!r || !r->host || !(write ? r->writable : r->readable)) {
		sim_sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
		return NULL;
	}
	last_hit = r;
	*len = MIN(*len, r->base + r->size - addr);
	return r->host + (addr - r->base);
}

bool access_copy(uint64_t dst, uint64_t src, size_t n)
{
	while (n) {
		size_t len = n;
		const void *from = access_at(src, &len, false);
		void *to = from ? access_at(dst, &len, true) : NULL;

		if (!to)
			return false;
		memmove(to, from, len);
		dst += len;
		src += len;
		n -= len;
	}
	return true;
}
