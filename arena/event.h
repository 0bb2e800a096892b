/* SPDX-License-Identifier: Apache-2.0 */
/* The event trace: what happened, in order, for reports (ARENA_TRACE) and tests. */
#ifndef ARENA_EVENT_H
#define ARENA_EVENT_H

#include <stddef.h>
#include <stdint.h>

/* id, name in reports */
#define EVENT_KINDS(X)                                                                        \
	X(ALLOC, "alloc")                                                                     \
	X(FREE, "free")                                                                       \
	X(MAP, "map")                                                                         \
	X(UNMAP, "unmap")                                                                     \
	X(CAPTURE, "capture")                                                                 \
	X(INSTANTIATE, "instantiate")                                                         \
	X(UPDATE, "update")                                                                   \
	X(LAUNCH, "launch")                                                                   \
	X(REFUSED, "refused")                                                                 \
	X(DESTROY, "destroy")

enum event_kind {
#define X(id, name) EVENT_##id,
	EVENT_KINDS(X)
#undef X
	EVENT_KIND_COUNT
};
const char *event_kind_name(enum event_kind kind);

struct event {
	enum event_kind kind;
	uint64_t address;	/* range base, or 0 */
	uint64_t size_bytes;	/* range size, or node count for graphs */
	uint64_t serial;	/* generation of a range, serial of an exec */
	const char *what;	/* range kind name, or "" */
	uint32_t stack;		/* stack id, 0: none */
};

/* Who is told of each event, in the thread it happens in; NULL: nobody. Set before others run. */
extern void (*event_sink)(const struct event *e);

/* One branch when nobody listens. */
#define event_emit(...)                                                                       \
	do {                                                                                  \
		if (__builtin_expect(event_sink != NULL, 0))                                  \
			event_sink(&(struct event){ __VA_ARGS__ });                           \
	} while (0)

#endif
