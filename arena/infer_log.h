/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What died and what was born in a reload; private to infer_log.c, which records it, and infer.c,
 * which pairs it. Knows no graphs.
 */
#ifndef ARENA_INFER_LOG_H
#define ARENA_INFER_LOG_H

#include "arena/infer.h"

#define INFER_SERIALS_MAX 4 /* execs of one dead range that are remembered */

/* Captured memory that was freed. */
struct infer_dead {
	struct finding_ref ref; /* the first of those that held it */
	uint64_t serials[INFER_SERIALS_MAX];
	uint64_t site; /* these three are infer.c's */
	bool held, told;
	uint32_t execs_count;
};

struct infer_born {
	uint64_t base, size_bytes; /* size 0: is not what lives there any more */
	uint64_t site;		   /* infer.c's */
	uint32_t stack;
	enum range_kind kind;
};

struct infer_log {
	struct infer_dead *dead;
	struct infer_born *born;
	uint32_t dead_count, dead_cap, born_count, born_cap;
};

/* @brief End what infer_begin() began. @return false: it was not; else @out is the caller's. */
bool infer_stop(struct infer_log *out);
void infer_log_free(struct infer_log *log);

#endif
