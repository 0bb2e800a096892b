/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Did every rank pass the same reload? The same verdicts as arena.judge_ranks() of
 * scripts/arena.py, from reports instead of receipts. Pure functions; one thread.
 */
#ifndef CTL_MERGE_H
#define CTL_MERGE_H

#include "model.h"

struct merge_wish {
	const uint64_t *ranks; /* expected ones, each once */
	size_t count;
	uint64_t reload;       /* which one; 0: the last of each rank */
	const char *run;       /* ARENA_RUN of the processes that count; NULL: any */
	uint64_t since_ns;     /* processes that started before are left out; 0: none is */
	uint64_t slow_percent; /* of the median, from which a rank is named as slow */
};

struct merge_rank {
	uint64_t rank;
	bool known; /* false: a report that does not tell its rank */
	bool expected, slow;
	bool only_unproven;		    /* its reasons are doubts only: nothing failed */
	const struct report *report;	    /* what is judged; NULL: none */
	const struct report_reload *reload; /* NULL: it made none */
	size_t attempts;		    /* processes that made reloads, or one that made none */
	uint64_t took_ns;
	LIST_OF(const char *) reasons; /* why it does not pass; empty: it passes */
};

struct merge {
	enum verdict verdict;
	LIST_OF(struct merge_rank) ranks; /* by number; one of unknown rank comes last */
	size_t expected, passed, bad, slow;
	size_t strangers;		   /* ranks that nobody expects */
	size_t left_out;		   /* processes, by run and since_ns */
	const struct report_reload *usual; /* what most of the passing ranks made; NULL: nobody */
	uint64_t usual_rank, median_ns;
	struct pool pool;
};

void merge_judge(struct merge *m, const struct report_set *set, const struct merge_wish *wish);
void merge_free(struct merge *m);

/* @brief Is the process of another run, by run and since_ns? */
bool merge_leaves_out(const struct report *r, const struct merge_wish *wish);
/* @brief Reasons against a rank whose reload passed, from what came after it. */
void merge_after(struct merge *m, struct merge_rank *r, const struct report_set *set,
		 const struct merge_wish *wish);

/* @brief A scope in words: "full", "layers a, b", "role draft". @return from @p. */
const char *scope_text(struct pool *p, const struct report_scope *s);
bool scope_same(const struct report_scope *a, const struct report_scope *b);
/* @brief printf into a pool. */
const char *pool_print(struct pool *p, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
