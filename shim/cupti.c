/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens and closes the window: carries out what window.c decides, by way of libarena_cupti.so.
 *
 * Any thread. One mutex guards the window; it is held for a few instructions, and never where the
 * dynamic linker's lock may be asked for: a library's constructor holds that one, and may create
 * graphs or subscribe to CUPTI. Attaching and detaching do ask for it, so they are made by one
 * thread at a time, marked by is_changing, with the mutex released. What comes by meanwhile on
 * another thread waits, so that it is not missed; but not for ever, as it may be such a constructor
 * that the change waits for.
 */
#include "shim/cupti.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "arena/cross.h"
#include "reports/write.h"
#include "shim/coverage.h"
#include "shim/elf.h"
#include "shim/log.h"
#include "shim/nested.h"
#include "shim/options.h"
#include "shim/record.h"

#define LIBRARY	  "libarena_cupti.so"
#define OURSELVES "the program itself, or a library of it"
/* How long a change is waited for: many times what CUPTI takes. */
#define CHANGE_WAIT_MS 1000

_Atomic bool cupti_wanted;
bool cupti_alone;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct window window;		/* guarded by lock */
static struct cupti_facts facts;	/* guarded by lock, but for events */
static bool is_changing;		/* guarded by lock: some thread attaches or detaches */
static bool is_stuck;			/* guarded by lock: it takes too long to wait for */
static const struct recorder *recorder; /* set by who changes; NULL: not opened yet */

/* ---- one change at a time; lock held, and released meanwhile ---- */

/* @return false: there still is one, and the caller has to do without. */
static bool wait_for_change(void)
{
	static const struct timespec millisecond = { .tv_nsec = 1000000 };

	for (int i = 0; is_changing && !is_stuck && i < CHANGE_WAIT_MS; i++) {
		pthread_mutex_unlock(&lock);
		nanosleep(&millisecond, NULL);
		pthread_mutex_lock(&lock);
	}
	/* Who comes next need not wait as long once more. */
	is_stuck = is_changing;
	return !is_changing;
}

/* Our calls from here on are not the application's, also in constructors that they run. */
static struct own_calls change_begin(void)
{
	is_changing = true;
	is_stuck = false;
	pthread_mutex_unlock(&lock);
	return own_calls_begin();
}

static void change_end(struct own_calls *own)
{
	own_calls_end(own);
	pthread_mutex_lock(&lock);
	is_changing = false;
}

/* ---- the library ---- */

static bool is_inside(void)
{
	return shim_inside != 0;
}

/* A guest may have come while libcupti was looked for. */
static bool may_attach(void)
{
	bool may;

	pthread_mutex_lock(&lock);
	may = !window.guests;
	pthread_mutex_unlock(&lock);
	return may;
}

/* Next to the shim, else wherever the linker looks. */
static void *open_library(void)
{
	const struct dl_functions *libc = elf_libc();
	const char *slash;
	char path[4096];
	Dl_info own;
	void *handle = NULL;

	if (dladdr(&cupti_wanted, &own) && (slash = strrchr(own.dli_fname, '/')) != NULL) {
		snprintf(path, sizeof(path), "%.*s/" LIBRARY, (int)(slash - own.dli_fname),
			 own.dli_fname);
		handle = load_relaxed(&libc->dlopen)(path, RTLD_NOW);
	}
	if (!handle)
		handle = load_relaxed(&libc->dlopen)(LIBRARY, RTLD_NOW);
	return handle;
}

/* By who changes. @return NULL: it is not there, which was said. */
static const struct recorder *the_recorder(void)
{
	void *handle = recorder ? NULL : open_library();
	recorder_entry entry = NULL;

	if (handle)
		entry = (recorder_entry)load_relaxed(&elf_libc()->dlsym)(handle, RECORDER_SYMBOL);
	if (entry)
		recorder = entry(RECORDER_ABI);
	if (recorder)
		return recorder;
	dlerror(); /* the failure is ours */
	log_warn(LIBRARY " %s: install the one of this shim next to it, or set ARENA_CUPTI=off",
		 handle ? "is of another version" : "was not found");
	coverage_note(COVERAGE_CUPTI_UNAVAILABLE, LIBRARY);
	return NULL;
}

/* ---- attach and detach; lock held ---- */

static void say_absent(enum recorder_result result, const struct recorder_status *s)
{
	static const struct {
		const char *what, *remedy;
	} words[] = {
		[RECORDER_NO_LIBRARY] = { "no libcupti", "install CUPTI of CUDA 12.6 or newer" },
		[RECORDER_TOO_OLD] = { "libcupti is too old",
				       "install that of CUDA 12.6 or newer" },
		[RECORDER_REFUSED] = { "libcupti refuses", "use one that fits the driver" },
		[RECORDER_BAD_CALL] = { LIBRARY " refuses", "install the one of this shim" },
	};
	char note[160];

	log_warn("%s%s%s: %s: graphs are known from interposition alone: %s, or set "
		 "ARENA_CUPTI=off",
		 words[result].what, *s->library ? ", " : "", s->library, s->text,
		 words[result].remedy);
	snprintf(note, sizeof(note), "%s: %.120s", words[result].what, s->text);
	coverage_note(COVERAGE_CUPTI_UNAVAILABLE, note);
}

/* @param other who has it; "": not told. */
static void say_busy(const char *other)
{
	static bool said;

	facts.busy++;
	coverage_note(COVERAGE_CUPTI_BUSY, *other ? other : "a subscriber without a name");
	if (!said)
		log_warn("CUPTI is in use by %s (ARENA_CUPTI): graphs are known from "
			 "interposition alone until it leaves",
			 *other ? other : "another subscriber");
	said = true;
}

static enum recorder_result attach(struct recorder_status *s)
{
	static struct recorder_host host = {
		.abi = RECORDER_ABI,
		.event = cupti_event,
		.inside = is_inside,
		.may_attach = may_attach,
	};
	unsigned flags = option_value(OPTION_CUPTI_LAUNCHES) ? RECORDER_LAUNCHES : 0;

	host.dlopen = load_relaxed(&elf_libc()->dlopen);
	host.dlsym = load_relaxed(&elf_libc()->dlsym);
	return recorder->open(&host, flags, s);
}

/* The window was closed by window.c already. */
static void detach(const char *why)
{
	struct own_calls own = change_begin();
	struct recorder_status s;
	enum recorder_result result;
	char note[160];

	store_relaxed(&witness_on, false);
	result = recorder->close(&s);
	witness_clear();
	change_end(&own);
	facts.finalize_ns += s.elapsed_ns;
	if (result == RECORDER_REFUSED) {
		log_warn("CUPTI was not finalised: %s: graph launches may stay slow: CUPTI is not "
			 "attached again; set ARENA_CUPTI=off to do without it",
			 s.text);
		snprintf(note, sizeof(note), "not finalised: %.120s", s.text);
		coverage_note(COVERAGE_CUPTI_UNAVAILABLE, note);
		window_opened(&window, false, true);
		store_relaxed(&cupti_wanted, false);
	}
	log_info("CUPTI detached, %s, %llu us", why, (unsigned long long)s.elapsed_ns / 1000);
}

/* What an attempt to attach came to. */
static void say_opened(enum recorder_result result, const struct recorder_status *s)
{
	if (*s->library)
		memcpy(facts.library, s->library, sizeof(facts.library));
	if (*s->other)
		memcpy(facts.other, s->other, sizeof(facts.other));
	facts.version = s->version;
	if (result == RECORDER_BUSY) {
		say_busy(window.guests ? OURSELVES : s->other);
	} else if (result != RECORDER_DONE) {
		say_absent(result, s);
	} else {
		facts.windows++;
		facts.attach_ns += s->elapsed_ns;
		log_info("CUPTI %u attached, %s, %llu us", s->version, s->library,
			 (unsigned long long)s->elapsed_ns / 1000);
	}
}

static void open_window(void)
{
	struct recorder_status s = { .version = 0 };
	struct own_calls own = change_begin();
	bool is_there = the_recorder() != NULL, is_late;
	enum recorder_result result = is_there ? attach(&s) : RECORDER_BAD_CALL;

	change_end(&own);
	is_late = window_opened(&window, result == RECORDER_DONE,
				result != RECORDER_DONE && result != RECORDER_BUSY);
	store_relaxed(&witness_on, window.is_open);
	store_relaxed(&cupti_wanted, window_wanted(&window));
	if (is_there)
		say_opened(result, &s);
	if (is_late) {
		facts.yielded++;
		detach("another user of CUPTI came");
	}
}

/* ---- what frames a window ---- */

void cupti_begin_slow(void)
{
	int saved_errno = errno;
	enum window_answer answer;

	pthread_mutex_lock(&lock);
	/* Relaxed: a capture that begins now on another thread waits for the change. */
	answer = window_begin(&window, load_relaxed(&captures_active));
	if (answer == WINDOW_OPEN && is_changing && wait_for_change())
		answer = window_begin(&window, load_relaxed(&captures_active));
	if (answer == WINDOW_OPEN && is_changing)
		coverage_count(CUPTI_SKIPPED);
	else if (answer == WINDOW_OPEN)
		open_window();
	else if (answer == WINDOW_TAKEN)
		say_busy(OURSELVES);
	pthread_mutex_unlock(&lock);
	errno = saved_errno;
}

void cupti_work_slow(void)
{
	witness_exec_over();
	pthread_mutex_lock(&lock);
	window_work(&window);
	pthread_mutex_unlock(&lock);
}

void cupti_launching_slow(CUgraphExec exec)
{
	const struct exec *e = exec_find((uint64_t)exec);
	uint64_t nodes = e ? load_relaxed(&e->nodes_count) : 0;
	int saved_errno = errno;

	pthread_mutex_lock(&lock);
	if (window_replay(&window, nodes, load_relaxed(&captures_active)))
		detach("captures have ended");
	pthread_mutex_unlock(&lock);
	errno = saved_errno;
}

void cupti_needed(void)
{
	/* Constant once the shim is on. */
	if (window.mode != WINDOW_AUTO)
		return;
	pthread_mutex_lock(&lock);
	window.is_needed = true;
	store_relaxed(&cupti_wanted, window_wanted(&window));
	pthread_mutex_unlock(&lock);
}

void cupti_phase(bool begins)
{
	pthread_mutex_lock(&lock);
	window_phase(&window, begins);
	store_relaxed(&cupti_wanted, window_wanted(&window));
	pthread_mutex_unlock(&lock);
	if (begins)
		cupti_begin();
}

void cupti_initialised(void)
{
	if (option_value(OPTION_CUPTI) == WINDOW_ALWAYS)
		cupti_begin();
}

void cupti_start(void)
{
	window.mode = (enum window_mode)option_value(OPTION_CUPTI);
	cupti_alone = window.mode == WINDOW_ALONE;
	store_relaxed(&cupti_wanted, window_wanted(&window));
}

void cupti_forget(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	is_changing = false;
	if (recorder)
		recorder->forget();
}

/* ---- what CUPTI knows better ---- */

void cupti_compare(CUgraphExec exec, CUgraph graph, const struct exec_builder *b)
{
	struct cross_result r;

	if (exec_build_unborn(b))
		cupti_needed();
	if (!load_relaxed(&witness_on))
		return;
	/* Making an exec is always told: somebody finalised CUPTI where it cannot be seen. */
	if (exec && witness_in_exec() && cupti_told == 0) {
		cupti_guest_finalised();
		return;
	}
	if (!cross_compare(b, (uint64_t)graph, exec != NULL, &r))
		report_cross(&r);
	if (!r.compared)
		return;
	coverage_add(CUPTI_AGREED, cross_agrees(&r));
	coverage_add(CUPTI_ONLY, r.counts[CROSS_NODE_ONLY_CUPTI] +
					 r.counts[CROSS_ADDRESS_ONLY_CUPTI] +
					 r.counts[CROSS_GENERATION]);
	coverage_add(CUPTI_MISSED,
		     r.counts[CROSS_NODE_ONLY_WALK] + r.counts[CROSS_ADDRESS_ONLY_WALK]);
}

uint64_t cupti_body(CUgraphNode node, uint32_t index)
{
	uint64_t graph, original, body;

	if (!load_relaxed(&witness_on))
		return 0;
	if (!witness_original((uint64_t)node, &graph, &original))
		return witness_body((uint64_t)node, index);
	body = nested_get(graph, original, index);
	if (!body)
		body = cupti_body((CUgraphNode)original, index);
	return body ? witness_clone_beside((uint64_t)node, body) : 0;
}

/* ---- guests ---- */

void cupti_guest(unsigned guest)
{
	int saved_errno = errno;

	pthread_mutex_lock(&lock);
	/* One that cannot wait is seen by open_window() when it is done. */
	wait_for_change();
	if (window_guest(&window, guest)) {
		facts.yielded++;
		detach("another user of CUPTI comes");
	}
	pthread_mutex_unlock(&lock);
	errno = saved_errno;
}

void cupti_guest_left(unsigned guest)
{
	pthread_mutex_lock(&lock);
	window_guest_left(&window, guest);
	pthread_mutex_unlock(&lock);
}

void cupti_guest_finalised(void)
{
	int saved_errno = errno;

	pthread_mutex_lock(&lock);
	wait_for_change();
	/* Nobody attaches or detaches a window that is open. */
	if (window_finalised(&window)) {
		facts.lost++;
		store_relaxed(&witness_on, false);
		recorder->forget();
		witness_clear();
		log_info("another user of CUPTI finalised it: attached again at the next capture");
	}
	pthread_mutex_unlock(&lock);
	errno = saved_errno;
}

void cupti_read_facts(struct cupti_facts *out)
{
	pthread_mutex_lock(&lock);
	*out = facts;
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < RECORDER_KIND_COUNT; i++)
		out->events[i] = load_relaxed(&cupti_events[i]);
}
