/* SPDX-License-Identifier: Apache-2.0 */
/* Job: names of events, and who is told of them. Any thread. */
#include "arena/event.h"

#include "arena/atomics.h"

QUICK_WORD void (*event_sink)(const struct event *e);

static const char *const event_names[EVENT_KIND_COUNT] = {
#define X(id, name) [EVENT_##id] = name,
	EVENT_KINDS(X)
#undef X
};

const char *event_kind_name(enum event_kind kind)
{
	return (unsigned)kind < EVENT_KIND_COUNT ? event_names[kind] : "?";
}
