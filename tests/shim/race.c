/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that look names up at the very first moment all get the right answers: the tables behind
 * the gates are filled without a lock. Each round is a process of its own, as there is only one
 * first moment in each.
 *
 *	race [rounds]
 */
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS	8

static void *driver;
static pthread_barrier_t gate;
static void *answers[THREADS][2][ROWS];

static void *look_up(void *arg)
{
	size_t me = (size_t)arg;
	gpa_v2_fn gpa;

	pthread_barrier_wait(&gate);
	gpa = (gpa_v2_fn)dlsym(driver, "cuGetProcAddress_v2");
	/* Each begins somewhere else. */
	for (size_t n = 0, i = me * ROWS / THREADS; n < ROWS; n++, i = (i + 1) % ROWS) {
		gpa(rows[i].base, &answers[me][0][i], (int)rows[i].since,
		    rows[i].per_thread ? FLAGS_PER_THREAD : FLAGS_LEGACY, NULL);
		answers[me][1][i] = dlsym(driver, rows[i].symbol);
	}
	return NULL;
}

static int round_of_threads(void)
{
	pthread_t threads[THREADS];

	driver = dlopen("libcuda.so.1", RTLD_NOW);
	pthread_barrier_init(&gate, NULL, THREADS);
	for (size_t i = 0; i < THREADS; i++)
		if (!driver || pthread_create(&threads[i], NULL, look_up, (void *)i) != 0)
			return EXIT_FAILURE;
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < ROWS; i++)
		for (size_t t = 0; t < THREADS; t++)
			for (int route = 0; route < 2; route++)
				CHECK(answers[t][route][i] == wrapper_of(rows[i].symbol),
				      "%s by %s: %s", rows[i].symbol,
				      route ? "dlsym" : "cuGetProcAddress",
				      object_of(answers[t][route][i]));
	return check_result();
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 40, status;

	for (int i = 0; i < rounds; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(round_of_threads());
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
			fprintf(stderr, "round %d failed\n", i);
			return EXIT_FAILURE;
		}
	}
	return EXIT_SUCCESS;
}
