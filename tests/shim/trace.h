/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test's view of its own report: with ARENA_TRACE=on the shim appends a line for each thing it
 * saw, before the call returns; the test reads on from where it stopped. One thread.
 */
#ifndef TESTS_TRACE_H
#define TESTS_TRACE_H

#include <stdbool.h>
#include <stdint.h>

struct trace_line {
	bool finding;  /* else an event */
	char what[32]; /* event, or kind of finding */
	char kind[32]; /* of the range of an event; reason of a finding's first ref */
	uint64_t address, size_bytes, serial;
};

/* @brief Switch the trace on, into a file of our own; before the first CUDA call. */
void trace_start(void);
/* @brief The next event or finding. @return false when nothing more happened. */
bool trace_next(struct trace_line *out);

#endif
