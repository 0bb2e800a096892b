/* SPDX-License-Identifier: Apache-2.0 */
/* The report as a whole: order of lines, what is in them, verdicts, limits, fork, threads. */
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "capture.h"
#include "report_fixture.h"

static char path[] = "/tmp/arena-report-XXXXXX";
static struct report_source source;

static void setup(void)
{
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	close(fd);
	unlink(path);
	source = fixture_source(path);
	report_init(&source);
}

static void teardown(void)
{
	unlink(path);
}

TestSuite(report, .init = setup, .fini = teardown, .timeout = 60);

/* All lines of @file as an array; every line must be whole. */
static json_t *read_lines(const char *file)
{
	json_t *lines = json_array();
	char *line = NULL;
	size_t cap = 0;
	FILE *in = fopen(file, "r");

	while (in && getline(&line, &cap, in) > 0) {
		json_t *o = json_loads(line, 0, NULL);

		cr_assert_not_null(o, "not JSON: %.200s", line);
		cr_expect_eq(json_integer_value(json_object_get(o, "schema")), 1);
		json_array_append_new(lines, o);
	}
	free(line);
	if (in)
		fclose(in);
	return lines;
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "(none)";
}

static json_int_t number_of(const json_t *o, const char *key)
{
	const json_t *n = json_object_get(o, key);

	return json_is_integer(n) ? json_integer_value(n) : -1;
}

static size_t count_type(const json_t *lines, const char *type)
{
	size_t i, n = 0;
	json_t *o;

	json_array_foreach(lines, i, o)
		n += strcmp(text_of(o, "type"), type) == 0;
	return n;
}

static json_t *last_line(const json_t *lines)
{
	return json_array_get(lines, json_array_size(lines) - 1);
}

static void emit(uint64_t key)
{
	struct finding_ref ref = fixture_ref();
	struct finding f = fixture_finding(key, &ref, 1);

	report_finding(&f);
}

Test(report, nothing_to_say_writes_nothing)
{
	cr_expect_eq(access(path, F_OK), -1);
	cr_expect_eq(fixture_said_times, 0);
}

Test(report, a_healthy_process_has_start_and_exit)
{
	json_auto_t *lines = NULL;
	json_t *start, *last, *cupti;

	report_exit();
	report_exit();
	lines = read_lines(path);
	cr_assert_eq(json_array_size(lines), 2);
	start = json_array_get(lines, 0);
	cr_expect_str_eq(text_of(start, "type"), "start");
	cr_expect_eq(number_of(start, "pid"), getpid());
	cr_expect_eq(number_of(start, "driver_version"), 13000);
	cr_expect_str_eq(text_of(start, "version"), "1.2.3");
	cr_expect_str_eq(text_of(json_object_get(start, "options"), "ARENA_GATE"), "warn");
	cr_expect(strstr(text_of(start, "exe"), "test_report"));
	last = last_line(lines);
	cr_expect_str_eq(text_of(last, "type"), "exit");
	cr_expect_str_eq(text_of(last, "verdict"), "pass");
	cr_expect_str_eq(text_of(last, "counts_as"), "pass");
	cr_expect_eq(number_of(json_object_get(last, "coverage"), "host-node"), 5);
	cr_expect_eq(json_array_size(json_object_get(last, "entries")), 2);
	cupti = json_object_get(last, "cupti");
	cr_expect_eq(number_of(cupti, "windows"), 2);
	cr_expect_eq(number_of(json_object_get(cupti, "events"), "node-created"), 513);
	cr_expect_eq(number_of(json_object_get(cupti, "cross"), "compared"), 0);
	cr_expect_eq(json_array_size(json_object_get(last, "unproven")), 0);
	cr_expect_eq(fixture_said_times, 0, "%s", fixture_said);
}

Test(report, a_finding_is_written_at_once_after_what_it_refers_to)
{
	static const char *const order[] = { "start",	"module", "module", "module", "module",
					     "stack",	"stack",  "stack",  "stack",  "finding" };
	json_auto_t *lines = NULL;
	json_t *ref;

	emit(1);
	lines = read_lines(path);
	cr_assert_eq(json_array_size(lines), sizeof(order) / sizeof(order[0]));
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		cr_expect_str_eq(text_of(json_array_get(lines, i), "type"), order[i]);
	ref = json_array_get(json_object_get(last_line(lines), "refs"), 0);
	cr_expect_str_eq(text_of(last_line(lines), "kind"), "stale-launch");
	cr_expect_str_eq(text_of(last_line(lines), "id"), "0xabc");
	cr_expect_str_eq(text_of(ref, "kernel"), "_Z4gemmPf");
	cr_expect_str_eq(text_of(ref, "node_kind"), "kernel");
	cr_expect_str_eq(text_of(ref, "reason"), "generation");
	cr_expect_str_eq(text_of(ref, "confidence"), "struct");
	cr_expect_str_eq(text_of(ref, "value"), "0x7f0000000100");
	cr_expect_eq(number_of(ref, "param"), 2);
	cr_expect_eq(number_of(ref, "offset"), 16);
	cr_expect_str_eq(text_of(json_object_get(ref, "old"), "base"), "0x7f0000000000");
	cr_expect_eq(number_of(json_object_get(ref, "old"), "stack_close"), 3);
	cr_expect_eq(number_of(json_object_get(ref, "now"), "generation"), 12);
	cr_expect_str_eq(text_of(json_object_get(ref, "now"), "kind"), "pool");
}

Test(report, nothing_there_now_is_null)
{
	struct finding_ref ref = fixture_ref();
	struct finding f = fixture_finding(1, &ref, 1);
	json_auto_t *lines = NULL;
	json_t *o;

	ref.now = (struct finding_range){ .base = 0 };
	ref.name = 0;
	report_finding(&f);
	lines = read_lines(path);
	o = json_array_get(json_object_get(last_line(lines), "refs"), 0);
	cr_expect(json_is_null(json_object_get(o, "now")));
	cr_expect(json_is_null(json_object_get(o, "kernel")));
}

Test(report, the_same_key_once_stacks_once)
{
	json_auto_t *lines = NULL;

	emit(1);
	emit(1);
	emit(0);
	emit(0);
	report_exit();
	lines = read_lines(path);
	cr_expect_eq(count_type(lines, "finding"), 2);
	cr_expect_eq(count_type(lines, "stack"), 4);
	cr_expect_eq(count_type(lines, "module"), 4);
	cr_expect_eq(number_of(last_line(lines), "findings_repeated"), 2);
	cr_expect_eq(number_of(json_object_get(last_line(lines), "findings"), "error"), 2);
}

Test(report, a_flood_is_bounded_and_counted)
{
	json_auto_t *lines = NULL;

	for (uint64_t key = 1; key <= REPORT_FINDINGS_MAX + 500; key++)
		emit(key);
	report_exit();
	lines = read_lines(path);
	cr_expect_eq(count_type(lines, "finding"), REPORT_FINDINGS_MAX);
	cr_expect_eq(number_of(last_line(lines), "findings_left_out"), 500);
	cr_expect_eq(number_of(json_object_get(last_line(lines), "findings_by_kind"), "stale-launch"),
		     REPORT_FINDINGS_MAX + 500);
}

Test(report, an_error_is_fail_and_is_said)
{
	struct finding freed = { .kind = FINDING_FREED_WHILE_REFERENCED, .key = 9 };
	char want[512];

	emit(1);
	emit(1);
	report_finding(&freed);
	cr_expect_eq(report_verdict(), VERDICT_FAIL);
	report_exit();
	snprintf(want, sizeof(want), "verdict fail: 1 freed-while-referenced, 1 stale-launch; see %s",
		 path);
	cr_expect_str_eq(fixture_said, want);
}

Test(report, a_warning_alone_passes_and_is_said)
{
	struct finding freed = { .kind = FINDING_FREED_WHILE_REFERENCED, .key = 9 };

	report_finding(&freed);
	cr_expect_eq(report_verdict(), VERDICT_PASS);
	report_exit();
	cr_expect(strstr(fixture_said, "verdict pass: 1 freed-while-referenced; see"), "%s",
		  fixture_said);
}

Test(report, information_is_not_said)
{
	struct finding info = { .kind = FINDING_CONTENT_UNDEFINED, .key = 9 };

	report_finding(&info);
	report_exit();
	cr_expect_eq(fixture_said_times, 0);
}

Test(report, what_was_not_seen_is_unproven)
{
	json_auto_t *lines = NULL;
	json_t *why;

	fixture_gap = 3;
	cr_expect_eq(report_verdict(), VERDICT_UNPROVEN);
	report_unproven("the shim broke");
	report_unproven("later");
	report_exit();
	lines = read_lines(path);
	cr_expect_str_eq(text_of(last_line(lines), "verdict"), "unproven");
	cr_expect_str_eq(text_of(last_line(lines), "counts_as"), "pass");
	why = json_object_get(last_line(lines), "unproven");
	cr_assert_eq(json_array_size(why), 2);
	cr_expect_str_eq(json_string_value(json_array_get(why, 0)), "the shim broke");
	cr_expect_str_eq(json_string_value(json_array_get(why, 1)), "3 variants that passed through");
	cr_expect(strstr(fixture_said, "verdict unproven: the shim broke; see"), "%s", fixture_said);
	emit(1);
	cr_expect_eq(report_verdict(), VERDICT_FAIL, "fail is stronger");
}

Test(report, unproven_counts_as_what_was_asked_for)
{
	json_auto_t *lines = NULL;

	source.unproven_fails = true;
	fixture_gap = 1;
	report_exit();
	lines = read_lines(path);
	cr_expect_str_eq(text_of(last_line(lines), "verdict"), "unproven");
	cr_expect_str_eq(text_of(last_line(lines), "counts_as"), "fail");
}

Test(report, a_count_that_is_unproven_is_said)
{
	fixture_gap = 3;
	report_exit();
	cr_expect(strstr(fixture_said, "verdict unproven: 3 variants that passed through; see /"), "%s",
		  fixture_said);
}

Test(report, quiet_says_nothing)
{
	source.quiet = true;
	emit(1);
	report_exit();
	cr_expect_eq(fixture_said_times, 0);
}

Test(report, lost_lines_are_counted_in_the_exit_line)
{
	char moved[sizeof(path) + 8];
	json_auto_t *lines = NULL;

	/* A place that cannot be written first, and can be at the end. */
	snprintf(moved, sizeof(moved), "%s/a", path);
	source.path = moved;
	report_init(&source);
	emit(1);
	cr_expect(strstr(fixture_said, "cannot write"), "%s", fixture_said);
	rmdir(path);
	cr_assert_eq(system("true"), 0);
	cr_assert_eq(mkdir(path, 0700), 0);
	report_exit();
	lines = read_lines(moved);
	cr_assert_eq(json_array_size(lines), 1);
	cr_expect_geq(number_of(last_line(lines), "lines_lost"), 10);
	cr_expect_str_eq(text_of(last_line(lines), "verdict"), "fail");
	unlink(moved);
	rmdir(path);
}

Test(report, no_file_still_has_a_verdict)
{
	source.path = "";
	report_init(&source);
	emit(1);
	report_exit();
	cr_expect_str_eq(fixture_said, "verdict fail: 1 stale-launch");
}

Test(report, nothing_comes_after_the_exit_line)
{
	struct event e = { .kind = EVENT_ALLOC, .what = "device" };
	json_auto_t *lines = NULL;

	report_exit();
	cr_expect_eq(fixture_said_times, 0);
	emit(1);
	emit(2);
	report_event(&e);
	lines = read_lines(path);
	cr_assert_eq(json_array_size(lines), 2);
	cr_expect_str_eq(text_of(last_line(lines), "type"), "exit");
	cr_expect_str_eq(text_of(last_line(lines), "verdict"), "pass");
	cr_expect_eq(fixture_said_times, 1, "a verdict that is not true any more, said once");
	cr_expect(strstr(fixture_said, "stale-launch after the exit line"), "%s", fixture_said);
}

Test(report, the_start_line_can_be_written_at_once)
{
	json_auto_t *lines = NULL;

	report_started();
	report_started();
	lines = read_lines(path);
	cr_assert_eq(json_array_size(lines), 1);
	cr_expect_str_eq(text_of(last_line(lines), "type"), "start");
}

Test(report, a_percent_sign_at_the_end_is_said)
{
	source.path = "/tmp/100%";
	report_init(&source);
	cr_expect(strstr(fixture_said, "the % at the end stands for nothing"), "%s", fixture_said);
}

Test(report, an_unknown_placeholder_is_said)
{
	source.path = "/tmp/%q";
	report_init(&source);
	cr_expect(strstr(fixture_said, "%q is not known"), "%s", fixture_said);
}

Test(report, bytes_that_are_not_utf8)
{
	static const struct stack_module odd = { "/tmp/\xff\xfe\"\\\n.so", "" };
	json_auto_t *lines = NULL;

	source.library = odd.path;
	report_exit();
	lines = read_lines(path);
	cr_expect_str_eq(text_of(json_array_get(lines, 0), "library"), "/tmp/?\?\"\\\n.so");
}

Test(report, a_forked_child_leaves_the_file_of_its_parent)
{
	json_auto_t *lines = NULL;
	pid_t child;
	int status;

	emit(1);
	child = fork();
	if (child == 0) {
		report_forget();
		emit(2);		/* no report in this process */
		report_exit();
		_exit(report_verdict() == VERDICT_PASS ? 0 : 1);
	}
	waitpid(child, &status, 0);
	cr_expect_eq(status, 0);
	report_exit();
	lines = read_lines(path);
	cr_expect_eq(count_type(lines, "finding"), 1);
	cr_expect_eq(count_type(lines, "exit"), 1);
}

Test(report, a_forked_child_may_start_its_own)
{
	char name[sizeof(path) + 8], own[sizeof(path) + 16];
	json_auto_t *lines = NULL;
	pid_t child;

	snprintf(name, sizeof(name), "%s-%%p", path);
	source.path = name;
	report_init(&source);
	emit(1);
	child = fork();
	if (child == 0) {
		report_forget();
		report_init(&source);
		emit(1);
		report_exit();
		_exit(0);
	}
	waitpid(child, NULL, 0);
	snprintf(own, sizeof(own), "%s-%d", path, (int)child);
	lines = read_lines(own);
	cr_expect_eq(count_type(lines, "start"), 1);
	cr_expect_eq(number_of(json_array_get(lines, 0), "pid"), child);
	cr_expect_eq(count_type(lines, "stack"), 4, "a file of its own has all that it refers to");
	cr_expect_eq(count_type(lines, "finding"), 1);
	unlink(own);
	snprintf(own, sizeof(own), "%s-%d", path, (int)getpid());
	unlink(own);
}

static void again(const char *text)
{
	fixture_warn(text);
	emit(99);
}

Test(report, a_callback_that_comes_in_again_does_not_hang)
{
	source.path = "/no/such/place";
	source.warn = again;
	report_init(&source);
	emit(1);
	cr_expect_eq(fixture_said_times, 1);
}

static void *writer(void *arg)
{
	uint64_t base = (uint64_t)(uintptr_t)arg * 1000;

	for (uint64_t i = 0; i < 200; i++) {
		struct event e = { .kind = EVENT_ALLOC, .address = 0x1000, .what = "device" };

		emit(base + i);
		report_event(&e);
	}
	return NULL;
}

Test(report, threads_do_not_mix_their_lines)
{
	pthread_t threads[4];
	json_auto_t *lines = NULL;

	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, writer, (void *)(i + 1));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	report_exit();
	lines = read_lines(path);
	cr_expect_eq(count_type(lines, "finding"), 800);
	cr_expect_eq(count_type(lines, "event"), 800);
	cr_expect_eq(count_type(lines, "start"), 1);
}

Test(report, launches_are_written_up_to_a_limit)
{
	const struct report_launch l = { .call = "cuLaunchKernel", .correlation = 7 };
	json_auto_t *lines = NULL;

	for (unsigned i = 0; i < REPORT_LAUNCHES_MAX + 5; i++)
		report_launch(&l);
	report_exit();
	lines = read_lines(path);
	cr_expect_eq(count_type(lines, "launch"), REPORT_LAUNCHES_MAX);
	cr_expect_eq(count_type(lines, "exit"), 1);
}
