/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What reports say, as structs. The same structs are a line as it is read (struct line, valid
 * until the visitor returns) and what is kept of it (struct report, valid until set_free()).
 * Strings are never NULL unless it is said, and may hold any bytes but NUL: print them through
 * term_text() and the like. Numbers of stacks, modules and execs: 0 is "none". One thread.
 */
#ifndef CTL_MODEL_H
#define CTL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool.h"

enum severity { SEVERITY_INFO, SEVERITY_WARN, SEVERITY_ERROR, SEVERITY_COUNT };
enum verdict { VERDICT_NONE, VERDICT_PASS, VERDICT_FAIL, VERDICT_UNPROVEN };

extern const char *const severity_names[SEVERITY_COUNT];
extern const char *const verdict_names[]; /* by enum verdict; of NONE "none" */

/* A list of strings. */
struct texts {
	const char **v;
	size_t count;
};

/* Key and text, key and number: options, coverage. */
struct pair {
	const char *key, *text;
	uint64_t number;
};
struct pairs {
	struct pair *v;
	size_t count;
};

struct report_module {
	uint64_t id;
	const char *path, *build_id;
};

/* Where a call returns to: look up offset - 1. module 0: an address. */
struct frame_ref {
	uint64_t module, offset;
};
struct python_ref {
	const char *file, *function;
	uint64_t line; /* 0: not known */
};
struct report_stack {
	uint64_t id;
	struct frame_ref *frames; /* innermost first */
	size_t frame_count;
	struct python_ref *python;
	size_t python_count;
};

/* Memory. */
struct report_range {
	uint64_t base, size, generation, stack_open, stack_close;
	const char *kind;
};

/* A captured word. */
struct report_ref {
	uint64_t exec, node, param, offset, value;
	const char *node_kind, *confidence, *reason;
	const char *kernel;		      /* NULL: not a kernel */
	const struct report_range *old, *now; /* NULL: none */
	const char *arena, *slot;	      /* NULL: in no slot */
	uint64_t slot_base, slot_now;
	uint64_t table, table_offset; /* of a suspect: where its value was found */
};

/* Where a slot was or is. */
struct report_binding {
	uint64_t base, generation, bytes, device, stack_open, stack_close;
	const char *dtype, *layout;
	int64_t *shape;
	size_t shape_count;
	int64_t *strides;
	size_t strides_count;
};

enum finding_origin { ORIGIN_LAUNCH, ORIGIN_VERIFY, ORIGIN_RELOAD };

/* A finding line, or a slot finding of a verify or reload line. What does not apply is 0 or "". */
struct report_finding {
	enum finding_origin origin;
	enum severity severity;
	const char *kind, *title, *text;
	uint64_t id;		/* the same for the same mistake in another run */
	uint64_t time_ns, line; /* of the line it stands in */
	/* How many of the process have this id and severity; one with them came before. */
	uint64_t occurrences;
	bool again;
	uint64_t not_kept; /* of the first one: later ones with its id that were not kept */
	/* launch */
	uint64_t key, exec, handle, stack, refs_total;
	bool refused;
	struct report_ref *refs;
	size_t refs_count;
	/* verify, reload */
	uint64_t reload; /* id of the reload, 0: a verify */
	const char *layer, *slot, *source, *cache, *detail;
	const struct report_binding *old, *now; /* NULL: nowhere */
	uint64_t execs;
	bool inferred;
};

struct report_event {
	const char *event, *what;
	uint64_t tid, address, size, serial, stack;
	uint64_t time_ns; /* of its line; kept events only */
};

struct report_difference {
	const char *reason, *kernel; /* kernel NULL: not told */
	uint64_t node, address;	     /* address 0: the node as a whole */
};

struct report_cross {
	uint64_t nodes, addresses;
	struct pairs reasons;
	struct report_difference *differences;
	size_t count;
};

struct report_launch {
	const char *call, *kernel; /* kernel NULL: none */
	uint64_t tid, stream, correlation, result;
};

struct report_cache {
	const char *name;
	bool flushed;
};

struct report_scope {
	bool full;
	struct texts layers, sources;
	const char *role;
};

/* A reload; a verify line has verdict and findings only, and id 0. */
struct report_reload {
	enum verdict verdict, counts_as;
	uint64_t time_ns, line, id, generation, published_bytes, shadow_peak_bytes, begin_ns,
		end_ns;
	bool aborted, unsafe, manifest;
	const char *why;
	struct report_scope scope;
	struct pairs layers, receipts, coverage;
	struct report_cache *caches;
	size_t cache_count;
	struct texts only_layers, only_model;
	struct report_finding *findings; /* of a line; what is kept is in the report */
	size_t findings_count;
	uint64_t errors; /* of a reload that is kept: its findings that are errors */
};

struct report_start {
	uint64_t pid, ppid, rank, driver_version;
	const char *host, *exe, *argv0, *version, *library, *unwinder, *ld_preload;
	struct pairs options;
};

struct report_exit {
	enum verdict verdict, counts_as, reload_last; /* reload_last NONE: there was none */
	uint64_t findings[SEVERITY_COUNT];
	uint64_t findings_repeated, findings_left_out, lines_lost;
	uint64_t reload_id, generation;
	bool unsafe, reload_open;
	struct texts unproven, entries;
	struct pairs by_kind, coverage;
	struct pairs noted; /* key -> one name; a key comes once for each name */
	/* ledger.*, graphs.*, cupti.*: dotted keys; text NULL where it is a number */
	struct pairs counters;
};

enum line_type {
	LINE_START,
	LINE_MODULE,
	LINE_STACK,
	LINE_FINDING,
	LINE_EVENT,
	LINE_CROSS,
	LINE_LAUNCH,
	LINE_VERIFY,
	LINE_RELOAD,
	LINE_EXIT,
	LINE_TYPE_COUNT,
	LINE_UNKNOWN, /* a type of a later version: counted, not handed on */
};

/* A line as it was read; everything in it is valid until the visitor returns. */
struct line {
	enum line_type type;
	const char *file;
	uint64_t number, time_ns, pid; /* time, pid 0: the line does not tell */
	union {
		struct report_start start;
		struct report_module module;
		struct report_stack stack;
		struct report_finding finding;
		struct report_event event;
		struct report_cross cross;
		struct report_launch launch;
		struct report_reload reload; /* and verify */
		struct report_exit exit;
	};
};

/* A growing list of something that is kept. */
#define LIST_OF(type)               \
	struct {                    \
		type *v;            \
		size_t count, room; \
	}

/* What one process wrote. */
struct report {
	const char *file;
	uint64_t line;			  /* of its start */
	const struct report_start *start; /* NULL: the start line is missing */
	const struct report_exit *exit;	  /* NULL: killed, or still running */
	uint64_t pid, time_first_ns, time_last_ns;
	LIST_OF(struct report_module *) modules;   /* sorted by id */
	LIST_OF(struct report_stack *) stacks;	   /* sorted by id */
	LIST_OF(struct report_finding *) findings; /* of all origins, in order of the file */
	LIST_OF(struct report_reload *) reloads;   /* and verifies, in order of the file */
	LIST_OF(struct report_event *) events;	   /* if asked for */
	LIST_OF(struct report_launch *) launches;  /* if asked for */
	LIST_OF(struct report_cross *) crosses;
	uint64_t lines[LINE_TYPE_COUNT];    /* how many there were of each type */
	uint64_t refs_total, refs_listed;   /* of all its findings */
	uint64_t not_kept[LINE_TYPE_COUNT]; /* beyond the limits of set_limits */
	uint64_t seen[SEVERITY_COUNT];	    /* findings that there were, also those not kept */
	uint64_t launch_errors;		    /* of them, errors that are not of slots */
	/* Ids that were seen: a table of the first finding of each and its severity, and how many
	 * later ones are kept. */
	struct report_finding **ids;
	size_t ids_count, ids_size, repeats;
	bool interleaved; /* lines of another process between its own: stacks may be the other's */
};

/* What to keep; 0: the default. */
struct set_limits {
	size_t refs;	 /* of a finding (64) */
	size_t findings; /* of a process: with different ids, and again with those (20,000) */
	size_t events;	 /* of a process (none) */
	size_t launches; /* of a process (none) */
	bool shapes;	 /* of refs that differ in graph, node and address only, the first */
};

struct read_result;
struct intern;

struct report_set {
	LIST_OF(struct report *) reports; /* in order of the files */
	struct read_result *read;	  /* what could not be read */
	LIST_OF(const char *) problems;	  /* the same in words, as on stderr */
	struct set_limits limits;
	struct pool pool;
	struct intern *intern; /* equal strings are kept once */
};

/*
 * @brief Read files into a set; a problem is counted in set->read and said on stderr.
 * @param l NULL: the defaults.
 * @return 0, or STATUS_UNREADABLE when something was missing or damaged. The set is valid in
 * either case; free it with set_free().
 */
int set_read(struct report_set *set, char *const *paths, size_t count, const struct set_limits *l);
void set_free(struct report_set *set);

/* @brief pass, fail, unproven of one process: the worst of its exit line and what it left. */
enum verdict report_verdict(const struct report *r);
/* @brief What an exit line amounts to: its verdict, unless something else in it is worse. */
enum verdict exit_verdict(const struct report_exit *e);
/* @brief Why it is unsafe, whatever its findings are; NULL: it is not. */
const char *report_unsafe(const struct report *r);
/* @brief Why it may have had more than can be seen, even if it failed; NULL: all is there. */
const char *report_doubt(const struct report *r);
/* @brief The last reload; NULL: there was none. */
const struct report_reload *report_last_reload(const struct report *r);
/* @brief Why it is not "pass"; NULL: it is. Constant or owned by the report. */
const char *report_why(const struct report *r);
/* @brief fail if one fails, else unproven if one is, or if something could not be read. */
enum verdict set_verdict(const struct report_set *set);

/* @brief By binary search; NULL: none has this id. */
const struct report_module *report_module(const struct report *r, uint64_t id);
const struct report_stack *report_stack(const struct report *r, uint64_t id);
/* @brief The reload with this id, the last one of that id; NULL: none. */
const struct report_reload *report_reload(const struct report *r, uint64_t id);

/* @brief What a finding is about: the slot, source or cache, else the range it refers to. */
const char *finding_subject(const struct report_finding *f, char *buf, size_t size);
/* @brief Its layer, or the arena of the slot that its first ref lies in; "": none. */
const char *finding_layer(const struct report_finding *f);
/* @brief Old and new address; 0: nowhere, or not known. */
uint64_t finding_old(const struct report_finding *f);
uint64_t finding_now(const struct report_finding *f);
/* @brief Bytes of the memory that it is about, 0: not known. */
uint64_t finding_size(const struct report_finding *f);
/* @brief Live graph execs that hold it, as far as the report lists them. */
uint64_t finding_execs(const struct report_finding *f);
/* @brief Number of the stack that allocated the old and the new memory; 0: not known. */
uint64_t finding_old_stack(const struct report_finding *f);
uint64_t finding_now_stack(const struct report_finding *f);

#endif
