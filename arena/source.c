/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects behind the manifest: found by pair, listed by layer and by key.
 *
 * Invariant: an object is in all three maps or in none.
 * Threads: the caller (manifest.c) serialises every call.
 */
#include "arena/source.h"

#include <stddef.h>
#include <string.h>

#include "arena/map.h"
#include "arena/slab.h"

static struct slab sources = SLAB_INIT(struct source);
static struct source *newest;
static struct map pairs, of_layer, of_key;

/* Keys of maps are never 0. */
static uint64_t pair_key(uint32_t layer, uint32_t key)
{
	return (uint64_t)layer << 32 | key;
}

static uint64_t layer_key(uint32_t layer)
{
	return (uint64_t)layer + 1;
}

struct source *source_first(void)
{
	return newest;
}

struct source *source_of_layer(uint32_t layer)
{
	return map_get(&of_layer, layer_key(layer));
}

struct source *source_of_key(uint32_t key)
{
	return map_get(&of_key, key);
}

struct source *source_find(uint32_t layer, uint32_t key)
{
	return map_get(&pairs, pair_key(layer, key));
}

/* ---- life ---- */

struct source *source_add(uint32_t layer, uint32_t key)
{
	struct source *s = slab_get(&sources);

	if (!s)
		return NULL;
	*s = (struct source){ .layer = layer,
			      .key = key,
			      .next = newest,
			      .next_of_layer = source_of_layer(layer),
			      .next_of_key = source_of_key(key) };
	if (map_put(&pairs, pair_key(layer, key), s))
		goto no_pair;
	if (map_put(&of_layer, layer_key(layer), s))
		goto no_layer;
	if (map_put(&of_key, key, s))
		goto no_key;
	newest = s;
	return s;

no_key:
	if (s->next_of_layer)
		map_put(&of_layer, layer_key(layer), s->next_of_layer); /* overwrites */
	else
		map_remove(&of_layer, layer_key(layer));
no_layer:
	map_remove(&pairs, pair_key(layer, key));
no_pair:
	slab_put(&sources, s);
	return NULL;
}

/* Take @s out of the chain that @m has under @k; @next is where the chain's link lies in it. */
static void chain_remove(struct map *m, uint64_t k, struct source *s, size_t next)
{
	struct source *at = map_get(m, k), **link = NULL;

	for (; at != s; at = *link)
		link = (struct source **)((char *)at + next);
	at = *(struct source **)((char *)s + next);
	if (link)
		*link = at;
	else if (at)
		map_put(m, k, at); /* overwrites, so it cannot fail */
	else
		map_remove(m, k);
}

void source_forget_receipts(struct source *s)
{
	pages_put(s->seen, s->seen_cap * sizeof(*s->seen));
	s->seen = NULL;
	s->seen_count = s->seen_cap = 0;
	s->got_bytes = s->again = 0;
	s->got_layer = 0;
}

void source_sweep(void)
{
	struct source **link = &newest, *s;

	while ((s = *link)) {
		if (s->expected || s->seen_count || s->doubted) {
			link = &s->next;
			continue;
		}
		*link = s->next;
		chain_remove(&of_layer, layer_key(s->layer), s,
			     offsetof(struct source, next_of_layer));
		chain_remove(&of_key, s->key, s, offsetof(struct source, next_of_key));
		map_remove(&pairs, pair_key(s->layer, s->key));
		source_forget_receipts(s);
		slab_put(&sources, s);
	}
}

/* ---- receipts ---- */

/* First place in @s->seen whose number is not below @part. */
static uint32_t seen_at(const struct source *s, uint64_t part)
{
	uint32_t low = 0, high = s->seen_count;

	/* Parts mostly come in order. */
	if (high && s->seen[high - 1] < part)
		return high;
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (s->seen[mid] < part)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

void source_receive(struct source *s, uint32_t layer, uint64_t part, uint64_t bytes)
{
	uint32_t at = seen_at(s, part);

	s->got_layer = layer;
	if (at < s->seen_count && s->seen[at] == part) {
		s->again++;
		return;
	}
	memmove(&s->seen[at + 1], &s->seen[at], (s->seen_count - at) * sizeof(*s->seen));
	s->seen[at] = part;
	s->seen_count++;
	s->got_bytes += bytes;
}

int source_room(struct source *s)
{
	return pages_grow(&s->seen, &s->seen_cap, s->seen_count + 1, sizeof(*s->seen));
}
