/* SPDX-License-Identifier: Apache-2.0 */
/* Findings: what is wrong, in one place for severity, identity and text. Any thread. */
#ifndef ARENA_FINDING_H
#define ARENA_FINDING_H

#include <stddef.h>
#include <stdint.h>

#include "ledger.h"

enum severity { SEVERITY_INFO, SEVERITY_WARN, SEVERITY_ERROR, SEVERITY_COUNT };

enum finding_kind {
#define FINDING(id, name, severity, title) FINDING_##id,
#include "findings.def"
#undef FINDING
	FINDING_KIND_COUNT
};

/* Why a ref is bad. name in reports */
#define STALE_REASONS(X)                                                                      \
	X(FREED, "freed")                                                                     \
	X(UNMAPPED, "unmapped")                                                               \
	X(GENERATION, "generation")                                                           \
	X(SLOT_MOVED, "slot-moved")                                                           \
	X(IN_FLIGHT, "in-flight")                                                             \
	X(REFUSED, "value-refused")                                                           \
	X(UNDEFINED, "content-undefined")

enum stale_reason {
#define X(id, name) STALE_##id,
	STALE_REASONS(X)
#undef X
	STALE_REASON_COUNT
};

/* How sure we are that a word is an address. Only EXACT and STRUCT can block. */
enum confidence { CONFIDENCE_SUSPECT, CONFIDENCE_STRUCT, CONFIDENCE_EXACT };

const char *finding_kind_name(enum finding_kind kind);
enum severity finding_severity(enum finding_kind kind);
const char *finding_title(enum finding_kind kind);
const char *severity_name(enum severity s);
const char *stale_reason_name(enum stale_reason r);
const char *confidence_name(enum confidence c);

/* A range as a finding tells it; base 0: none. */
struct finding_range {
	uint64_t base, size_bytes, generation;
	enum range_kind kind;
	uint32_t stack_open, stack_close;
};

/* @brief As @r, which is pinned, is now. */
struct finding_range finding_range(const struct range *r, uint64_t generation);

/* One ref that a finding rests on. */
struct finding_ref {
	uint64_t exec_serial;
	uint32_t node;			/* ordinal in the exec's walk order */
	uint8_t node_kind;		/* enum node_kind of exec.h */
	uint8_t reason;			/* enum stale_reason */
	uint8_t confidence;		/* enum confidence */
	uint32_t name;			/* interned kernel name, mangled; 0 for other nodes */
	uint16_t param, offset;		/* parameter index, byte offset inside it */
	uint64_t value;			/* the captured word; of a suspect: what was found */
	uint64_t table;			/* of a suspect: the captured word, 0: it is none */
	uint32_t table_offset;		/* of a suspect: how far behind it that was */
	struct finding_range old;	/* what it referred to when it was captured */
	struct finding_range now;	/* what is there now; slot-moved: where the slot is */
	uint32_t arena, slot;		/* interned path and name of the slot it lies in, 0: none */
	uint64_t slot_base, slot_now;	/* where the slot was and is; 0: nowhere */
};

struct finding {
	enum finding_kind kind;
	uint64_t id;			/* stable: kind, kernels, parameters, sizes; no addresses */
	uint64_t key;			/* this very occurrence: serials and generations */
	uint64_t time_ns;		/* CLOCK_REALTIME */
	uint64_t exec_serial;		/* of a launch; 0 otherwise */
	uint64_t exec_handle;
	uint32_t stack;			/* of the call that made it, 0: none */
	uint32_t refs_total;		/* refs listed plus refs left out */
	uint32_t refs_count;
	const struct finding_ref *refs;
	bool refused;			/* the launch did not reach the driver */
};

/* @brief Compute ids, count, hand on to device.finding. @f->refs stays the caller's. */
void finding_emit(struct finding *f);
uint64_t finding_count(enum severity s);
uint64_t finding_kind_count(enum finding_kind k);

/*
 * @brief One line of text: what, where, old -> new, who holds it.
 * @return length as snprintf().
 */
size_t finding_text(const struct finding *f, char *buf, size_t buf_bytes);

#endif
