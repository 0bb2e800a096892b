/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Columns of a finding. text is for a human, value for sorting, CSV and JSON.
 *
 * Threads: one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "select.h"
#include "stack.h"
#include "symbolise.h"

#define BUF char *buf, size_t size

static const char *hex(uint64_t n, const char *none, BUF)
{
	if (!n)
		return none;
	snprintf(buf, size, "0x%" PRIx64, n);
	return buf;
}

static const char *decimal(uint64_t n, BUF)
{
	snprintf(buf, size, "%" PRIu64, n);
	return buf;
}

static const char *text_allocated(const struct selected *s, BUF)
{
	uint64_t stack = finding_now_stack(s->finding);

	if (!stack)
		stack = finding_old_stack(s->finding);
	return stack_brief(s->report, stack, buf, size);
}

static const char *text_file(const struct selected *s, BUF)
{
	return s->report->file;
}

static const char *text_id(const struct selected *s, BUF)
{
	snprintf(buf, size, "0x%" PRIx64, s->finding->id);
	return buf;
}

/* "void a::b<c>(d)" is a::b: a column has no room for more; JSON has all of it. */
static const char *short_name(const char *name, char buf[96])
{
	const char *from = name, *end;
	int depth = 0;

	for (end = name; *end && !(depth == 0 && *end == '(' && strncmp(end, "(anonymous", 10));
	     end++) {
		depth += (*end == '<') - (*end == '>');
		if (*end == ' ' && depth == 0 && strncmp(end, " namespace)", 11) != 0)
			from = end + 1;
	}
	for (depth = 0; from < end && from[depth] && from + depth < end && from[depth] != '<';
	     depth++)
		;
	snprintf(buf, 96, "%.*s", depth, from);
	return buf;
}

/* The different kernels, or the kinds of nodes, that hold it; the first ones. */
static const char *text_kernels(const struct selected *s, BUF)
{
	const struct report_finding *f = s->finding;
	size_t used = 0, listed = 0;
	char brief[96];

	*buf = '\0';
	for (size_t i = 0; i < f->refs_count; i++) {
		const char *name = f->refs[i].kernel ? f->refs[i].kernel : f->refs[i].node_kind;
		size_t k = 0;

		while (k < i && strcmp(name, f->refs[k].kernel ? f->refs[k].kernel
							       : f->refs[k].node_kind) != 0)
			k++;
		if (k < i)
			continue;
		if (++listed > 3 || used + 8 > size)
			return strncat(buf, ", ...", size - strlen(buf) - 1);
		used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? ", " : "",
					 short_name(symbolise_name(name), brief));
	}
	return buf;
}

static const char *text_kind(const struct selected *s, BUF)
{
	return s->finding->kind;
}

static const char *text_layer(const struct selected *s, BUF)
{
	return finding_layer(s->finding);
}

static const char *text_new(const struct selected *s, BUF)
{
	return hex(finding_now(s->finding), "", buf, size);
}

static const char *text_old(const struct selected *s, BUF)
{
	return hex(finding_old(s->finding), "", buf, size);
}

static const char *text_old_new(const struct selected *s, BUF)
{
	char old[32], now[32];
	uint64_t a = finding_old(s->finding), b = finding_now(s->finding);

	if (!a && !b)
		return "";
	snprintf(buf, size, "%s -> %s", hex(a, "none", old, sizeof(old)),
		 hex(b, "none", now, sizeof(now)));
	return buf;
}

static const char *text_origin(const struct selected *s, BUF)
{
	const struct report_finding *f = s->finding;

	if (f->origin == ORIGIN_RELOAD)
		snprintf(buf, size, "reload %" PRIu64, f->reload);
	else
		snprintf(buf, size, "%s",
			 f->origin == ORIGIN_VERIFY ? "verify"
			 : f->exec		    ? "launch"
						    : "event");
	return buf;
}

static const char *text_severity(const struct selected *s, BUF)
{
	return severity_names[s->finding->severity];
}

static const char *text_subject(const struct selected *s, BUF)
{
	return finding_subject(s->finding, buf, size);
}

static const char *text_text(const struct selected *s, BUF)
{
	return s->finding->text;
}

static const char *text_time(const struct selected *s, BUF)
{
	char time[TIME_SIZE];

	snprintf(buf, size, "%s", unit_time(time, s->finding->time_ns));
	return buf;
}

static const char *text_size(const struct selected *s, BUF)
{
	char unit[UNIT_SIZE];
	uint64_t bytes = finding_size(s->finding);

	if (!bytes)
		return "";
	snprintf(buf, size, "%s", unit_bytes(unit, bytes));
	return buf;
}

static uint64_t value_execs(const struct selected *s)
{
	return finding_execs(s->finding);
}

static uint64_t value_line(const struct selected *s)
{
	return s->finding->line;
}

static uint64_t value_pid(const struct selected *s)
{
	return s->report->pid;
}

static uint64_t value_rank(const struct selected *s)
{
	return s->report->start ? s->report->start->rank : 0;
}

static uint64_t value_refs(const struct selected *s)
{
	return s->finding->refs_total;
}

static uint64_t value_severity(const struct selected *s)
{
	return s->finding->severity;
}

static uint64_t value_size(const struct selected *s)
{
	return finding_size(s->finding);
}

static uint64_t value_time(const struct selected *s)
{
	return s->finding->time_ns;
}

static uint64_t value_times(const struct selected *s)
{
	return s->finding->occurrences;
}

#define NUMBER(name)                                                  \
	static const char *text_##name(const struct selected *s, BUF) \
	{                                                             \
		return decimal(value_##name(s), buf, size);           \
	}
NUMBER(execs)
NUMBER(line)
NUMBER(pid)
NUMBER(rank)
NUMBER(refs)
NUMBER(times)

const struct field fields[] = {
#define FIELD(name, head, number, text, value, doc) { name, head, doc, number, text, value },
#include "fields.def"
#undef FIELD
};
const size_t field_count = sizeof(fields) / sizeof(fields[0]);
