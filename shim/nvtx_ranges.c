/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ranges of ours are open: pushed by a thread, or between start and end; and the registered
 * strings that name some.
 *
 * A pop has no name: each thread counts its levels by domain, and remembers at which level a range
 * of ours was pushed. Ranges that are not ours cost a comparison of six bytes.
 *
 * Any thread. The lock is not held when anything is called.
 */
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arena/atomics.h"
#include "arena/intern.h"
#include "shim/nvtx.h"
#include "shim/nvtx_abi.h"

#define DOMAINS_MAX 4	/* of one thread, that are counted */
#define DEPTH_MAX   8	/* ranges of ours, pushed by one thread */
#define STRINGS_MAX 256 /* registered ones that are ours */
#define STARTED_MAX 64	/* ranges of ours between start and end */

/* ---- levels of a thread ---- */

struct level {
	const void *domain;
	int depth;
};
struct pushed {
	const void *domain;
	int depth;
	struct nvtx_open open;
};
static _Thread_local struct {
	struct level levels[DOMAINS_MAX];
	struct pushed pushed[DEPTH_MAX];
	unsigned levels_count, pushed_count;
} here;

/* @return NULL: there are too many domains. */
static struct level *level_of(const void *domain)
{
	for (unsigned i = 0; i < here.levels_count; i++)
		if (here.levels[i].domain == domain)
			return &here.levels[i];
	if (here.levels_count == DOMAINS_MAX)
		return NULL;
	here.levels[here.levels_count] = (struct level){ domain, 0 };
	return &here.levels[here.levels_count++];
}

/* @return the depth that the range has, counted from 0. */
int nvtx_pushed(const void *domain, const char *text)
{
	struct level *l = level_of(domain);
	bool ours = nvtx_ours(text);

	if (ours && (!l || here.pushed_count == DEPTH_MAX)) {
		nvtx_say(text, l ? "more than 8 arena ranges are pushed: pop some"
				 : "this thread uses more than 4 domains: use fewer");
		ours = false;
	}
	if (ours)
		here.pushed[here.pushed_count++] =
			(struct pushed){ domain, l->depth, nvtx_begin(text) };
	return l ? l->depth++ : NVTX_NOT_TRACKED;
}

/* @return the depth of the range that is popped. */
int nvtx_popped(const void *domain)
{
	struct level *l = level_of(domain);

	/* More pops than pushes: those of ranges that were pushed before we came. */
	if (!l || l->depth == 0)
		return NVTX_NOT_TRACKED;
	l->depth--;
	for (unsigned i = here.pushed_count; i-- > 0;) {
		struct pushed p = here.pushed[i];

		if (p.domain != domain || p.depth != l->depth)
			continue;
		here.pushed_count--;
		memmove(&here.pushed[i], &here.pushed[i + 1],
			(here.pushed_count - i) * sizeof(here.pushed[0]));
		nvtx_end(&p.open);
		break;
	}
	return l->depth;
}

/* ---- ranges between start and end ---- */

static struct spinlock lock = SPINLOCK_INIT;
static struct started {
	uint64_t id; /* 0: free */
	pid_t thread;
	struct nvtx_open open;
} started[STARTED_MAX];		/* guarded by the lock */
static counter_t started_count; /* ever; an id where no tool makes them */

static pid_t thread_id(void)
{
	return (pid_t)syscall(SYS_gettid);
}

static bool keep_started(uint64_t id, const struct nvtx_open *open)
{
	bool kept = false;

	spin_lock(&lock);
	for (size_t i = 0; i < STARTED_MAX && !kept; i++) {
		if (started[i].id)
			continue;
		started[i] = (struct started){ id, thread_id(), *open };
		kept = true;
	}
	spin_unlock(&lock);
	return kept;
}

/* @return the range, and forget it; id 0: not one of ours. */
static struct started take_started(uint64_t id)
{
	struct started s = { .id = 0 };

	spin_lock(&lock);
	for (size_t i = 0; i < STARTED_MAX && id && !s.id; i++) {
		if (started[i].id != id)
			continue;
		s = started[i];
		started[i].id = 0;
	}
	spin_unlock(&lock);
	return s;
}

/* @param id what the tool gave; 0: there is no tool. @return the id for the program. */
uint64_t nvtx_started(uint64_t id, const char *text)
{
	struct nvtx_open open;

	if (id == 0)
		id = add_relaxed(&started_count, 1) + 1;
	if (!nvtx_ours(text))
		return id;
	open = nvtx_begin(text);
	if (open.kind != NVTX_NOTHING && !keep_started(id, &open)) {
		nvtx_say(text, "more than 64 arena ranges are started: end some");
		nvtx_end(&open);
	}
	return id;
}

void nvtx_ended(uint64_t id)
{
	struct started s = take_started(id);

	if (s.id == 0)
		return;
	if ((s.open.kind == NVTX_LAYER || s.open.kind == NVTX_TAG) && s.thread != thread_id())
		nvtx_say(s.open.kind == NVTX_LAYER ? "arena:layer" : "arena:tag",
			 "ended by another thread than the one that it was started for, where it "
			 "stays open: push and pop it");
	else
		nvtx_end(&s.open);
}

/* ---- texts ---- */

/* Registered strings that are ours. Entries below the count are constant; it grows under the
 * lock.*/
static struct string {
	const void *handle;
	uint32_t text; /* interned */
} strings[STRINGS_MAX];
static _Atomic uint32_t strings_count;

const char *nvtx_string(const void *handle)
{
	/* Pairs with the release store in nvtx_keep_string(). */
	uint32_t count = load_acquire(&strings_count);

	for (uint32_t i = 0; i < count; i++)
		if (strings[i].handle == handle)
			return interned(strings[i].text);
	return NULL;
}

void nvtx_keep_string(const void *handle, const char *text)
{
	uint32_t count;

	spin_lock(&lock);
	count = load_relaxed(&strings_count);
	if (count < STRINGS_MAX && !nvtx_string(handle)) {
		strings[count] = (struct string){ handle, intern(text) };
		/* Pairs with the acquire load in nvtx_string(). */
		store_release(&strings_count, count + 1);
	}
	spin_unlock(&lock);
	if (count == STRINGS_MAX)
		nvtx_say(text,
			 "more than 256 registered strings name arena ranges: register fewer");
}

void nvtx_forget_ranges(void)
{
	lock = (struct spinlock)SPINLOCK_INIT;
}
