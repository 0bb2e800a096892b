/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python frames come first where there are any: the native ones below them are the
 * interpreter's.
 *
 * Threads: one.
 */
#include "stack.h"

#include <inttypes.h>
#include <string.h>

#include "symbolise.h"

static void resolve(const struct report *r, const struct frame_ref *f, struct symbol_frames *out)
{
	const struct report_module *m = report_module(r, f->module);

	symbolise(&(struct symbol_ref){ .path = m ? m->path : NULL,
					.build_id = m ? m->build_id : NULL,
					.offset = f->offset },
		  out);
}

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

static void native_text(const struct symbol_frames *s, size_t at, char *buf, size_t size)
{
	const struct symbol_frame *f = &s->at[at];

	if (at >= s->count)
		snprintf(buf, size, "%s", s->place);
	else if (f->file)
		snprintf(buf, size, "%s (%s:%u)", f->function, last_part(f->file), f->line);
	else
		snprintf(buf, size, "%s (%s)", f->function, s->place);
}

static void python_text(const struct python_ref *p, char *buf, size_t size)
{
	if (p->line)
		snprintf(buf, size, "%s (%s:%" PRIu64 ")", p->function, last_part(p->file),
			 p->line);
	else
		snprintf(buf, size, "%s (%s)", p->function, last_part(p->file));
}

/* Libraries that allocate on behalf of others: who asked them is what is looked for. */
static bool is_allocator(const struct report *r, const struct frame_ref *f)
{
	static const char *const names[] = { "libarena_shim", "libc10", "libcuda.", "libcudart",
					     "libtorch" };
	const struct report_module *m = report_module(r, f->module);

	for (size_t i = 0; m && i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(last_part(m->path), names[i], strlen(names[i])))
			return true;
	return !m;
}

static const struct frame_ref *first_of_interest(const struct report *r,
						 const struct report_stack *s)
{
	for (size_t i = 0; i < s->frame_count; i++)
		if (!is_allocator(r, &s->frames[i]))
			return &s->frames[i];
	return &s->frames[0];
}

const char *stack_brief(const struct report *r, uint64_t id, char *buf, size_t size)
{
	const struct report_stack *s = report_stack(r, id);
	struct symbol_frames frames;

	*buf = '\0';
	if (s && s->python_count) {
		python_text(&s->python[0], buf, size);
	} else if (s && s->frame_count) {
		resolve(r, first_of_interest(r, s), &frames);
		native_text(&frames, 0, buf, size);
	}
	return buf;
}

static void print_line(FILE *to, const char *indent, const char *text)
{
	fputs(indent, to);
	term_text(to, text);
	fputc('\n', to);
}

/* @return false: what called main() is the same everywhere. */
static bool print_native(FILE *to, const struct report *r, const struct frame_ref *f,
			 const char *indent)
{
	struct symbol_frames frames;
	char text[1024];

	resolve(r, f, &frames);
	if (!frames.count) {
		native_text(&frames, 0, text, sizeof(text));
		print_line(to, indent, text);
	}
	for (size_t i = 0; i < frames.count; i++) {
		native_text(&frames, i, text, sizeof(text));
		print_line(to, indent, text);
	}
	return !frames.count || strcmp(frames.at[frames.count - 1].function, "main") != 0;
}

void stack_print(FILE *to, const struct report *r, uint64_t id, const char *indent, size_t most)
{
	const struct report_stack *s = report_stack(r, id);
	char text[1024];
	size_t i;

	if (!s || (!s->python_count && !s->frame_count)) {
		print_line(to, indent, "not known");
		return;
	}
	for (i = 0; i < s->python_count && i < most; i++) {
		python_text(&s->python[i], text, sizeof(text));
		print_line(to, indent, text);
	}
	for (i = 0; !s->python_count && i < s->frame_count && i < most; i++)
		if (!print_native(to, r, &s->frames[i], indent))
			return;
	if ((s->python_count ? s->python_count : s->frame_count) > most)
		print_line(to, indent, "...");
}
