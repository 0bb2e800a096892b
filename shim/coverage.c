/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storage of the coverage counters, their texts, and the names that were noted. Static memory, no
 * other part of the shim is needed: the no-op build counts with it too. Any thread.
 */
#include "shim/coverage.h"

#include <string.h>

#define NOTES_MAX	128
#define NOTE_BYTES	160

const struct coverage_row coverage_rows[COVERAGE_COUNT] = {
#define COVERAGE(id, key, decisive, text) { key, text, decisive },
#include "shim/coverage.def"
#undef COVERAGE
};

counter_t coverage[COVERAGE_COUNT];

static struct spinlock lock = SPINLOCK_INIT;
/* Entries below the count are constant; it grows under the lock. */
static struct note {
	enum coverage_id id;
	char name[NOTE_BYTES];
} notes[NOTES_MAX];
static _Atomic uint32_t notes_count;

static bool is_noted(const struct note *n)
{
	/* Pairs with the release store in coverage_note(). */
	uint32_t count = load_acquire(&notes_count);

	for (uint32_t i = 0; i < count; i++)
		if (notes[i].id == n->id && strcmp(notes[i].name, n->name) == 0)
			return true;
	return false;
}

void coverage_note(enum coverage_id id, const char *name)
{
	struct note n = { .id = id };
	uint32_t count;

	counter_bump(&coverage[id]);
	strncpy(n.name, name, sizeof(n.name) - 1);
	if (is_noted(&n))
		return;
	spin_lock(&lock);
	count = load_relaxed(&notes_count);
	if (count < NOTES_MAX && !is_noted(&n)) {
		notes[count] = n;
		/* Pairs with the acquire loads of the readers. */
		store_release(&notes_count, count + 1);
	}
	spin_unlock(&lock);
}

const char *coverage_noted(unsigned index, enum coverage_id *id)
{
	/* Pairs with the release store in coverage_note(). */
	if (index >= load_acquire(&notes_count))
		return NULL;
	*id = notes[index].id;
	return notes[index].name;
}

void coverage_forget(void)
{
	lock = (struct spinlock)SPINLOCK_INIT;
	store_relaxed(&notes_count, 0);
	for (int i = 0; i < COVERAGE_COUNT; i++)
		store_relaxed(&coverage[i], 0);
}
