/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: a record for each thread that launches, and the wait for all of them (launcher.h).
 *
 * Invariants: records are linked once and never freed; a thread that ends gives its own back, and
 * the next new thread takes it. An exec in a record may be destroyed meanwhile: its object is
 * type-stable (slab.h), and the wait is then for nothing, but short.
 *
 * Threads: any function from any thread; no lock.
 */
#include "arena/launcher.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arena/exec.h"
#include "arena/slab.h"

#define POLL_NS	       20000
#define POLLS_PER_MS   (1000000 / POLL_NS)
#define SPINS_PER_POLL 200

_Thread_local struct quick_thread quick_thread;
counter_t launcher_lost;

static struct slab launchers = SLAB_INIT(struct launcher);
static struct launcher *_Atomic all;

/* Of the process, decided once, before the first record. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has_membarrier, has_key;
static pthread_key_t key;

static int membarrier(int command)
{
	int saved = errno;
	int rc = (int)syscall(SYS_membarrier, command, 0, 0);

	errno = saved;
	return rc;
}

static void thread_ends(void *record)
{
	struct launcher *l = record;

	launcher_self = NULL;
	quick_thread.exec = NULL;
	store_relaxed(&l->exec, NULL);
	/* Pairs with the swap in take_over(). */
	store_release(&l->taken, false);
}

static void start(void)
{
	has_membarrier = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
	has_key = pthread_key_create(&key, thread_ends) == 0;
}

/* The record of a thread that ended. */
static struct launcher *take_over(void)
{
	/* Pairs with the release in make(): records are complete. */
	for (struct launcher *l = load_acquire(&all); l != NULL; l = l->next) {
		bool taken = load_relaxed(&l->taken);

		/* Pairs with the release in thread_ends(). */
		if (!taken && cas_acq_rel(&l->taken, &taken, true))
			return l;
	}
	return NULL;
}

static struct launcher *make(void)
{
	struct launcher *l = slab_get(&launchers), *head;

	if (l == NULL)
		return NULL;
	l->needs_fence = !has_membarrier;
	store_relaxed(&l->taken, true);
	head = load_relaxed(&all);
	do
		l->next = head;
	while (!cas_acq_rel(&all, &head, l)); /* pairs with the loads of all */
	return l;
}

__attribute__((cold, noinline)) struct launcher *launcher_claim(void)
{
	struct launcher *l;
	int saved = errno;

	pthread_once(&once, start);
	l = take_over();
	if (l == NULL)
		l = make();
	if (l == NULL)
		counter_bump(&launcher_lost);
	else if (has_key) /* refused: the record is not taken over when the thread ends */
		pthread_setspecific(key, l);
	launcher_self = l;
	errno = saved;
	return l;
}

/* Is @l still where it was, on an exec that the publisher marked? */
static bool is_in(const struct launcher *l, const struct exec *e, uint32_t bits)
{
	/* Acquire pairs with the release in launcher_leave(). */
	return e != NULL && load_acquire(&l->exec) == e && (load_relaxed(&e->mark) & bits) != 0;
}

static bool wait_for(const struct launcher *l, uint32_t bits, unsigned *polls)
{
	static const struct timespec nap = { .tv_nsec = POLL_NS };
	/* Acquire pairs with the release in launcher_leave(). */
	const struct exec *e = load_acquire(&l->exec);

	for (unsigned spins = 1; is_in(l, e, bits); spins++) {
		if (spins % SPINS_PER_POLL != 0) {
			spin_pause();
			continue;
		}
		if (*polls == 0)
			return false;
		--*polls;
		nanosleep(&nap, NULL);
	}
	return true;
}

bool launcher_wait(uint32_t bits, unsigned limit_ms)
{
	unsigned polls = limit_ms * POLLS_PER_MS;

	pthread_once(&once, start);
	/* Here, or by the launches themselves (needs_fence): see the head of launcher.h. */
	fence_seq_cst();
	if (has_membarrier)
		membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
	/* Pairs with make(); a record that is linked later saw the marks. */
	for (struct launcher *l = load_acquire(&all); l != NULL; l = l->next)
		if (l != launcher_self && !wait_for(l, bits, &polls))
			return false;
	return true;
}

void launcher_forget(void)
{
	for (struct launcher *l = load_acquire(&all); l != NULL; l = l->next) {
		store_relaxed(&l->exec, NULL);
		if (l != launcher_self)
			store_relaxed(&l->taken, false);
	}
}
