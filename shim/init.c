/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of the shim in a process: start at the first use of CUDA, inert in forked children, last
 * report at exit.
 *
 * There is no constructor: a process that never calls the driver (sh, ptxas, a python without
 * CUDA) pays for nothing and opens no file, and calls that come before constructors ran find
 * everything as later ones do. Any thread; exactly one starts the shim, the others wait for it.
 */
#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "arena/arena.h"
#include "arena/block.h"
#include "arena/client.h"
#include "arena/device.h"
#include "arena/event.h"
#include "arena/exec.h"
#include "arena/infer.h"
#include "arena/registry.h"
#include "arena/reload.h"
#include "arena/scan.h"
#include "reports/manifest.h"
#include "reports/write.h"
#include "shim/cupti.h"
#include "shim/device.h"
#include "shim/gate.h"
#include "shim/hook_sync.h"
#include "shim/hooks.h"
#include "shim/log.h"
#include "shim/options.h"
#include "shim/outside.h"
#include "shim/shim.h"
#include "shim/stacks.h"

/* How long a thread waits for another one's start. Without an end it could wait for ever: in the
 * constructor of a library, it holds a lock of the loader that the start needs. */
#define START_WAIT_MS	500

QUICK_WORD _Atomic int shim_state;

/* outside_start() ran in this process: there is an exit line to write. */
static _Atomic bool reporting;

int arena_abi(void)
{
	return 1;
}

static void on_finding(const struct finding *f)
{
	bool fatal = finding_severity(f->kind) == SEVERITY_ERROR;
	struct finding told = *f;

	/* A launch is judged too often to have its stack taken beforehand. */
	if (told.stack == 0)
		told.stack = stack_here(STACK_FINDING);
	report_finding(&told);
	if (fatal && option_value(OPTION_GATE) == GATE_ABORT)
		outside_abort();
}

/* Runs in the child only. The parent's memory, graphs and report are not the child's. */
static void forked(void)
{
	int s = load_relaxed(&shim_state);

	if (s == SHIM_ON || s == SHIM_STARTING)
		store_relaxed(&shim_state, SHIM_CHILD);
	shim_inside = 0;
	launcher_forget();
	cupti_forget();
	store_relaxed(&captures_active, 0);
	store_relaxed(&reporting, false);
	outside_forget();
}

/* What reloads are measured by. */
static void start_reloads(void)
{
	const char *manifest = option_text(OPTION_MANIFEST);

	reload_accepts_unproven = option_value(OPTION_GATE) < GATE_STRICT ||
				  option_value(OPTION_UNPROVEN) == UNPROVEN_PASS;
	reload_gap = report_gap;
	if (*manifest && manifest_read(manifest) != 0) {
		log_error("ARENA_MANIFEST: %s: no manifest, repair the file", arena_message());
		report_unproven("the file of ARENA_MANIFEST could not be read");
	}
}

/* @return the state that the shim is in from now on. */
static int start(void)
{
	static bool fork_watched;	/* by the one thread that starts */

	if (!gate_first())
		return SHIM_OFF;
	options_init(environ);
	if (option_value(OPTION_GATE) == GATE_OFF)
		return SHIM_OFF;
	outside_start();
	store_relaxed(&reporting, true);
	if (ledger_init() != 0) {
		shim_off("no memory for the ledger");
		return SHIM_OFF;
	}
	guard_refuses = option_value(OPTION_GATE) >= GATE_STRICT;
	scan_wanted = option_value(OPTION_SCAN) != 0;
	infer_mode = (enum infer_mode)option_value(OPTION_INFER);
	if (option_value(OPTION_STACKS) == STACKS_ALL)
		block_watch(true);
	exec_limit_bytes = option_value(OPTION_GRAPH_MIB) << 20;
	device.stream_busy = sync_stream_busy;
	device.event_done = sync_event_is_done;
	device.finding = on_finding;
	device.stack_site = stack_site;
	event_sink = option_value(OPTION_TRACE) ? report_event : NULL;
	device_start();
	start_reloads();
	cupti_start();
	report_started();
	if (!fork_watched)
		fork_watched = pthread_atfork(NULL, NULL, forked) == 0;
	return SHIM_ON;
}

static bool wait_for_start(void)
{
	static const struct timespec millisecond = { .tv_nsec = 1000000 };

	for (int i = 0; load_acquire(&shim_state) == SHIM_STARTING; i++) {
		if (i == START_WAIT_MS) {
			report_unproven("calls passed by while the shim was starting");
			return false;
		}
		nanosleep(&millisecond, NULL);
	}
	return load_acquire(&shim_state) == SHIM_ON;
}

__attribute__((cold)) bool shim_start(void)
{
	int expected = SHIM_UNSTARTED, error = errno;
	bool on;

	/* The start asks the driver something, and comes by here again. */
	if (shim_inside)
		return false;
	if (cas_acq_rel(&shim_state, &expected, SHIM_STARTING)) {
		shim_inside++;
		/* Pairs with the acquire in shim_ready(). */
		store_release(&shim_state, start());
		shim_inside--;
	}
	on = wait_for_start();
	errno = error;
	return on;
}

__attribute__((cold)) void shim_off(const char *why)
{
	store_release(&shim_state, SHIM_OFF);
	report_unproven(why);
	log_error("the shim is off from here on: %s", why);
}

/* A child that initialises CUDA itself is a process of its own from here on. */
CUresult CUDAAPI cuInit(unsigned int flags)
{
	CUresult rc = REAL(cuInit)(flags);
	int expected = SHIM_CHILD;

	HOOK_ENTER(cuInit);
	/* A program with weak references found ours, and would not have called if there were none:
	 * what it hears must be something that it can expect. */
	if (rc == CUDA_ERROR_NOT_FOUND && !real_has("cuInit"))
		rc = CUDA_ERROR_NO_DEVICE;
	if (rc == CUDA_SUCCESS) {
		cas_acq_rel(&shim_state, &expected, SHIM_UNSTARTED);
		if (shim_ready() && !shim_inside)
			cupti_initialised();
	}
	return rc;
}

int arena_finish(void)
{
	if (!load_relaxed(&reporting))
		return arena_fail(ARENA_E_ABSENT, "arena_finish: this process has no report");
	outside_exit();
	return ARENA_OK;
}

/* Threads may still run, and objects that are torn down later may still free: all of that works
 * on, only nothing is reported any more. */
__attribute__((destructor)) static void finish(void)
{
	if (load_relaxed(&reporting))
		outside_exit();
}
