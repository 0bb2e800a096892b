/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device addresses and the host memory behind them. Under sim_lock.
 *
 * An address space is reserved without access, in multiples of 2 MiB, and never given back to the
 * system: a freed piece is what the next request of the same size gets, last in first out, as
 * allocators do; so address reuse is deterministic.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <sys/mman.h>

#define LOW_BEGIN	0x20000000ull
#define LOW_END		0xe0000000ull

/* Everything that was ever reserved: what is not live in here must not be touched. */
struct reserved {
	uint64_t base, size;
	struct reserved *next;
};
static struct reserved *reserved;

struct hole {
	uint64_t base, size;
	struct hole *next;
};
static struct hole *holes;		/* device addresses */
static struct hole *host_holes;		/* pinned and managed memory, no access while it waits */

static uint64_t hole_take(struct hole **list, uint64_t size, uint64_t align, uint64_t hint)
{
	struct hole *h;
	uint64_t base;

	for (struct hole **at = list; (h = *at); at = &h->next) {
		if (h->size != size || h->base % align || (hint && h->base != hint))
			continue;
		base = h->base;
		*at = h->next;
		free(h);
		return base;
	}
	return 0;
}

static void hole_give(struct hole **list, uint64_t base, uint64_t size)
{
	struct hole *h = malloc(sizeof(*h));

	*h = (struct hole){ base, size, *list };
	*list = h;
}

static void remember(uint64_t base, uint64_t size)
{
	struct reserved *v = malloc(sizeof(*v));

	*v = (struct reserved){ base, size, reserved };
	reserved = v;
}

bool address_is_ours(uint64_t addr)
{
	for (struct reserved *v = reserved; v; v = v->next)
		if (addr - v->base < v->size)
			return true;
	return false;
}

static void *reserve(void *at, size_t size, int flags)
{
	void *p = mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1,
		       0);

	return p == MAP_FAILED ? NULL : p;
}

uint64_t address_take(uint64_t size, uint64_t align, uint64_t hint)
{
	uint64_t base, fit;

	align = MAX(align, GRANULE);
	if (hint && hint % align == 0) {
		base = hole_take(&holes, size, align, hint);
		if (base)
			return base;
		base = (uintptr_t)reserve((void *)(uintptr_t)hint, size, MAP_FIXED_NOREPLACE);
		if (base) {
			remember(base, size);
			return base;
		}
	}
	base = hole_take(&holes, size, align, 0);
	if (base)
		return base;
	base = (uintptr_t)reserve(NULL, size + align, 0);
	if (!base)
		return 0;
	fit = ROUND_UP(base, align);
	if (fit > base)
		munmap((void *)(uintptr_t)base, fit - base);
	if (base + align > fit)
		munmap((void *)(uintptr_t)(fit + size), base + align - fit);
	remember(fit, size);
	return fit;
}

/* Below 4 GiB, for the first ABI. */
uint64_t address_low(uint64_t size)
{
	for (struct hole *h = holes; h; h = h->next)
		if (h->size == size && h->base < LOW_END)
			return hole_take(&holes, size, 1, h->base);
	for (uint64_t at = LOW_BEGIN; at + size <= LOW_END; at += GRANULE) {
		if (!reserve((void *)(uintptr_t)at, size, MAP_FIXED_NOREPLACE))
			continue;
		remember(at, size);
		return at;
	}
	return 0;
}

void address_give(uint64_t base, uint64_t size)
{
	hole_give(&holes, base, size);
}

/* Memory that host and device share, in pages: the host faults on it while it is free. */
char *host_take(uint64_t size)
{
	uint64_t base = hole_take(&host_holes, size, 4096, 0);
	char *host = (char *)(uintptr_t)base;

	if (host) {
		mprotect(host, size, PROT_READ | PROT_WRITE);
		return host;
	}
	host = backing_new(size);
	if (host)
		remember((uintptr_t)host, size);
	return host;
}

void host_give(char *host, uint64_t size)
{
	mprotect(host, size, PROT_NONE);
	hole_give(&host_holes, (uintptr_t)host, size);
}

char *backing_new(uint64_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

void backing_free(char *host, uint64_t size)
{
	munmap(host, size);
}
