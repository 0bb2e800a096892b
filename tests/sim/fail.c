/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scripted faults, call counters, trace. Any thread, without the lock.
 *
 *   SIM_FAIL=cuMemCreate:3,cuGraphInstantiate:1=2
 *        the nth call returns the code (none given: 2, out of memory) and does nothing; a base
 *        name means all its ABIs
 *   SIM_COUNTS=FILE
 *        appended at exit: "symbol calls" for each row, and "no-behaviour" behind it for a row
 *        that only answers CUDA_ERROR_NOT_SUPPORTED
 *   SIM_TRACE=1
 *        each call and its result on stderr
 */
#include "arena/atomics.h"
#include "tests/sim/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fault {
	char name[80];
	uint64_t nth;
	int code;
	counter_t calls;
};

static struct fault faults[64];
static size_t n_faults;
static counter_t calls[SIM_ROWS];
static bool trace;

static bool known(const char *name)
{
	for (int r = 0; r < SIM_ROWS; r++)
		if (!strcmp(name, sim_rows[r].symbol) || !strcmp(name, sim_rows[r].base))
			return true;
	return false;
}

/* A script that says nothing would make a test pass for the wrong reason: refuse it. */
static void bad_script(const char *item)
{
	fprintf(stderr, "sim: SIM_FAIL: \"%s\" is not NAME:NTH or NAME:NTH=CODE\n", item);
	_exit(2);
}

static void parse_faults(const char *script)
{
	char *copy = strdup(script), *save = NULL;

	for (char *item = strtok_r(copy, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		struct fault *f = &faults[n_faults];

		f->code = CUDA_ERROR_OUT_OF_MEMORY;
		if (n_faults == ARRAY_SIZE(faults) ||
		    sscanf(item, " %79[A-Za-z0-9_]:%lu=%d", f->name, &f->nth, &f->code) < 2 ||
		    !f->nth || !known(f->name))
			bad_script(item);
		n_faults++;
	}
	free(copy);
}

static __attribute__((constructor)) void fail_start(void)
{
	const char *script = getenv("SIM_FAIL");

	trace = getenv("SIM_TRACE") != NULL;
	if (script)
		parse_faults(script);
}

static __attribute__((destructor)) void fail_stop(void)
{
	const char *path = getenv("SIM_COUNTS");
	FILE *f = path ? fopen(path, "a") : NULL;

	if (!f)
		return;
	for (int r = 0; r < SIM_ROWS; r++)
		if (sim_rows[r].entry)
			fprintf(f, "%s %lu%s\n", sim_rows[r].symbol, load_relaxed(&calls[r]),
				sim_rows[r].body ? "" : " no-behaviour");
	fclose(f);
}

CUresult fail_check(enum sim_row row)
{
	CUresult rc = CUDA_SUCCESS;

	counter_bump(&calls[row]);
	for (size_t i = 0; i < n_faults; i++) {
		struct fault *f = &faults[i];

		if (strcmp(f->name, sim_rows[row].symbol) && strcmp(f->name, sim_rows[row].base))
			continue;
		if (add_relaxed(&f->calls, 1) + 1 == f->nth)
			rc = f->code;
	}
	return rc;
}

void trace_call(enum sim_row row, CUresult rc)
{
	int saved = errno;

	if (trace)
		fprintf(stderr, "sim: %s = %d\n", sim_rows[row].symbol, rc);
	errno = saved;
}
