/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: memory for shadows (shadow.h).
 *
 * Invariants: a block is in one set while one of its shadows is in use, else among the spare
 * ones. It is spoilt when a shadow was dropped unpublished: a write may still be on its way; or
 * when two publications read it: the newer may be done first. Then it only goes back to the device,
 * which waits for it.
 *
 * Threads: any. Guarded by the registry lock; the device is asked without it.
 */
#include "arena/shadow.h"

#include <errno.h>
#include <stddef.h>

#include "arena/device.h"
#include "arena/order.h"
#include "arena/registry.h"
#include "arena/slab.h"

#define ALIGN_BYTES   256ull	   /* as cuMemAlloc() promises */
#define GRANULE_BYTES (2ull << 20) /* what the driver hands out at least */
#define BLOCK_BYTES   (4ull << 20)
#define LARGE_BYTES   (1ull << 20) /* from here on a block of its own */

struct shadow_block {
	struct shadow_block *next;
	uint64_t addr, bytes, used;
	struct device_place at;
	uint32_t live; /* shadows in use */
	bool spoilt;
	bool read;	     /* by the publication below, since it was empty */
	struct order *after; /* newest publication that read from it; pinned, NULL: none */
};

static struct slab blocks = SLAB_INIT(struct shadow_block);
static struct shadow_block *spare;

static uint64_t round_up(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

/* ---- taking ---- */

/* The smallest of a list with room. Registry lock held. */
static struct shadow_block **find_room(struct shadow_block **list, const struct device_place *here,
				       uint64_t bytes)
{
	struct shadow_block **best = NULL;

	for (struct shadow_block **at = list; *at != NULL; at = &(*at)->next)
		if (device_place_same(&(*at)->at, here) && (*at)->bytes - (*at)->used >= bytes &&
		    (best == NULL || (*at)->bytes < (*best)->bytes))
			best = at;
	return best;
}

/* Registry lock held. @return the block, now of @set; NULL: no room anywhere. */
static struct shadow_block *place(struct shadow_set *set, const struct device_place *here,
				  uint64_t bytes)
{
	struct shadow_block **at = find_room(&set->blocks, here, bytes), *b;

	if (at != NULL)
		return *at;
	at = find_room(&spare, here, bytes);
	if (at == NULL)
		return NULL;
	b = *at;
	*at = b->next;
	b->next = set->blocks;
	set->blocks = b;
	return b;
}

/* One more spare block, for @bytes. */
static int block_new(const struct device_place *here, uint64_t bytes)
{
	struct shadow_block *b = slab_get(&blocks);
	int err;

	if (b == NULL)
		return -ENOMEM;
	*b = (struct shadow_block){
		.bytes = bytes < LARGE_BYTES ? BLOCK_BYTES : round_up(bytes, GRANULE_BYTES),
		.at = *here,
	};
	err = device.alloc(b->bytes, here->device, &b->addr);
	if (err != 0 && b->bytes > round_up(bytes, GRANULE_BYTES)) {
		b->bytes = round_up(bytes, GRANULE_BYTES);
		err = device.alloc(b->bytes, here->device, &b->addr);
	}
	if (err != 0) {
		slab_put(&blocks, b);
		return err;
	}
	registry_lock();
	b->next = spare;
	spare = b;
	registry_unlock();
	return 0;
}

int shadow_take(struct shadow_set *set, int32_t ordinal, uint64_t bytes, uint64_t stream,
		uint64_t *addr)
{
	const struct device_place here = device_place(ordinal);
	struct order *after = NULL;
	struct shadow_block *b;
	int err;

	bytes = round_up(bytes, ALIGN_BYTES);
	registry_lock();
	/* What another thread makes of a new spare block is not ours to know: try again. */
	while ((b = place(set, &here, bytes)) == NULL) {
		registry_unlock();
		err = block_new(&here, bytes);
		if (err)
			return err;
		registry_lock();
	}
	*addr = b->addr + b->used;
	b->used += bytes;
	b->live++;
	after = b->after;
	if (after != NULL)
		order_get(after);
	registry_unlock();
	if (after != NULL)
		order_follow(after, stream);
	order_put(after);
	return 0;
}

/* ---- giving back ---- */

/* Its last shadow is gone. Registry lock held. */
static void retire(struct shadow_block **at)
{
	struct shadow_block *b = *at;

	*at = b->next;
	/* A spoilt one stays full, so that it is not taken. */
	b->used = b->spoilt ? b->bytes : 0;
	b->read = false;
	b->next = spare;
	spare = b;
}

bool shadow_give(struct shadow_set *set, uint64_t addr, struct order *after)
{
	struct shadow_block **at = &set->blocks, *b;
	struct order *before = NULL;

	registry_lock();
	while (*at != NULL && addr - (*at)->addr >= (*at)->bytes)
		at = &(*at)->next;
	b = *at;
	if (b != NULL && after == NULL) {
		b->spoilt = true;
	} else if (b != NULL && b->after != after) {
		b->spoilt |= b->read;
		before = b->after;
		order_get(after);
		b->after = after;
		b->read = true;
	}
	if (b != NULL && --b->live == 0)
		retire(at);
	registry_unlock();
	order_put(before);
	return b != NULL;
}

void shadow_trim(void)
{
	struct shadow_block *b;

	for (;;) {
		registry_lock();
		b = spare;
		if (b != NULL)
			spare = b->next;
		registry_unlock();
		if (b == NULL)
			return;
		order_put(b->after);
		device.free(b->addr);
		slab_put(&blocks, b);
	}
}

/* ---- contexts that are gone ---- */

void shadow_take_dead(struct shadow_set *set, uint64_t context, struct shadow_block **dead)
{
	struct shadow_block **at = set != NULL ? &set->blocks : &spare, *b;

	while ((b = *at) != NULL) {
		if (b->at.context != context) {
			at = &b->next;
			continue;
		}
		*at = b->next;
		b->next = *dead;
		*dead = b;
	}
}

bool shadow_is_dead(const struct shadow_block *dead, uint64_t addr)
{
	while (dead != NULL && addr - dead->addr >= dead->bytes)
		dead = dead->next;
	return dead != NULL;
}

void shadow_bury(struct shadow_block *dead)
{
	struct shadow_block *b;

	while ((b = dead) != NULL) {
		dead = b->next;
		order_put(b->after);
		slab_put(&blocks, b);
	}
}
