/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arenas and tags that a thread is under (tag.h). A tag belongs to the scope that it was
 * pushed in, and is popped before that scope is left; so the newest tag's arena is always one that
 * the thread is in.
 *
 * Threads: each has its own stacks; nothing here is shared but the sequences (tag.c).
 */
#include "arena/ambient.h"

#include "arena/intern.h"

struct ambient {
	struct arena *arenas[SCOPE_DEPTH];
	struct tag_sequence *tags[SCOPE_DEPTH];
	uint8_t tag_at[SCOPE_DEPTH]; /* depth of the scope that the tag was pushed in */
	unsigned depth;
};
static _Thread_local struct ambient mine __attribute__((tls_model("initial-exec")));
_Thread_local unsigned tag_depth __attribute__((tls_model("initial-exec")));

int scope_enter(struct arena *a)
{
	if (a == NULL)
		return arena_fail(ARENA_E_INVALID, "arena: NULL; get one with arena_open()");
	if (mine.depth == SCOPE_DEPTH)
		return arena_fail(ARENA_E_BUSY, "arena %s: %d scopes are entered; leave one first",
				  interned(a->path), SCOPE_DEPTH);
	mine.arenas[mine.depth++] = a;
	return ARENA_OK;
}

int scope_leave(void)
{
	if (mine.depth == 0)
		return arena_fail(ARENA_E_BUSY, "scope: none is entered by this thread; every "
						"leave needs an enter");
	if (tag_depth != 0 && mine.tag_at[tag_depth - 1] == mine.depth)
		return arena_fail(ARENA_E_BUSY, "arena %s: tag %s is open in it; pop it first",
				  interned(mine.arenas[mine.depth - 1]->path),
				  interned(mine.tags[tag_depth - 1]->name));
	mine.depth--;
	return ARENA_OK;
}

struct arena *scope_current(void)
{
	return mine.depth != 0 ? mine.arenas[mine.depth - 1] : NULL;
}

int ambient_push_tag(struct tag_sequence *q)
{
	if (tag_depth == SCOPE_DEPTH)
		return arena_fail(ARENA_E_BUSY, "tag %s: %d tags are open; pop one first",
				  interned(q->name), SCOPE_DEPTH);
	mine.tags[tag_depth] = q;
	mine.tag_at[tag_depth] = (uint8_t)mine.depth;
	tag_depth++;
	return ARENA_OK;
}

struct tag_sequence *ambient_pop_tag(void)
{
	return tag_depth != 0 ? mine.tags[--tag_depth] : NULL;
}

struct tag_sequence *tag_current(void)
{
	return mine.tags[tag_depth - 1];
}
