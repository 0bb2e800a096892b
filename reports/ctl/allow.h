/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings that are accepted: lines of "ID [until=YYYY-MM-DD] REASON"; # begins a comment line.
 * One thread.
 */
#ifndef CTL_ALLOW_H
#define CTL_ALLOW_H

#include "args.h"
#include "pool.h"

struct allow_row {
	uint64_t id;
	const char *reason, *until; /* until NULL: for ever */
	uint64_t line;
	bool expired, used;
};

struct allow_list {
	const char *path;
	struct allow_row *v;
	size_t count, room;
	struct pool pool;
};

/* @return 0, or STATUS_USAGE after a line that names what is wrong and where. */
int allow_read(struct allow_list *l, const char *path, const struct args *a);
/* @brief The row of @id that has not expired, marked as used; NULL: none. */
const struct allow_row *allow_find(struct allow_list *l, uint64_t id);
void allow_free(struct allow_list *l);

#endif
