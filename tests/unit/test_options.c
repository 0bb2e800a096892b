/* SPDX-License-Identifier: Apache-2.0 */
/* Options from an environment: values, bad values, names that are not ours. */
#include <stdio.h>

#include "capture.h"
#include "shim/options.h"

static struct capture said;

/* Criterion runs each test in a process of its own, so options start with their defaults. */
static const char *init(char *const *env)
{
	capture_begin(&said, STDERR_FILENO);
	options_init(env);
	return capture_end(&said);
}

#define INIT(...) init((char *const[]){ __VA_ARGS__, NULL })

static const char *printed(enum option_id id)
{
	static char text[OPTION_TEXT_BYTES];

	option_print(id, text, sizeof(text));
	return text;
}

Test(options, defaults_without_an_environment)
{
	cr_expect_eq(option_value(OPTION_GATE), GATE_WARN);
	cr_expect_str_eq(init(NULL), "");
	cr_expect_str_eq(init((char *const[]){ NULL }), "");
	cr_expect_eq(option_value(OPTION_GATE), GATE_WARN);
	cr_expect_eq(option_value(OPTION_GRAPH_MIB), 512);
	cr_expect_eq(option_value(OPTION_STACKS), STACKS_FINDINGS);
	cr_expect_eq(option_value(OPTION_TRACE), 0);
	cr_expect_str_eq(option_text(OPTION_REPORT), "arena-%h-%r-%p.jsonl");
}

Test(options, values_of_each_type)
{
	cr_expect_str_eq(INIT("PATH=/bin", "ARENA_GATE=abort", "ARENA_GRAPH_MIB=65536",
			      "ARENA_REPORT=/tmp/x", "ARENA_TRACE=on", "ARENA_STACKS=off"), "");
	cr_expect_eq(option_value(OPTION_GATE), GATE_ABORT);
	cr_expect_eq(option_value(OPTION_GRAPH_MIB), 65536);
	cr_expect_str_eq(option_text(OPTION_REPORT), "/tmp/x");
	cr_expect_eq(option_value(OPTION_TRACE), 1);
	cr_expect_eq(option_value(OPTION_STACKS), STACKS_OFF);
}

Test(options, words_in_any_case)
{
	cr_expect_str_eq(INIT("ARENA_GATE=Strict", "ARENA_TRACE=ON"), "");
	cr_expect_eq(option_value(OPTION_GATE), GATE_STRICT);
	cr_expect_eq(option_value(OPTION_TRACE), 1);
}

Test(options, empty_report_is_a_value)
{
	cr_expect_str_eq(INIT("ARENA_REPORT="), "");
	cr_expect_str_eq(option_text(OPTION_REPORT), "");
}

Test(options, text_is_copied)
{
	char assignment[] = "ARENA_REPORT=/tmp/one";

	init((char *const[]){ assignment, NULL });
	assignment[strlen(assignment) - 1] = 'X';
	cr_expect_str_eq(option_text(OPTION_REPORT), "/tmp/one");
}

Test(options, first_of_two_counts_as_in_getenv)
{
	INIT("ARENA_GATE=off", "ARENA_GATE=abort");
	cr_expect_eq(option_value(OPTION_GATE), GATE_OFF);
}

Test(options, a_longer_name_is_not_this_option)
{
	const char *text = INIT("ARENA_GATES=abort");

	cr_expect_eq(option_value(OPTION_GATE), GATE_WARN);
	cr_expect(strstr(text, "ARENA_GATES: no such option, did you mean ARENA_GATE?"), "%s", text);
	cr_expect_eq(count_lines(text), 1);
}

Test(options, a_bad_word_is_said_with_the_nearest)
{
	const char *text = INIT("ARENA_GATE=strct");

	cr_expect_eq(option_value(OPTION_GATE), GATE_WARN);
	cr_expect(strstr(text, "warn: ARENA_GATE=strct: not one of off|warn|strict|abort, "
			       "did you mean strict? using warn\n"), "%s", text);
	cr_expect_eq(count_lines(text), 1);
}

Test(options, a_bad_word_far_from_all)
{
	const char *text = INIT("ARENA_TRACE=1");

	cr_expect_eq(option_value(OPTION_TRACE), 0);
	cr_expect(strstr(text, "ARENA_TRACE=1: not one of off|on: using off\n"), "%s", text);
}

Test(options, swapped_letters_are_one_mistake)
{
	const char *text = INIT("ARENA_GAET=strict");

	cr_expect(strstr(text, "did you mean ARENA_GATE?"), "%s", text);
}

Test(options, an_unknown_name_far_from_all)
{
	const char *text = INIT("ARENA_NAMESPACE=x");

	cr_expect(strstr(text, "ARENA_NAMESPACE: no such option: ignored, see arena-shim(7)\n"), "%s",
		  text);
}

Test(options, numbers_out_of_range_and_no_numbers)
{
	static const char *const bad[] = { "0", "65537", "-1", "+1", " 1", "1 ", "", "0x10", "1k",
					   "99999999999999999999999999", "18446744073709551617" };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char assignment[64], want[128];
		const char *text;

		snprintf(assignment, sizeof(assignment), "ARENA_GRAPH_MIB=%s", bad[i]);
		snprintf(want, sizeof(want), "%s: not a number from 1 to 65536 (MiB): using 512",
			 assignment);
		text = init((char *const[]){ assignment, NULL });
		cr_expect_eq(option_value(OPTION_GRAPH_MIB), 512, "%s", bad[i]);
		/* The call site says it LOG_LIMIT times at most. */
		cr_expect(i >= 8 || strstr(text, want), "%s", text);
	}
}

Test(options, leading_zeros_are_decimal)
{
	cr_expect_str_eq(INIT("ARENA_GRAPH_MIB=0010"), "");
	cr_expect_eq(option_value(OPTION_GRAPH_MIB), 10);
}

Test(options, text_that_is_too_long)
{
	static char assignment[OPTION_TEXT_BYTES + 32] = "ARENA_REPORT=";
	const char *text;

	memset(assignment + strlen(assignment), 'a', OPTION_TEXT_BYTES);
	text = init((char *const[]){ assignment, NULL });
	cr_expect(strstr(text, "longer than 4095 bytes: using arena-%h-%r-%p.jsonl"), "%s", text);
	cr_expect_str_eq(option_text(OPTION_REPORT), "arena-%h-%r-%p.jsonl");
	assignment[strlen("ARENA_REPORT=") + OPTION_TEXT_BYTES - 1] = '\0';
	cr_expect_str_eq(init((char *const[]){ assignment, NULL }), "");
	cr_expect_eq(strlen(option_text(OPTION_REPORT)), OPTION_TEXT_BYTES - 1);
}

Test(options, a_value_cannot_forge_a_line)
{
	const char *text = INIT("ARENA_GATE=x\narena[1/1]: warn: forged");

	cr_expect_eq(count_lines(text), 1, "%s", text);
}

Test(options, log_level_comes_first)
{
	cr_expect_str_eq(INIT("ARENA_GATE=strct", "ARENA_LOG=error"), "");
}

Test(options, debug_prints_every_option_once)
{
	const char *text = INIT("ARENA_LOG=debug", "ARENA_GATE=strict");

	cr_expect_eq(count_lines(text), OPTION_COUNT, "%s", text);
	cr_expect(strstr(text, "debug: ARENA_GATE=strict\n"));
	cr_expect(strstr(text, "debug: ARENA_GRAPH_MIB=512\n"));
	cr_expect(strstr(text, "debug: ARENA_REPORT=arena-%h-%r-%p.jsonl\n"));
}

Test(options, print_spells_what_the_environment_would)
{
	INIT("ARENA_STACKS=all", "ARENA_GRAPH_MIB=7");
	cr_expect_str_eq(printed(OPTION_STACKS), "all");
	cr_expect_str_eq(printed(OPTION_GRAPH_MIB), "7");
	cr_expect_str_eq(option_name(OPTION_STACKS), "STACKS");
}

Test(options, odd_environments)
{
	const char *text = INIT("", "=", "ARENA", "ARENA_", "ARENA_=", "ARENA_GATE", "NOT_ARENA_GATE=off");

	cr_expect_eq(option_value(OPTION_GATE), GATE_WARN);
	cr_expect_eq(count_lines(text), 2, "%s", text);	/* ARENA_ and ARENA_= have no name */
}
