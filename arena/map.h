/* SPDX-License-Identifier: Apache-2.0 */
/* A hash from handles (never 0) to pointers. The caller serialises every call. */
#ifndef ARENA_MAP_H
#define ARENA_MAP_H

#include <stdint.h>

struct map_slot {
	uint64_t key;
	void *value;
};
struct map {
	struct map_slot *slots;
	uint32_t cap, count;
}; /* zeroed: empty */

/* @return NULL when there is no such key. */
void *map_get(const struct map *m, uint64_t key);
/* @brief Enter or overwrite, which cannot fail. @return 0, or -ENOMEM with nothing changed. */
int map_put(struct map *m, uint64_t key, void *value);
void map_remove(struct map *m, uint64_t key);

#endif
