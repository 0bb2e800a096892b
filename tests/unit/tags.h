/* SPDX-License-Identifier: Apache-2.0 */
/* Words for tests of tags, on top of fake_device.h. */
#ifndef TESTS_UNIT_TAGS_H
#define TESTS_UNIT_TAGS_H

#include <criterion/criterion.h>

#include "fake_device.h"

static inline void push(const char *name, enum arena_kind kind)
{
	cr_assert_eq(tag_push(name, kind), 0, "%s", arena_message());
}

static inline void pop(void)
{
	cr_assert_eq(tag_pop(), 0, "%s", arena_message());
}

static inline bool serve(uint64_t bytes, uint64_t *addr)
{
	return tag_serve(&(struct tag_request){ .bytes = bytes, .align = 1 }, addr);
}

static inline uint64_t served(uint64_t bytes)
{
	uint64_t addr = 0;

	cr_assert(serve(bytes, &addr), "%lu bytes", bytes);
	return addr;
}

static inline void not_served(uint64_t bytes)
{
	uint64_t addr = 0;

	cr_assert(!serve(bytes, &addr));
	cr_assert_eq(addr, 0);
}

static inline void absorbed(uint64_t addr)
{
	cr_assert_eq(tag_absorb(addr), TAG_ABSORBED);
}

/* Findings are those since this snapshot; NULL: all. */
static struct arena_snapshot *since;

static inline void look_from_now(void)
{
	snapshot_free(since);
	cr_assert_eq(snapshot_take(NULL, &since), 0);
}

static inline struct slot_findings findings(void)
{
	struct slot_findings f = { 0 };

	cr_assert_eq(tag_verify(since, NULL, &f), 0);
	return f;
}

static inline uint32_t findings_count(void)
{
	struct slot_findings f = findings();
	uint32_t count = f.count;

	slot_findings_free(&f);
	return count;
}

/* Is there a finding of this slot or tag, whose text has @word? */
static inline bool finds(const char *name, const char *word)
{
	struct slot_findings f = findings();
	bool found = false;
	char text[512];

	for (uint32_t i = 0; i < f.count; i++) {
		slot_finding_text(&f.list[i], text, sizeof(text));
		found |= f.list[i].kind == FINDING_TAG_SEQUENCE &&
			 strcmp(interned(f.list[i].name), name) == 0 && strstr(text, word) != NULL;
	}
	slot_findings_free(&f);
	return found;
}

/* The layers of this test are published by hand. */
static uint64_t reload;

static inline void open_reload(void)
{
	cr_assert_eq(reload_begin(NULL, &reload), 0);
}

static inline void close_reload(void)
{
	struct reload_outcome o;

	cr_assert_eq(reload_abort(reload, "test", &o), 0);
	reload_outcome_free(&o);
}

static inline void commit(struct arena *a)
{
	cr_assert_eq(stage_publish(a, FAKE_STREAM), 0, "%s", arena_message());
}

#endif
