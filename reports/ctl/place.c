/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks in words. Frames of CUDA's runtime are left out where not all are shown. Line numbers of
 * Python are no part of a stable place: they move with every edit.
 *
 * Threads: one.
 */
#include "place.h"

#include <inttypes.h>
#include <string.h>

#include "merge.h"
#include "symbolise.h"

const char *place_file(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* The list of parameters is the last pair of parentheses; what follows it is "const" or "[clone]".
 */
const char *place_kernel(struct pool *p, const char *mangled)
{
	const char *name = symbolise_name(mangled), *end = strrchr(name, ')');
	size_t depth = 0;

	for (const char *c = end; c && c > name; c--) {
		depth += *c == ')';
		depth -= *c == '(';
		if (!depth)
			return pool_print(p, "%.*s", (int)(c - name), name);
	}
	return pool_text(p, name);
}

/* These only pass on what others asked for. */
static bool is_runtime(const struct report_module *m)
{
	static const char *const names[] = { "libcuda.", "libcudart.", "libc10_cuda." };

	for (size_t i = 0; m && i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(place_file(m->path), names[i], strlen(names[i])))
			return true;
	return false;
}

/* The first frame that is not the runtime's; 0 if all are. */
static size_t first_frame(const struct report *r, const struct report_stack *s)
{
	for (size_t i = 0; i < s->frame_count; i++)
		if (!is_runtime(report_module(r, s->frames[i].module)))
			return i;
	return 0;
}

const char *place_stable(struct pool *p, const struct report *r, uint64_t stack)
{
	const struct report_stack *s = report_stack(r, stack);
	const char *text = "";
	size_t first;

	if (!s)
		return "";
	if (s->python_count)
		return pool_print(p, "%s (%s)", s->python[0].function,
				  place_file(s->python[0].file));
	first = first_frame(r, s);
	for (size_t i = first; i < s->frame_count && i < first + 2; i++) {
		const struct report_module *m = report_module(r, s->frames[i].module);

		if (m)
			text = pool_print(p, "%s%s%s+0x%" PRIx64, text, *text ? " <- " : "",
					  place_file(m->path), s->frames[i].offset);
	}
	return text;
}

static void add(struct pool *p, struct texts *t, size_t *room, const char *text)
{
	t->v = pool_grow(p, t->v, room, t->count, sizeof(*t->v));
	t->v[t->count++] = text;
}

static void native_frame(struct pool *p, const struct report *r, const struct frame_ref *f,
			 struct texts *t, size_t *room)
{
	const struct report_module *m = report_module(r, f->module);
	struct symbol_ref ref = { .path = m ? m->path : NULL,
				  .build_id = m ? m->build_id : NULL,
				  .offset = f->offset };
	struct symbol_frames found;

	symbolise(&ref, &found);
	for (size_t i = 0; i < found.count; i++) {
		const struct symbol_frame *at = &found.at[i];

		if (at->file)
			add(p, t, room,
			    pool_print(p, "%s (%s:%u)%s", at->function, place_file(at->file),
				       at->line, at->is_inlined ? " inlined" : ""));
		else
			add(p, t, room, pool_print(p, "%s (%s)", at->function, found.place));
	}
	if (!found.count)
		add(p, t, room, pool_text(p, found.place));
}

struct texts place_frames(struct pool *p, const struct report *r, uint64_t stack, size_t max)
{
	const struct report_stack *s = report_stack(r, stack);
	struct texts t = { 0 };
	size_t room = 0, first = s && max < s->frame_count ? first_frame(r, s) : 0;

	for (size_t i = 0; s && i < s->python_count && i < max; i++)
		add(p, &t, &room,
		    pool_print(p, "%s (%s:%" PRIu64 ")", s->python[i].function,
			       place_file(s->python[i].file), s->python[i].line));
	/* Below Python frames the native ones are the interpreter's. */
	for (size_t i = first; s && i < s->frame_count && i - first < max; i++) {
		if (s->python_count && max < s->frame_count)
			break;
		native_frame(p, r, &s->frames[i], &t, &room);
	}
	return t;
}
