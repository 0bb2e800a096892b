/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of single wrappers share: assertions about the trace, addresses and execs on the
 * scripted driver, and a table of all wrappers. One thread.
 */
#ifndef TESTS_SHIM_SCENE_H
#define TESTS_SHIM_SCENE_H

#include <errno.h>

#include "tests/shim/check.h"
#include "tests/shim/script_driver.h"
#include "tests/shim/trace.h"

#define STREAM	((CUstream)0x5000)
#define MIB	(1ull << 20)
#define REFUSED CUDA_ERROR_INVALID_VALUE

typedef CUresult (*any_fn)(uint64_t, ...);

/* ---- what happened ---- */

static inline void silent_at(int line)
{
	struct trace_line t;

	while (trace_next(&t))
		CHECK(false, "line %d: not expected: %s %s 0x%lx", line, t.what, t.kind, t.address);
}
#define silent() silent_at(__LINE__)

/* The next line of the trace is this event. @return the generation. */
static inline uint64_t happened_at(int line, const char *what, const char *kind, uint64_t address,
				   uint64_t size_bytes)
{
	struct trace_line t = { .finding = false };
	bool any = trace_next(&t);

	CHECK(any && !t.finding && strcmp(t.what, what) == 0 && strcmp(t.kind, kind) == 0 &&
		      t.address == address && t.size_bytes == size_bytes,
	      "line %d: %s %s 0x%lx+%lu expected, got %s %s 0x%lx+%lu", line, what, kind, address,
	      size_bytes, any ? t.what : "nothing", t.kind, t.address, t.size_bytes);
	return t.serial;
}
#define happened(...) happened_at(__LINE__, __VA_ARGS__)

/* The next two lines are such events, in either order. */
static inline void happened_both_at(int line, const char *what, const char *kind,
				    const uint64_t addresses[2], uint64_t size_bytes)
{
	struct trace_line t[2] = { { .finding = false }, { .finding = false } };
	bool swapped;

	trace_next(&t[0]);
	trace_next(&t[1]);
	swapped = t[0].address != addresses[0];
	for (int i = 0; i < 2; i++)
		CHECK(strcmp(t[i].what, what) == 0 && strcmp(t[i].kind, kind) == 0 &&
			      t[i].address == addresses[swapped ? !i : i] &&
			      t[i].size_bytes == size_bytes,
		      "line %d: %s %s expected, got %s %s 0x%lx", line, what, kind, t[i].what,
		      t[i].kind, t[i].address);
}
#define happened_both(...) happened_both_at(__LINE__, __VA_ARGS__)

/* Did a finding of this kind and reason come, whatever else did? */
static inline bool found(const char *what, const char *reason)
{
	struct trace_line t;
	bool any = false;

	while (trace_next(&t))
		any |= t.finding && strcmp(t.what, what) == 0 && strcmp(t.kind, reason) == 0;
	return any;
}

/* ---- set-up ---- */

/* Below 4 GiB, so that the oldest ABIs can hold it; each is used once. */
static inline uint64_t fresh_address(void)
{
	static uint64_t last = 0x10000000;

	return last += 16 * MIB;
}

/* An exec whose one kernel node points at @address. */
static inline CUgraphExec exec_of(uint64_t address)
{
	static uint64_t last = 0x500000000000;
	CUgraphExec exec;
	uint64_t before = script.address;

	script.node_type = CU_GRAPH_NODE_TYPE_KERNEL;
	script.words[0] = address;
	script.words[1] = 0;
	script.address = last += 256;
	CHECK(cuGraphInstantiateWithFlags(&exec, SCRIPT_GRAPH, 0) == CUDA_SUCCESS, "instantiate");
	script.address = before;
	return exec;
}

static inline void launch(CUgraphExec exec)
{
	CHECK(cuGraphLaunch(exec, STREAM) == CUDA_SUCCESS, "launch");
}

static inline void drain(void)
{
	struct trace_line t;

	while (trace_next(&t))
		;
}

/* ---- every row ---- */

struct entry {
	const char *symbol;
	any_fn call;
	enum hook_id id;
	enum hook_family family;
};

static const struct entry entries[] = {
#define HOOK(base, suffix, since, stream, family, kind, doc, params, args) \
	{ #base #suffix #stream, (any_fn)(void *)base##suffix##stream,     \
	  HOOK_##base##suffix##stream, FAMILY_##family },
#include "shim/hooks.def"
#undef HOOK
};
#define ENTRIES (sizeof(entries) / sizeof(entries[0]))

#endif
