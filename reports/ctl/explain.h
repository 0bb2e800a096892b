/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of one address, slot or finding in one process: what a report has about it, in order
 * of time, and what it does not have. One thread.
 */
#ifndef CTL_EXPLAIN_H
#define CTL_EXPLAIN_H

#include "model.h"

enum subject_kind { SUBJECT_ADDRESS, SUBJECT_SLOT, SUBJECT_FINDING };

struct subject {
	enum subject_kind kind;
	const char *text;
	uint64_t number; /* address or id */
};

/* Memory that the subject is or was; each generation once. */
struct life_memory {
	struct report_range range;
	const char *slot; /* NULL: in none */
};

struct life_entry {
	uint64_t time_ns, line;
	const char *what; /* "alloc", "stale-launch", "reload 3" */
	const char *text;
	enum severity severity; /* of findings */
	bool finding, phase;	/* phase: begin or end of a reload */
	uint64_t stack;		/* 0: none */
	uint64_t id;		/* of findings */
	struct texts holders;	/* graph, node, kernel, parameter */
	uint64_t repeated;	/* how often it came in a row, after the first */
	uint64_t last_ns;	/* of the last one */
};

/* Something that is not in the report, and how to get it. */
struct life_gap {
	const char *what, *how; /* how NULL: nothing helps */
};

struct life {
	const struct report *report;
	LIST_OF(struct life_memory) memory; /* by generation */
	uint64_t *ends;			    /* the highest end of it up to here */
	LIST_OF(struct life_entry) entries; /* in order of time */
	LIST_OF(uint64_t) execs;	    /* graphs that hold it */
	LIST_OF(struct life_gap) gaps;
	size_t direct; /* entries that are about the subject itself */
};

/* One for each process of the set; those with neither memory nor entries know nothing of it. */
struct lives {
	LIST_OF(struct life) v;
	struct pool pool;
};

/* @brief What @text means in this set: a finding's id, else an address, else a slot. */
struct subject subject_of(const struct report_set *set, const char *text);
/* @param paths the files of the set: events are read from them, and not kept. */
void explain(struct lives *lives, const struct report_set *set, const struct subject *s,
	     char *const *paths, size_t count);
void explain_free(struct lives *lives);
/* @brief Fill in the gaps. @param pool of the lives */
void explain_gaps(struct pool *pool, struct life *life);
/* @brief Does a process know the subject? */
bool life_is_known(const struct life *l);

#endif
