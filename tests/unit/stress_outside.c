/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks, notes and reports by many threads at once, for TSan: every thread takes stacks that are
 * new and stacks that are known, notes what was not seen, and reports findings and events.
 * A plain program. Argument: rounds of each thread.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "called.h"
#include "report_fixture.h"
#include "shim/coverage.h"
#include "shim/stacks.h"

#define THREADS 4

static unsigned rounds = 100;

/* Each number is a call path of its own. */
static CALLED uint32_t path(unsigned bits, unsigned left)
{
	uint32_t id;

	if (left == 0)
		id = stack_here(bits % 2 ? STACK_SEGMENT : STACK_FREQUENT);
	else if (bits >> left & 1)
		id = path(bits, left - 1) ^ (left > 1000);
	else
		id = path(bits, left - 1);
	__asm__ volatile("" : "+r"(id));
	return id;
}

static void *run(void *arg)
{
	static const char *const names[] = { "cuOne", "cuTwo", "cuThree" };
	unsigned number = (unsigned)(uintptr_t)arg;

	for (unsigned i = 0; i < rounds; i++) {
		struct stack_frame frames[STACK_DEPTH_MAX];
		struct finding_ref ref = fixture_ref();
		struct finding f = fixture_finding(number * rounds + i, &ref, 1);
		struct event e = { .kind = EVENT_ALLOC, .what = "device" };
		uint32_t id = path(i, 10);
		size_t count = stack_frames(id, frames, STACK_DEPTH_MAX);

		if (id == 0 || count == 0 || !stack_module(frames[0].module)) {
			fprintf(stderr, "stress_outside: stack %u has %zu frames\n", id, count);
			exit(1);
		}
		coverage_note(COVERAGE_UNHOOKED_VARIANT, names[i % 3]);
		f.stack = ref.old.stack_open = id;
		report_finding(&f);
		report_event(&e);
	}
	return NULL;
}

static unsigned count_noted(void)
{
	enum coverage_id id;
	unsigned n = 0;

	while (coverage_noted(n, &id))
		n++;
	return n;
}

int main(int argc, char **argv)
{
	char path_of_report[] = "/tmp/arena-stress-XXXXXX";
	struct report_source source = fixture_source(path_of_report);
	pthread_t threads[THREADS];

	close(mkstemp(path_of_report));
	source.stack_frames = stack_frames;
	source.stack_module = stack_module;
	rounds = argc > 1 ? (unsigned)atoi(argv[1]) : rounds;
	report_init(&source);
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, run, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	report_exit();
	unlink(path_of_report);
	if (count_noted() != 3 || load_relaxed(&coverage[COVERAGE_UNHOOKED_VARIANT]) != THREADS * rounds) {
		fprintf(stderr, "stress_outside: %u names noted\n", count_noted());
		return 1;
	}
	return report_verdict() == VERDICT_FAIL ? 0 : 1;
}
