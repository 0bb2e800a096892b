/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of reports against any bytes.
 *
 * Input: a file. It must be read to its end without a fault, count what it leaves out, and take
 * no line for good that jansson does not take for JSON. Whatever it hands on must be printable.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/ctl/args.h"
#include "reports/ctl/read.h"
#include "reports/ctl/term.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

const struct command *const commands[] = { NULL };

static void check(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "fuzz_report: %s\n", what);
	abort();
}

struct seen {
	const char *bytes;
	size_t size;
	uint64_t lines, said;
};

/* Line @number of the input. */
static const char *find_line(const struct seen *s, uint64_t number, size_t *length)
{
	const char *at = s->bytes, *end = s->bytes + s->size, *newline;

	while (--number)
		at = (const char *)memchr(at, '\n', (size_t)(end - at)) + 1;
	newline = memchr(at, '\n', (size_t)(end - at));
	*length = (size_t)((newline ? newline : end) - at);
	return at;
}

/* jansson refuses more than JSON does: bytes that are no UTF-8, some escapes, large numbers. */
static bool comparable(const char *line, size_t length)
{
	size_t digits = 0;

	for (size_t i = 0; i < length; i++) {
		bool exponent = digits && (line[i] == 'e' || line[i] == 'E');

		digits = line[i] >= '0' && line[i] <= '9' ? digits + 1 : 0;
		if ((unsigned char)line[i] >= 0x80 || digits > 18 || exponent ||
		    (line[i] == '\\' && i + 1 < length && line[i + 1] == 'u'))
			return false;
	}
	return true;
}

static void compare(const struct seen *s, const struct line *l)
{
	size_t length;
	const char *line = find_line(s, l->number, &length);
	json_t *o;

	if (!comparable(line, length))
		return;
	o = json_loadb(line, length, 0, NULL);
	check(json_is_object(o), "a line was taken that is not JSON");
	check(json_is_string(json_object_get(o, "type")), "a line was taken that has no type");
	json_decref(o);
}

static void print_finding(const struct report_finding *f)
{
	char subject[256], clean[1024];

	finding_subject(f, subject, sizeof(subject));
	term_clean(clean, sizeof(clean), f->text);
	for (const char *c = clean; *c; c++)
		check((unsigned char)*c >= 0x20 && *c != 0x7f,
		      "a control character was not escaped");
	check(finding_execs(f) <= f->refs_count + f->execs, "more execs than refs");
	check(f->id, "a finding without an id");
}

static bool visit(void *to, const struct line *l)
{
	struct seen *s = to;

	s->lines++;
	check(l->type < LINE_TYPE_COUNT, "a line of no type");
	compare(s, l);
	if (l->type == LINE_FINDING)
		print_finding(&l->finding);
	if (l->type == LINE_RELOAD || l->type == LINE_VERIFY)
		for (size_t i = 0; i < l->reload.findings_count; i++)
			print_finding(&l->reload.findings[i]);
	return true;
}

static void problem(void *to, const char *text)
{
	struct seen *s = to;

	s->said++;
	check(*text, "an empty message");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen s = { (const char *)data, size, 0, 0 };
	struct read_result r = { .problem = problem, .to = &s };
	bool clean = read_bytes((const char *)data, size, visit, &s, &r);

	check(clean == read_clean(&r), "two answers to whether it was whole");
	check(clean == !s.said, "a problem that nobody is told of");
	check(r.lines >= s.lines + r.lines_bad + r.lines_unknown, "lines that are not counted");
	check(!r.lines_bad == !r.lost_bytes, "lines lost without bytes");
	return 0;
}
