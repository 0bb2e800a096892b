/* SPDX-License-Identifier: Apache-2.0 */
/* The report's file under a host that does anything to it; and its name. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "capture.h"
#include "reports/name.h"
#include "reports/sink.h"

static struct sink sink;
static char directory[] = "/tmp/arena-sink-XXXXXX";
static char told[4096];
static unsigned told_times;

static void warn(const char *text)
{
	snprintf(told, sizeof(told), "%s", text);
	told_times++;
}

static void setup(void)
{
	cr_assert_not_null(mkdtemp(directory));
	cr_assert_eq(chdir(directory), 0);
}

static void teardown(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", directory);
	cr_expect_eq(system(command), 0);
}

TestSuite(sink, .init = setup, .fini = teardown, .timeout = 30);

static bool put(const char *line)
{
	return sink_write(&sink, line, strlen(line));
}

static const char *contents(const char *path)
{
	static char text[1 << 16];
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	return n < 0 ? "(no file)" : text;
}

Test(sink, opened_by_the_first_line)
{
	sink_init(&sink, "a.jsonl", warn);
	cr_expect_str_eq(contents("a.jsonl"), "(no file)");
	cr_expect(put("1\n"));
	cr_expect(put("2\n"));
	cr_expect_str_eq(contents("a.jsonl"), "1\n2\n");
	cr_expect_eq(sink.lines, 2);
	cr_expect_eq(told_times, 0);
}

Test(sink, the_descriptor_is_not_inherited)
{
	sink_init(&sink, "a.jsonl", warn);
	put("1\n");
	cr_expect(fcntl(sink.fd, F_GETFD) & FD_CLOEXEC);
}

Test(sink, standard_descriptors_are_left_free)
{
	int saved = dup(STDIN_FILENO);

	close(STDIN_FILENO);
	sink_init(&sink, "a.jsonl", warn);
	cr_expect(put("1\n"));
	cr_expect_gt(sink.fd, STDERR_FILENO);
	cr_expect_eq(fcntl(STDIN_FILENO, F_GETFD), -1);
	cr_expect(fcntl(sink.fd, F_GETFD) & FD_CLOEXEC);
	cr_expect_str_eq(contents("a.jsonl"), "1\n");
	dup2(saved, STDIN_FILENO);
}

Test(sink, a_name_stays_where_it_was_given)
{
	sink_init(&sink, "a.jsonl", warn);
	cr_assert_eq(chdir("/"), 0);
	cr_expect(put("1\n"));
	cr_assert_eq(chdir(directory), 0);
	cr_expect_str_eq(contents("a.jsonl"), "1\n");
	cr_expect_str_eq(sink.shown, "a.jsonl");
}

Test(sink, appends_and_mends_half_a_line)
{
	FILE *old = fopen("a.jsonl", "w");

	fputs("whole\nhal", old);
	fclose(old);
	sink_init(&sink, "a.jsonl", warn);
	cr_expect(put("1\n"));
	sink_close(&sink);
	cr_expect(put("2\n"));
	cr_expect_str_eq(contents("a.jsonl"), "whole\nhal\n1\n2\n");
}

Test(sink, no_name_is_no_file_and_no_complaint)
{
	sink_init(&sink, "", warn);
	cr_expect_not(put("1\n"));
	cr_expect_eq(sink.lost, 0);
	cr_expect_eq(told_times, 0);
}

Test(sink, closed_by_the_host_and_its_number_reused)
{
	int other;

	sink_init(&sink, "a.jsonl", warn);
	put("1\n");
	close(sink.fd);
	other = open("host", O_WRONLY | O_CREAT, 0600);
	cr_assert_eq(dup2(other, sink.fd), sink.fd);
	cr_expect(put("2\n"));
	cr_expect_str_eq(contents("host"), "", "the host's file is not ours to write");
	cr_expect_str_eq(contents("a.jsonl"), "1\n2\n");
	cr_expect_eq(told_times, 0);
}

Test(sink, closing_leaves_a_reused_number_alone)
{
	int number;

	sink_init(&sink, "a.jsonl", warn);
	put("1\n");
	number = sink.fd;
	cr_assert_eq(dup2(STDERR_FILENO, number), number);
	sink_close(&sink);
	cr_expect_neq(fcntl(number, F_GETFD), -1);
}

static void expect_complaint(const char *name, const char *why)
{
	told_times = 0;
	sink_init(&sink, name, warn);
	errno = ECHILD;
	cr_expect_not(put("1\n"));
	cr_expect_not(put("2\n"));
	cr_expect_eq(errno, ECHILD);
	cr_expect_eq(told_times, 1, "once for %s", name);
	cr_expect_eq(sink.lost, 2);
	cr_expect(strstr(told, "ARENA_REPORT"), "%s", told);
	cr_expect(strstr(told, name), "%s", told);
	cr_expect(strstr(told, why), "%s", told);
}

Test(sink, places_that_cannot_be_written)
{
	cr_assert_eq(mkfifo("fifo", 0600), 0);
	expect_complaint("/no/such/directory/a.jsonl", "No such file or directory");
	expect_complaint("/tmp", "Is a directory");
	expect_complaint("/dev/full", "No space left on device");
	expect_complaint("fifo", "No such device or address");
}

Test(sink, a_place_that_appears_later)
{
	sink_init(&sink, "later/a.jsonl", warn);
	cr_expect_not(put("1\n"));
	cr_assert_eq(mkdir("later", 0700), 0);
	cr_expect(put("2\n"));
	cr_expect_str_eq(contents("later/a.jsonl"), "2\n");
	cr_expect_eq(sink.lost, 1);
}

Test(sink, a_pipe_that_nobody_reads_is_given_up)
{
	static char line[1 << 20];
	int reader;

	memset(line, 'a', sizeof(line));
	cr_assert_eq(mkfifo("fifo", 0600), 0);
	reader = open("fifo", O_RDONLY | O_NONBLOCK);
	sink_init(&sink, "fifo", warn);
	cr_expect_not(sink_write(&sink, line, sizeof(line)));
	cr_expect(sink.torn, "half a line is in the pipe");
	close(reader);
	cr_expect_not(put("2\n"), "no reader, and no SIGPIPE");
	cr_expect_eq(sink.lost, 2);
	cr_expect_eq(told_times, 1);
}

/* Waits with a limit, counted: the program's poll() comes before that of libc. */
static unsigned waits;

int poll(struct pollfd *fds, nfds_t count, int limit_ms)
{
	waits += limit_ms > 0;
	return (int)syscall(SYS_poll, fds, count, limit_ms);
}

Test(sink, a_reader_who_does_not_read_is_waited_for_once)
{
	static char line[1 << 16];
	unsigned before;
	int reader;

	memset(line, 'a', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\n';
	cr_assert_eq(mkfifo("fifo", 0600), 0);
	reader = open("fifo", O_RDONLY | O_NONBLOCK);
	sink_init(&sink, "fifo", warn);
	cr_expect(sink_write(&sink, line, sizeof(line)), "the pipe takes one");
	before = waits;
	for (int i = 0; i < 100; i++)
		cr_expect_not(put("2\n"));
	cr_expect_eq(sink.lost, 100);
	cr_expect_eq(waits, before + 1, "not once for each of 100 lines");
	cr_assert_eq(read(reader, line, sizeof(line)), sizeof(line));
	cr_expect(put("3\n"), "it reads again");
	cr_assert_eq(read(reader, line, sizeof(line)), 2);
	cr_expect_eq(told_times, 1);
	close(reader);
}

/* ---- names ---- */

static const struct identity someone = { .host = "node7", .rank = 3 };

static const char *expand(const char *pattern, char *unknown)
{
	static char name[256];

	cr_assert(name_expand(pattern, &someone, name, sizeof(name), unknown));
	return name;
}

Test(name, placeholders)
{
	char want[64], unknown;

	snprintf(want, sizeof(want), "arena-node7-3-%d.jsonl", (int)getpid());
	cr_expect_str_eq(expand("arena-%h-%r-%p.jsonl", &unknown), want);
	cr_expect_eq(unknown, 0);
	cr_expect_str_eq(expand("%%h%%", &unknown), "%h%");
	cr_expect_eq(unknown, 0);
	cr_expect_str_eq(expand("", &unknown), "");
}

Test(name, unknown_letters_stay)
{
	char unknown;

	cr_expect_str_eq(expand("%x-%r-%y", &unknown), "%x-3-%y");
	cr_expect_eq(unknown, 'x');
	cr_expect_str_eq(expand("100%", &unknown), "100%");
	cr_expect_eq(unknown, '%', "a lone one at the end");
}

Test(name, too_long_is_refused)
{
	char name[8], unknown;

	cr_expect(name_expand("1234567", &someone, name, sizeof(name), &unknown));
	cr_expect_not(name_expand("12345678", &someone, name, sizeof(name), &unknown));
	cr_expect_not(name_expand("123%h", &someone, name, sizeof(name), &unknown));
}

static unsigned rank_of(const char *name, const char *value)
{
	struct identity id;

	setenv(name, value, 1);
	identity_read(&id);
	cr_expect_gt(strlen(id.host), 0);
	return id.rank;
}

Test(name, ranks_of_the_launchers_in_order)
{
	struct identity id;

	unsetenv("RANK");
	unsetenv("LOCAL_RANK");
	unsetenv("OMPI_COMM_WORLD_RANK");
	unsetenv("SLURM_PROCID");
	identity_read(&id);
	cr_expect_eq(id.rank, 0);
	cr_expect_eq(rank_of("SLURM_PROCID", "4"), 4);
	cr_expect_eq(rank_of("OMPI_COMM_WORLD_RANK", "5"), 5);
	cr_expect_eq(rank_of("LOCAL_RANK", "6"), 6);
	cr_expect_eq(rank_of("RANK", "70"), 70);
	cr_expect_eq(rank_of("RANK", "../../etc"), 6, "no path comes in through a rank");
	cr_expect_eq(rank_of("RANK", ""), 6);
	cr_expect_eq(rank_of("RANK", "-1"), 6);
	cr_expect_eq(rank_of("RANK", "99999999999999999999"), 6);
}
