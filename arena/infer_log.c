/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: write down what is freed and allocated while a reload is open (infer_log.h). Beyond the
 * limits nothing is written down, and the pairs that are missing are told as ambiguous.
 *
 * Threads: any; the log is guarded by the lock.
 */
#include "arena/infer_log.h"

#include "arena/map.h"
#include "arena/slab.h"

#define DEAD_MAX 4096u
#define BORN_MAX (1u << 18)

enum infer_mode infer_mode = INFER_WARN;
_Atomic bool infer_active;

static struct spinlock lock = SPINLOCK_INIT;
static struct infer_log record;
static struct map born_at; /* base -> index + 1 of the newest one there */

void infer_log_free(struct infer_log *l)
{
	pages_put(l->dead, l->dead_cap * sizeof(*l->dead));
	pages_put(l->born, l->born_cap * sizeof(*l->born));
	*l = (struct infer_log){ .dead = NULL };
}

static void forget_places(void)
{
	pages_put(born_at.slots, born_at.cap * sizeof(*born_at.slots));
	born_at = (struct map){ .slots = NULL };
}

void infer_begin(void)
{
	spin_lock(&lock);
	infer_log_free(&record);
	forget_places();
	store_relaxed(&infer_active, infer_mode != INFER_OFF);
	spin_unlock(&lock);
}

bool infer_stop(struct infer_log *out)
{
	bool was;

	spin_lock(&lock);
	was = load_relaxed(&infer_active);
	store_relaxed(&infer_active, false);
	*out = record;
	record = (struct infer_log){ .dead = NULL };
	forget_places();
	spin_unlock(&lock);
	return was;
}

void infer_born_slow(enum range_kind kind, uint64_t base, uint64_t size_bytes, uint32_t stack)
{
	uintptr_t before;

	spin_lock(&lock);
	before = (uintptr_t)map_get(&born_at, base);
	if (before)
		record.born[before - 1].size_bytes = 0;
	if (load_relaxed(&infer_active) && record.born_count < BORN_MAX &&
	    !pages_grow(&record.born, &record.born_cap, record.born_count + 1,
			sizeof(*record.born)) &&
	    !map_put(&born_at, base, (void *)(uintptr_t)(record.born_count + 1)))
		record.born[record.born_count++] =
			(struct infer_born){ base, size_bytes, 0, stack, kind };
	spin_unlock(&lock);
}

static struct infer_dead dead_of(const struct finding *f)
{
	struct infer_dead d = { .ref = f->refs[0] };

	for (uint32_t i = 0; i < f->refs_count && d.execs_count < INFER_SERIALS_MAX; i++)
		if (i == 0 || f->refs[i].exec_serial != f->refs[i - 1].exec_serial)
			d.serials[d.execs_count++] = f->refs[i].exec_serial;
	return d;
}

void infer_died(const struct finding *f)
{
	if (!load_relaxed(&infer_active) || f->refs_count == 0)
		return;
	spin_lock(&lock);
	if (load_relaxed(&infer_active) && record.dead_count < DEAD_MAX &&
	    !pages_grow(&record.dead, &record.dead_cap, record.dead_count + 1,
			sizeof(*record.dead)))
		record.dead[record.dead_count++] = dead_of(f);
	spin_unlock(&lock);
}
