/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is given back at once: of a line, of a set. Out of memory ends the program. */
#ifndef CTL_POOL_H
#define CTL_POOL_H

#include <stddef.h>
#include <stdint.h>

struct pool_block;
struct pool {
	struct pool_block *block;
	size_t used_bytes; /* of all blocks, for tests and limits */
};

/* @brief Zeroed memory, aligned to 16. */
void *pool_take(struct pool *p, size_t size_bytes);
/* @brief A copy of a string; NULL stays NULL. */
char *pool_text(struct pool *p, const char *s);
void *pool_copy(struct pool *p, const void *from, size_t size_bytes);
/* @brief Forget the contents, keep one block. */
void pool_reset(struct pool *p);
void pool_free(struct pool *p);

/*
 * @brief One more at the end of a list (LIST_OF); grows by doubling.
 * @param v, room, count: addresses of the list's members; @return the new v.
 */
void *pool_grow(struct pool *p, void *v, size_t *room, size_t count, size_t size_bytes);

#define LIST_ADD(pool, list, item)                                                 \
	do {                                                                       \
		(list).v = pool_grow((pool), (list).v, &(list).room, (list).count, \
				     sizeof(*(list).v));                           \
		(list).v[(list).count++] = (item);                                 \
	} while (0)

#endif
