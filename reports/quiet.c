/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write() for a library that lives in somebody else's process. A reader that went away would
 * raise SIGPIPE, a file size limit SIGXFSZ, and both end a process that did not ask for them; a
 * full pipe would stop it. Any thread; async-signal-safe; no memory, no locks.
 */
#include "reports/quiet.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

/* Signals that write() sends to the calling thread. */
static sigset_t write_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	sigaddset(&set, SIGXFSZ);
	return set;
}

/* Take back the signal that our write raised; one that was pending before stays. */
static void take_back(int sig, const sigset_t *pending_before)
{
	sigset_t one;

	if (sigismember(pending_before, sig))
		return;
	sigemptyset(&one);
	sigaddset(&one, sig);
	while (sigtimedwait(&one, NULL, &(struct timespec){ 0 }) < 0 && errno == EINTR)
		continue;
}

/* @return 0 when the descriptor takes bytes, else why not. Closed and broken ones say "takes". */
static int wait_writable(int fd, int wait_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int n;

	do {
		n = poll(&p, 1, wait_ms);
	} while (n < 0 && errno == EINTR);
	return n == 0 ? EAGAIN : 0;
}

static size_t write_all(int fd, const char *bytes, size_t count, int *error)
{
	size_t done = 0;

	while (done < count) {
		ssize_t n;

		*error = wait_writable(fd, QUIET_WAIT_MS);
		if (*error)
			break;
		n = write(fd, bytes + done, count - done);
		if (n > 0) {
			done += (size_t)n;
		} else if (n == 0) {
			*error = EIO;
			break;
		} else if (errno != EINTR && errno != EAGAIN) {
			*error = errno;
			break;
		}
	}
	return done;
}

bool quiet_writable(int fd)
{
	int saved = errno, error = wait_writable(fd, 0);

	errno = saved;
	return error == 0;
}

size_t quiet_write(int fd, const void *bytes, size_t count, int *error)
{
	sigset_t ours = write_signals(), before, pending;
	int saved = errno;
	size_t done;

	*error = 0;
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &ours, &before);
	done = write_all(fd, bytes, count, error);
	if (*error == EPIPE)
		take_back(SIGPIPE, &pending);
	if (*error == EFBIG)
		take_back(SIGXFSZ, &pending);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = saved;
	return done;
}
