/* SPDX-License-Identifier: Apache-2.0 */
/* A report source of fixed answers, and findings made by hand. */
#ifndef TESTS_REPORT_FIXTURE_H
#define TESTS_REPORT_FIXTURE_H

#include <stdio.h>

#include "arena/exec.h"
#include "arena/intern.h"
#include "reports/write.h"

static char fixture_said[8192];
static unsigned fixture_said_times;
static uint64_t fixture_gap;		/* count of a decisive reason */

static void fixture_warn(const char *text)
{
	snprintf(fixture_said, sizeof(fixture_said), "%s", text);
	fixture_said_times++;
}

static void fixture_options(report_pair_fn add, void *to)
{
	add(to, "ARENA_GATE", "warn");
}

static void fixture_entries(report_pair_fn add, void *to)
{
	add(to, "entries", "cuMemAlloc_v2");
	add(to, "entries", "cuGraphLaunch");
}

static void fixture_notes(report_pair_fn add, void *to)
{
	add(to, "unhooked-variant", "cuNew_v9");
}

static void fixture_coverage(report_gap_fn add, void *to)
{
	add(to, "host-node", "host nodes", 5, false);
	add(to, "unhooked-variant", "variants that passed through", fixture_gap, true);
}

/* Stack n has n frames, in modules 1, 2, ... */
static size_t fixture_frames(uint32_t id, struct stack_frame *out, size_t max)
{
	size_t count = id < max ? id : max;

	for (size_t i = 0; i < count; i++)
		out[i] = (struct stack_frame){ .module = (uint32_t)i + 1, .offset = 0x1000 + i };
	return count;
}

/* Stack 4 was taken in Python. */
static size_t fixture_python(uint32_t id, struct python_frame *out, size_t max)
{
	if (id != 4 || max == 0)
		return 0;
	out[0] = (struct python_frame){ intern("mod\xc3\xa8le \"a\".py"), intern("load"), 12 };
	return 1;
}

static const struct stack_module *fixture_module(uint32_t number)
{
	static const struct stack_module module = { "/usr/lib/libx.so", "0123abcd" };

	return &module;
}

static void fixture_cupti(report_pair_fn add, report_count_fn count, void *to)
{
	add(to, "window", "capture");
	count(to, NULL, "windows", 2);
	count(to, "events", "node-created", 513);
	count(to, "events", "node-cloned", 256);
}

static struct report_source fixture_source(const char *path)
{
	return (struct report_source){
		.path = path,
		.version = "1.2.3",
		.library = "/opt/libarena_shim.so",
		.unwinder = "libunwind",
		.driver_version = 13000,
		.options = fixture_options,
		.stack_frames = fixture_frames,
		.stack_python = fixture_python,
		.stack_module = fixture_module,
		.coverage = fixture_coverage,
		.entries = fixture_entries,
		.notes = fixture_notes,
		.cupti = fixture_cupti,
		.warn = fixture_warn,
	};
}

static struct finding_ref fixture_ref(void)
{
	return (struct finding_ref){
		.exec_serial = 7,
		.node = 3,
		.node_kind = NODE_KERNEL,
		.reason = STALE_GENERATION,
		.confidence = CONFIDENCE_STRUCT,
		.name = intern("_Z4gemmPf"),
		.param = 2,
		.offset = 16,
		.value = 0x7f0000000100,
		.old = { 0x7f0000000000, 4096, 11, RANGE_DEVICE, 2, 3 },
		.now = { 0x7f0000000000, 8192, 12, RANGE_POOL, 1, 0 },
	};
}

static struct finding fixture_finding(uint64_t key, const struct finding_ref *refs, uint32_t count)
{
	return (struct finding){
		.kind = FINDING_STALE_LAUNCH,
		.id = 0xabc,
		.key = key,
		.time_ns = 123456789,
		.exec_serial = 7,
		.exec_handle = 0x5555,
		.stack = 4,
		.refs_total = count,
		.refs_count = count,
		.refs = refs,
	};
}

#endif
