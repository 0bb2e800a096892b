/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two sets of reports compared by identities that are the same in another run: nothing in them is
 * an address, a process or a time. One thread.
 */
#ifndef CTL_DIFF_H
#define CTL_DIFF_H

#include "model.h"

enum diff_set {
	DIFF_FINDINGS,
	DIFF_SLOTS,  /* slots that findings name, with their specs */
	DIFF_RANGES, /* captured words that findings list: holder and place of allocation */
	DIFF_RELOADS,
	DIFF_VERIFIES,
	DIFF_PROCESSES, /* how they ended */
	DIFF_COVERAGE,	/* what was not seen */
	DIFF_GRAPHS,	/* how much was captured */
	DIFF_SET_COUNT
};
extern const char *const diff_set_names[DIFF_SET_COUNT];

enum diff_how { DIFF_NEW, DIFF_GONE, DIFF_CHANGED, DIFF_SAME, DIFF_HOW_COUNT };
extern const char *const diff_how_names[DIFF_HOW_COUNT];

struct diff_item {
	enum diff_set set;
	const char *identity; /* what makes two items the same one */
	const char *what;     /* for a human */
	const char *state;    /* differs: changed */
	const char *text;     /* of a finding; NULL */
	enum severity severity;
	size_t process; /* index of the report; then: how many of them */
};

struct diff_side {
	LIST_OF(struct diff_item) items; /* sorted by set and identity, each once */
	size_t processes, without_exit;
	size_t lossy; /* processes that lost lines or findings */
	bool partial; /* refs or findings were not kept, or not listed */
};

struct diff_row {
	enum diff_how how;
	enum severity severity;	       /* of the newer item */
	bool worse;		       /* new, or more severe than it was */
	const struct diff_item *a, *b; /* NULL: not there */
};

struct diff {
	struct diff_side a, b;
	LIST_OF(struct diff_row) rows;
	size_t count[DIFF_HOW_COUNT];
	struct pool pool;
};

void diff_compare(struct diff *d, const struct report_set *a, const struct report_set *b);
void diff_free(struct diff *d);

#endif
