/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: form, limit, levels, and what the host must not notice. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "capture.h"
#include "reports/quiet.h"
#include "shim/log.h"
#include "shim/options.h"

static struct capture said;

static void say(int times)
{
	for (int i = 0; i < times; i++)
		log_warn("number %d", i);
}

Test(log, one_line_with_pid_and_tid)
{
	char want[128];

	snprintf(want, sizeof(want), "arena[%d/%ld]: warn: 3 things, ARENA_X=4: raise it\n",
		 (int)getpid(), syscall(SYS_gettid));
	capture_begin(&said, STDERR_FILENO);
	log_warn("%d things, ARENA_X=%d: raise it", 3, 4);
	cr_expect_str_eq(capture_end(&said), want);
}

Test(log, stops_after_the_limit_and_says_so)
{
	capture_begin(&said, STDERR_FILENO);
	say(LOG_LIMIT + 5);
	log_warn("another site");
	capture_end(&said);
	cr_expect_eq(count_lines(said.text), LOG_LIMIT + 1, "%s", said.text);
	cr_expect(strstr(said.text, "number 7 (further ones are not shown)\n"), "%s", said.text);
	cr_expect_not(strstr(said.text, "number 8"));
	cr_expect(strstr(said.text, "another site\n"));
}

Test(log, below_the_level_is_nothing)
{
	capture_begin(&said, STDERR_FILENO);
	log_info("not by default");
	log_error("always");
	capture_end(&said);
	cr_expect_eq(count_lines(said.text), 1, "%s", said.text);
	cr_expect(strstr(said.text, "error: always\n"));
}

Test(log, never_stdout)
{
	struct capture out;

	capture_begin(&said, STDERR_FILENO);
	capture_begin(&out, STDOUT_FILENO);
	log_error("x");
	capture_end(&out);
	capture_end(&said);
	cr_expect_str_eq(out.text, "");
	cr_expect_eq(count_lines(said.text), 1);
}

Test(log, too_long_is_cut_and_control_characters_are_blanked)
{
	static char text[5000];

	memset(text, 'a', sizeof(text) - 1);
	text[3] = '\n';
	text[4] = '\033';
	capture_begin(&said, STDERR_FILENO);
	log_warn("%s", text);
	capture_end(&said);
	cr_expect_eq(count_lines(said.text), 1);
	cr_expect_lt(strlen(said.text), 2200);
	cr_expect(strstr(said.text, "aaa??aaa"));
	cr_expect(strstr(said.text, "aaa...\n"));
}

Test(log, errno_is_kept_and_can_be_printed)
{
	capture_begin(&said, STDERR_FILENO);
	errno = ENOSPC;
	log_warn("%m");
	cr_expect_eq(errno, ENOSPC);
	cr_expect(strstr(capture_end(&said), "No space left on device"));
}

Test(log, closed_stderr_is_no_harm)
{
	int saved = dup(STDERR_FILENO);

	close(STDERR_FILENO);
	errno = 0;
	log_warn("lost");
	cr_expect_eq(errno, 0);
	dup2(saved, STDERR_FILENO);
}

Test(log, a_reader_that_went_away_raises_no_signal)
{
	int ends[2], saved = dup(STDERR_FILENO);
	sigset_t pending;

	cr_assert_eq(pipe(ends), 0);
	close(ends[0]);
	dup2(ends[1], STDERR_FILENO);
	signal(SIGPIPE, SIG_DFL);
	log_warn("lost");
	dup2(saved, STDERR_FILENO);
	sigpending(&pending);
	cr_expect_not(sigismember(&pending, SIGPIPE));
}

Test(quiet, a_pending_signal_of_the_host_stays)
{
	int ends[2], error;
	sigset_t set;

	cr_assert_eq(pipe(ends), 0);
	close(ends[0]);
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	pthread_kill(pthread_self(), SIGPIPE);
	cr_expect_eq(quiet_write(ends[1], "x", 1, &error), 0);
	cr_expect_eq(error, EPIPE);
	sigpending(&set);
	cr_expect(sigismember(&set, SIGPIPE));
}

Test(quiet, a_full_pipe_does_not_stop_the_host, .timeout = 10)
{
	static char block[1 << 20];
	int ends[2], error;

	cr_assert_eq(pipe(ends), 0);
	fcntl(ends[1], F_SETFL, O_NONBLOCK);
	cr_expect_lt(quiet_write(ends[1], block, sizeof(block), &error), sizeof(block));
	cr_expect_eq(error, EAGAIN);
}

Test(quiet, the_file_size_limit_raises_no_signal)
{
	struct rlimit limit = { 4, 4 };
	int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600), error;

	cr_assert_geq(fd, 0);
	signal(SIGXFSZ, SIG_DFL);
	setrlimit(RLIMIT_FSIZE, &limit);
	cr_expect_eq(quiet_write(fd, "12345678", 8, &error), 4);
	cr_expect_eq(error, EFBIG);
}

/* A descriptor that is not there, a device that is full: an error, nothing else. */
Test(quiet, errors_are_told)
{
	int full = open("/dev/full", O_WRONLY), error;

	cr_expect_eq(quiet_write(9999, "x", 1, &error), 0);
	cr_expect_eq(error, EBADF);
	cr_expect_eq(quiet_write(full, "x", 1, &error), 0);
	cr_expect_eq(error, ENOSPC);
	cr_expect_eq(quiet_write(full, "x", 0, &error), 0);
	cr_expect_eq(error, 0);
}
