/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that faces the outside, put together: hands the report what it needs from the parts
 * of the shim. outside_start() runs in the one thread that starts the shim, outside_exit() in any,
 * more than once if need be; the callbacks run under the lock of the report.
 */
#include "shim/outside.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "arena/block.h"
#include "arena/born.h"
#include "arena/exec.h"
#include "reports/write.h"
#include "shim/bypass.h"
#include "shim/coverage.h"
#include "shim/cupti.h"
#include "shim/hooks.h"
#include "shim/log.h"
#include "shim/modules.h"
#include "shim/nvtx.h"
#include "shim/options.h"
#include "shim/stacks.h"
#include "shim/torch.h"
#include "shim/unwind.h"

/* What ARENA_GATE=abort ends the process with. */
#define EXIT_ABORTED	86

static void warn(const char *text)
{
	log_warn("%s", text);
}

static void give_options(report_pair_fn add, void *to)
{
	char name[64], value[OPTION_TEXT_BYTES];

	for (int i = 0; i < OPTION_COUNT; i++) {
		option_print((enum option_id)i, value, sizeof(value));
		snprintf(name, sizeof(name), "ARENA_%s", option_name((enum option_id)i));
		add(to, name, value);
	}
}

/* What the core had to drop for want of memory, which it counts itself. */
static uint64_t core_dropped(void)
{
	struct ledger_counters ledger;
	struct exec_counters graphs;

	ledger_read_counters(&ledger);
	exec_read_counters(&graphs);
	return ledger.dropped + graphs.dropped;
}

/* What the core counts of a row itself. */
static uint64_t core_counted(enum coverage_id id)
{
	struct block_counters blocks;

	if (id == COVERAGE_NO_MEMORY)
		return core_dropped();
	if (id == COVERAGE_COPIES_LEFT_OUT)
		return load_relaxed(&born_left_out);
	if (id != COVERAGE_SEGMENT_SHARED)
		return 0;
	block_read_counters(&blocks);
	return blocks.mixed;
}

static void give_coverage(report_gap_fn add, void *to)
{
	for (int i = 0; i < COVERAGE_COUNT; i++)
		add(to, coverage_rows[i].key, coverage_rows[i].text,
		    load_relaxed(&coverage[i]) + core_counted((enum coverage_id)i),
		    coverage_rows[i].decisive);
}

static void give_entries(report_pair_fn add, void *to)
{
	for (int i = 0; i < HOOK_COUNT; i++)
		if (load_relaxed(hook_rows[i].seen))
			add(to, "entries", hook_rows[i].symbol);
}

static void give_notes(report_pair_fn add, void *to)
{
	enum coverage_id id;
	const char *name;

	for (unsigned i = 0; (name = coverage_noted(i, &id)) != NULL; i++)
		add(to, coverage_rows[id].key, name);
}

/* In the order of enum recorder_kind. */
static const char *const event_names[RECORDER_KIND_COUNT] = {
	"graph-created", "graph-cloned", "graph-destroying", "node-created", "node-cloned",
	"node-destroying", "node-updated", "node-params-set", "dependency-created",
	"dependency-destroying", "exec-creating", "exec-created", "exec-destroying", "launch",
};

static void give_cupti(report_pair_fn add, report_count_fn count, void *to)
{
	struct cupti_facts f;
	char mode[16];

	cupti_read_facts(&f);
	option_print(OPTION_CUPTI, mode, sizeof(mode));
	add(to, "window", mode);
	add(to, "library", f.library);
	add(to, "other", f.other);
	count(to, NULL, "version", f.version);
	count(to, NULL, "windows", f.windows);
	count(to, NULL, "yielded", f.yielded);
	count(to, NULL, "lost", f.lost);
	count(to, NULL, "busy", f.busy);
	count(to, NULL, "attach_ns", f.attach_ns);
	count(to, NULL, "finalize_ns", f.finalize_ns);
	for (int i = 0; i < RECORDER_KIND_COUNT; i++)
		count(to, "events", event_names[i], f.events[i]);
}

static void found_bypass(void *arg, const char *object, const char *symbol)
{
	const char *slash = strrchr(object, '/');
	char text[256];

	snprintf(text, sizeof(text), "%s in %s", symbol,
		 slash ? slash + 1 : *object ? object : "the program");
	coverage_note(COVERAGE_BYPASSED, text);
}

static const char *own_path(void)
{
	struct stack_frame own = modules_frame((uintptr_t)&outside_start);
	const struct stack_module *m = modules_get(own.module);

	return m ? m->path : "";
}

static int driver_version(void)
{
	int version = 0;

	return REAL(cuDriverGetVersion)(&version) == CUDA_SUCCESS ? version : 0;
}

void outside_start(void)
{
	static struct report_source source = {
		.version = ARENA_VERSION,
		.options = give_options,
		.stack_frames = stack_frames,
		.stack_python = stack_python,
		.stack_module = stack_module,
		.coverage = give_coverage,
		.entries = give_entries,
		.notes = give_notes,
		.cupti = give_cupti,
		.warn = warn,
	};

	if (option_value(OPTION_STACKS) != STACKS_OFF)
		unwind_init();
	source.unwinder = stack_unwinder();
	source.unproven_fails = option_value(OPTION_GATE) >= GATE_STRICT &&
				option_value(OPTION_UNPROVEN) == UNPROVEN_FAIL;
	source.path = option_text(OPTION_REPORT);
	source.library = own_path();
	source.driver_version = driver_version();
	report_init(&source);
}

void outside_exit(void)
{
	static _Atomic bool scanned;

	if (!swap_acq_rel(&scanned, true)) {
		bypass_scan(found_bypass, NULL);
		torch_check();
	}
	report_exit();
}

void outside_abort(void)
{
	outside_exit();
	_exit(EXIT_ABORTED);
}

void outside_forget(void)
{
	report_forget();
	stacks_forget();
	nvtx_forget();
	coverage_forget();
	for (int i = 0; i < HOOK_COUNT; i++)
		store_relaxed(hook_rows[i].seen, false);
}
