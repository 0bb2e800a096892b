/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arenactl explain: the life of one address, slot or finding. What belongs to it is in explain.c.
 *
 * Threads: one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "args.h"
#include "explain.h"
#include "place.h"
#include "read.h"
#include "symbolise.h"
#include "term.h"

/* Without --all. */
#define FRAMES_SHOWN  3
#define HOLDERS_SHOWN 3
#define MEMORY_SHOWN  16

/* Of an address of 64 bits. */
#define HEX_DIGITS 16

/* What is printed, and how much of it. */
struct printing {
	struct pool *pool;
	const struct life *life;
	bool all;
};

/* ---- text ---- */

static void put(const char *head, const char *text)
{
	fputs(head, stdout);
	term_text(stdout, text);
}

static void print_stack(const struct printing *p, const char *head, uint64_t stack)
{
	struct texts t =
		place_frames(p->pool, p->life->report, stack, p->all ? SIZE_MAX : FRAMES_SHOWN);

	if (!t.count)
		return;
	fputs(head, stdout);
	for (size_t i = 0; i < t.count; i++)
		put(p->all ? "\n            " : i ? " <- " : " ", t.v[i]);
	putchar('\n');
}

static void print_memory(const struct printing *p)
{
	char bytes[UNIT_SIZE];
	size_t count = p->life->memory.count;
	size_t shown = p->all || count < MEMORY_SHOWN ? count : MEMORY_SHOWN;

	for (size_t i = 0; i < shown; i++) {
		const struct life_memory *m = &p->life->memory.v[i];

		printf("  0x%" PRIx64 ", %s, generation %" PRIu64 ", ", m->range.base,
		       unit_bytes(bytes, m->range.size), m->range.generation);
		term_text(stdout, m->range.kind);
		if (m->slot)
			put(": ", m->slot);
		putchar('\n');
		print_stack(p, "      allocated by", m->range.stack_open);
		print_stack(p, p->all ? "      freed by" : "      freed by    ",
			    m->range.stack_close);
	}
	if (shown < count)
		printf("  and %zu more (--all)\n", count - shown);
}

static bool is_event(const struct life *l, size_t i)
{
	return i < l->entries.count && !l->entries.v[i].phase;
}

/* Of reloads, those in, before or after which something happened. */
static bool is_shown(const struct printing *p, size_t i)
{
	const struct life *l = p->life;
	const struct life_entry *e = &l->entries.v[i];

	if (p->all || !e->phase || is_event(l, i - 1) || is_event(l, i + 1))
		return true;
	if (i && !strcmp(l->entries.v[i - 1].what, e->what))
		return is_event(l, i - 2);
	return i + 1 < l->entries.count && !strcmp(l->entries.v[i + 1].what, e->what) &&
	       is_event(l, i + 2);
}

static void print_entry(const struct printing *p, const struct life_entry *e)
{
	uint64_t start = p->life->report->time_first_ns;
	char ns[UNIT_SIZE];

	if (e->time_ns == UINT64_MAX)
		printf("  %12s  ", "");
	else
		printf("  %s%11s  ", e->time_ns < start ? "-" : "+",
		       unit_ns(ns, e->time_ns < start ? start - e->time_ns : e->time_ns - start));
	printf("%s", term_paint(e->finding ? term_severity_paint(e->severity) : PAINT_BOLD));
	term_text(stdout, e->what);
	printf("%s", term_paint(PAINT_NONE));
	put("  ", e->text);
	if (e->finding && p->all)
		printf(", id 0x%" PRIx64, e->id);
	if (e->repeated)
		printf(", %" PRIu64 " times until +%s", e->repeated + 1,
		       unit_ns(ns, e->last_ns - start));
	putchar('\n');
	for (size_t i = 0; i < e->holders.count && (p->all || i < HOLDERS_SHOWN); i++) {
		put("      held by ", e->holders.v[i]);
		putchar('\n');
	}
	if (!p->all && e->holders.count > HOLDERS_SHOWN)
		printf("      and by %zu more (--all)\n", e->holders.count - HOLDERS_SHOWN);
	print_stack(p, "      by", e->stack);
}

static void print_life(const struct printing *p)
{
	const struct life *l = p->life;
	char time[TIME_SIZE];

	put("\n", l->report->file);
	printf(": process %" PRIu64, l->report->pid);
	if (l->report->start) {
		printf(", rank %" PRIu64 ", ", l->report->start->rank);
		term_text(stdout, place_file(l->report->start->exe));
	}
	printf(", from %s\n", unit_time(time, l->report->time_first_ns));
	printf("\n%smemory%s\n", term_paint(PAINT_DIM), term_paint(PAINT_NONE));
	print_memory(p);
	printf("\n%slife%s\n", term_paint(PAINT_DIM), term_paint(PAINT_NONE));
	for (size_t i = 0; i < l->entries.count; i++)
		if (is_shown(p, i))
			print_entry(p, &l->entries.v[i]);
	if (l->gaps.count)
		printf("\n%snot in this report%s\n", term_paint(PAINT_DIM), term_paint(PAINT_NONE));
	for (size_t i = 0; i < l->gaps.count; i++)
		printf("  %s%s%s\n", l->gaps.v[i].what, l->gaps.v[i].how ? ": " : "",
		       l->gaps.v[i].how ? l->gaps.v[i].how : "");
}

/* ---- JSON ---- */

static void json_texts(const char *key, const struct texts *t)
{
	printf(",\"%s\":[", key);
	for (size_t i = 0; i < t->count; i++) {
		fputs(i ? "," : "", stdout);
		term_json(stdout, t->v[i]);
	}
	putchar(']');
}

static void json_text(const char *key, const char *value)
{
	printf(",\"%s\":", key);
	if (value)
		term_json(stdout, value);
	else
		fputs("null", stdout);
}

static void json_stack(const struct printing *p, const char *key, uint64_t stack)
{
	struct texts t = place_frames(p->pool, p->life->report, stack, SIZE_MAX);

	json_texts(key, &t);
}

static void json_memory(const struct printing *p)
{
	fputs(",\"memory\":[", stdout);
	for (size_t i = 0; i < p->life->memory.count; i++) {
		const struct life_memory *m = &p->life->memory.v[i];

		printf("%s{\"base\":\"0x%" PRIx64 "\",\"size\":%" PRIu64 ",\"generation\":%" PRIu64,
		       i ? "," : "", m->range.base, m->range.size, m->range.generation);
		json_text("kind", m->range.kind);
		json_text("slot", m->slot);
		json_stack(p, "allocated_by", m->range.stack_open);
		json_stack(p, "freed_by", m->range.stack_close);
		putchar('}');
	}
	putchar(']');
}

static void json_entries(const struct printing *p)
{
	fputs(",\"life\":[", stdout);
	for (size_t i = 0; i < p->life->entries.count; i++) {
		const struct life_entry *e = &p->life->entries.v[i];

		printf("%s{\"time_ns\":%" PRIu64 ",\"line\":%" PRIu64, i ? "," : "", e->time_ns,
		       e->line);
		json_text("what", e->what);
		json_text("text", e->text);
		json_text("severity", e->finding ? severity_names[e->severity] : NULL);
		if (e->finding)
			printf(",\"id\":\"0x%" PRIx64 "\"", e->id);
		printf(",\"times\":%" PRIu64, e->repeated + 1);
		json_texts("holders", &e->holders);
		json_stack(p, "by", e->stack);
		putchar('}');
	}
	putchar(']');
}

static void json_life(const struct printing *p, bool first)
{
	const struct life *l = p->life;

	printf("%s{\"pid\":%" PRIu64 ",\"rank\":%" PRIu64, first ? "" : ",", l->report->pid,
	       l->report->start ? l->report->start->rank : 0);
	json_text("file", l->report->file);
	json_memory(p);
	json_entries(p);
	fputs(",\"not_recorded\":[", stdout);
	for (size_t i = 0; i < l->gaps.count; i++) {
		printf("%s{\"what\":", i ? "," : "");
		term_json(stdout, l->gaps.v[i].what);
		json_text("how", l->gaps.v[i].how);
		putchar('}');
	}
	fputs("]}", stdout);
}

/* ---- the command ---- */

static const char *const subject_names[] = {
	[SUBJECT_ADDRESS] = "address",
	[SUBJECT_SLOT] = "slot",
	[SUBJECT_FINDING] = "finding",
};

static void print(struct lives *lives, const struct subject *s, bool json, bool all)
{
	bool first = true;

	if (json) {
		printf("{\"schema\":1,\"type\":\"explain\",\"kind\":\"%s\"",
		       subject_names[s->kind]);
		json_text("subject", s->text);
		fputs(",\"processes\":[", stdout);
	} else {
		printf("%s ", subject_names[s->kind]);
		term_text(stdout, s->text);
		putchar('\n');
	}
	for (size_t i = 0; i < lives->v.count; i++) {
		struct printing p = { &lives->pool, &lives->v.v[i], all };

		if (!life_is_known(p.life))
			continue;
		if (json)
			json_life(&p, first);
		else
			print_life(&p);
		first = false;
	}
	if (json)
		puts("]}");
}

static bool is_known(const struct lives *lives)
{
	for (size_t i = 0; i < lives->v.count; i++)
		if (life_is_known(&lives->v.v[i]))
			return true;
	return false;
}

/* An address as other tools print it, without 0x. */
static bool is_bare_address(const struct subject *s)
{
	size_t length = strlen(s->text);

	return s->kind == SUBJECT_SLOT && length >= 6 && length <= HEX_DIGITS &&
	       strspn(s->text, "0123456789abcdefABCDEF") == length;
}

/* strtoull() would make another number of it. */
static bool is_too_long(const char *text)
{
	const char *digits = text + 2;

	if (text[0] != '0' || (text[1] != 'x' && text[1] != 'X'))
		return false;
	digits += strspn(digits, "0");
	return strspn(digits, "0123456789abcdefABCDEF") == strlen(digits) &&
	       strlen(digits) > HEX_DIGITS;
}

/* Not found is an answer as well; a slot may be misspelt. */
static int say_unknown(const struct report_set *set, const struct subject *s)
{
	const char *names[256], *nearest = NULL;
	size_t count = 0;

	for (size_t i = 0; i < set->reports.count; i++) {
		const struct report *r = set->reports.v[i];

		for (size_t k = 0; k < r->findings.count && count < 256; k++)
			if (*r->findings.v[k]->slot)
				names[count++] = r->findings.v[k]->slot;
	}
	if (s->kind == SUBJECT_SLOT && count && !is_bare_address(s))
		nearest = args_nearest(s->text, names, count);
	fprintf(stderr, "arenactl explain: nothing in the report is about %s ",
		subject_names[s->kind]);
	term_text(stderr, s->text);
	if (nearest) {
		fputs("; did you mean ", stderr);
		term_text(stderr, nearest);
		fputs("?\n", stderr);
	} else if (is_bare_address(s))
		fprintf(stderr, "; did you mean the address 0x%s?\n", s->text);
	else if (s->kind == SUBJECT_ADDRESS)
		fputs(": only memory of findings is in it, unless it ran with ARENA_TRACE=on\n",
		      stderr);
	else
		fputs(": give an address (0x...), a slot (LAYER/SLOT) or the id of a finding\n",
		      stderr);
	return STATUS_FINDINGS;
}

static int run(struct args *a)
{
	const char *format = args_text(a, ARG_FORMAT, "text");
	const struct set_limits limits = { .refs = 1000000, .findings = 1000000 };
	bool json = !strcmp(format, "json");
	char *const *files = a->operands;
	size_t count = a->count - 1;
	struct report_set set = { 0 };
	struct lives lives;
	struct subject s;
	int status;

	if (!json && strcmp(format, "text"))
		return args_refuse(a, "--format=%s: text or json", format);
	for (size_t i = 0; i < count; i++)
		if (!strcmp(files[i], "-"))
			return args_refuse(a, "a report is read twice: give a file, not stdin");
	if (is_too_long(a->operands[count]))
		return args_refuse(a, "%s: an address has at most 16 hexadecimal digits",
				   a->operands[count]);
	status = set_read(&set, files, count, &limits);
	s = subject_of(&set, a->operands[count]);
	explain(&lives, &set, &s, files, count);
	symbolise_init(!args_given(a, ARG_NO_SYMBOLS), args_text(a, ARG_SYMBOLS, NULL));
	term_open(a);
	if (is_known(&lives) || json)
		print(&lives, &s, json, args_given(a, ARG_ALL));
	if (!is_known(&lives) && !status)
		status = say_unknown(&set, &s);
	if (!term_close())
		status = STATUS_UNREADABLE;
	if (!args_given(a, ARG_QUIET))
		symbolise_notes("explain");
	symbolise_end();
	explain_free(&lives);
	set_free(&set);
	return status;
}

const struct command cmd_explain = {
	.name = "explain",
	.synopsis = "FILE... ADDRESS|SLOT|ID",
	.summary = "the life of one address, slot or finding",
	.bit = CMD_EXPLAIN,
	.operands_min = 2,
	.run = run,
};
