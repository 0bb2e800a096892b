/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork, exec, wait. All signals that matter are blocked and taken one by one (sigtimedwait), so
 * there is no handler and no race. The program stays in our process group: what the terminal sends
 * (Ctrl-C), it gets from the kernel, and only what a process sent to us is passed on. One thread.
 */
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int passed_on[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2 };
#define PASSED_ON (sizeof(passed_on) / sizeof(passed_on[0]))

static _Noreturn void start(const struct launch *l, const sigset_t *mask, int report_to)
{
	int error;

	for (const struct launch_variable *v = l->environment; v && v->name; v++)
		setenv(v->name, v->value, 1);
	sigprocmask(SIG_SETMASK, mask, NULL);
	execvp(l->argv[0], l->argv);
	error = errno;
	/* The other end is closed by exec; who reads nothing knows that it worked. */
	if (write(report_to, &error, sizeof(error)) != sizeof(error))
		_exit(LAUNCH_NOT_FOUND);
	_exit(error == ENOENT ? LAUNCH_NOT_FOUND : LAUNCH_NOT_EXEC);
}

/* @return true when the child has ended. */
static bool has_ended(pid_t child, int *status)
{
	pid_t pid;

	do
		pid = waitpid(child, status, WNOHANG);
	while (pid < 0 && errno == EINTR);
	return pid == child || (pid < 0 && errno == ECHILD);
}

static int wait_for(const struct launch *l, pid_t child, const sigset_t *set)
{
	struct timespec tick = { l->tick_ms / 1000, (long)(l->tick_ms % 1000) * 1000000 };
	int status = 0;

	while (!has_ended(child, &status)) {
		siginfo_t info = { 0 };
		int signal;

		if (l->tick)
			l->tick(l->to, child);
		signal = l->tick ? sigtimedwait(set, &info, &tick) : sigwaitinfo(set, &info);

		if (signal > 0 && signal != SIGCHLD && info.si_code <= 0)
			kill(child, signal);
	}
	return status;
}

int launch(const struct launch *l, int *error)
{
	sigset_t set, before;
	int ends[2], status;
	pid_t child;

	*error = 0;
	if (pipe2(ends, O_CLOEXEC) != 0) {
		*error = errno;
		return LAUNCH_NOT_EXEC;
	}
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (size_t i = 0; i < PASSED_ON; i++)
		sigaddset(&set, passed_on[i]);
	/* Before the fork: a signal that comes in between is passed on, too. */
	sigprocmask(SIG_BLOCK, &set, &before);
	child = fork();
	if (child == 0)
		start(l, &before, ends[1]);
	close(ends[1]);
	if (child < 0 || read(ends[0], error, sizeof(*error)) < 0)
		*error = errno;
	close(ends[0]);
	status = child < 0 ? LAUNCH_NOT_EXEC << 8 : wait_for(l, child, &set);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return WIFSIGNALED(status) ? LAUNCH_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}
