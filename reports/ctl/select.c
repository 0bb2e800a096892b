/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters and order of findings.
 *
 * Threads: one. The sort keys of a call lie in a static: qsort() hands nothing to its comparison.
 */
#include "select.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX 16
#define TEXT_MAX 1024

/* Fields to sort by; down: the largest first. */
static struct {
	const struct field *field;
	bool down;
} sort_keys[KEYS_MAX];
static size_t sort_count;

static const struct field *find_field(const char *name, size_t length)
{
	for (size_t i = 0; i < field_count; i++)
		if (strlen(fields[i].name) == length && !strncmp(fields[i].name, name, length))
			return &fields[i];
	return NULL;
}

static int no_field(const struct args *a, enum arg which, const char *name, size_t length)
{
	const char *names[64], *nearest;
	char word[64];

	for (size_t i = 0; i < field_count; i++)
		names[i] = fields[i].name;
	snprintf(word, sizeof(word), "%.*s", (int)(length < 63 ? length : 63), name);
	nearest = args_nearest(word, names, field_count);
	return args_refuse(a, "--%s: no field '%s'%s%s%s; '-f help' lists them",
			   option_rows[which].name, word, nearest ? "; did you mean '" : "",
			   nearest ? nearest : "", nearest ? "'?" : "");
}

const struct field **fields_parse(const struct args *a, enum arg which, const char *otherwise,
				  size_t *count)
{
	const char *list = args_text(a, which, otherwise);
	const struct field **v = calloc(strlen(list) + 1, sizeof(*v));

	*count = 0;
	while (v && list) {
		size_t length = strcspn(list, ",");

		v[*count] = find_field(list, length);
		if (!v[*count]) {
			no_field(a, which, list, length);
			free(v);
			return NULL;
		}
		++*count;
		list = list[length] ? list + length + 1 : NULL;
	}
	return v;
}

static int parse_sort(const struct args *a)
{
	const char *list = args_text(a, ARG_SORT, "-severity");

	for (sort_count = 0; list; sort_count++) {
		bool down = *list == '-';
		size_t length = strcspn(list, ",");

		if (sort_count == KEYS_MAX)
			return args_refuse(a, "--sort: more than %d fields", KEYS_MAX);
		sort_keys[sort_count].down = down;
		sort_keys[sort_count].field = find_field(list + down, length - down);
		if (!sort_keys[sort_count].field)
			return no_field(a, ARG_SORT, list + down, length - down);
		list = list[length] ? list + length + 1 : NULL;
	}
	return 0;
}

static int compare_field(const struct field *f, const struct selected *a, const struct selected *b)
{
	char x_text[TEXT_MAX], y_text[TEXT_MAX];
	uint64_t x, y;

	if (!f->value)
		return strcmp(f->text(a, x_text, sizeof(x_text)),
			      f->text(b, y_text, sizeof(y_text)));
	x = f->value(a);
	y = f->value(b);
	return x < y ? -1 : x > y;
}

/* Equal ones stay as they are in the files. */
static int compare(const void *pa, const void *pb)
{
	const struct selected *a = pa, *b = pb;

	for (size_t i = 0; i < sort_count; i++) {
		int order = compare_field(sort_keys[i].field, a, b);

		if (order)
			return sort_keys[i].down ? -order : order;
	}
	return a->place < b->place ? -1 : a->place > b->place;
}

static bool wanted(const struct args *a, const struct report_finding *f)
{
	const char *layer = args_text(a, ARG_LAYER, NULL),
		   *least = args_text(a, ARG_SEVERITY, "info");

	return args_listed(a, ARG_KIND, f->kind) &&
	       (!layer || !fnmatch(layer, finding_layer(f), 0)) &&
	       !(f->severity < SEVERITY_ERROR && !strcmp(least, "error")) &&
	       !(f->severity < SEVERITY_WARN && !strcmp(least, "warn"));
}

/* A kind that no version has is a slip of the pen; it would choose nothing for ever. */
static int check_kinds(const struct args *a)
{
	static const char *const kinds[] = {
#define FINDING(id, name, severity, title) name,
#include "arena/findings.def"
#undef FINDING
	};
	size_t count = sizeof(kinds) / sizeof(kinds[0]);
	const char *list = args_text(a, ARG_KIND, NULL);

	while (list) {
		size_t length = strcspn(list, ","), i = 0;
		char word[64];

		while (i < count && (strlen(kinds[i]) != length || strncmp(kinds[i], list, length)))
			i++;
		if (i == count) {
			const char *nearest;

			snprintf(word, sizeof(word), "%.*s", (int)(length < 63 ? length : 63),
				 list);
			nearest = args_nearest(word, kinds, count);
			return args_refuse(a,
					   "--kind: no kind '%s'%s%s%s; arena-shim(7) lists them",
					   word, nearest ? "; did you mean '" : "",
					   nearest ? nearest : "", nearest ? "'?" : "");
		}
		list = list[length] ? list + length + 1 : NULL;
	}
	return 0;
}

static void select_report(const struct report *r, const struct args *a, struct selection *out)
{
	for (size_t i = 0; i < r->findings.count; i++) {
		const struct report_finding *f = r->findings.v[i];

		/* One row for each id of a process, unless all were asked for. */
		if (f->again && !args_given(a, ARG_ALL))
			continue;
		if (!wanted(a, f)) {
			out->left_out++;
			continue;
		}
		out->v[out->count] = (struct selected){ r, f, out->count };
		out->count++;
	}
}

int select_check(const struct args *a)
{
	size_t count;
	const struct field **v = fields_parse(a, ARG_FIELDS, "kind", &count);

	if (!v)
		return STATUS_USAGE;
	free(v);
	return check_kinds(a) ? STATUS_USAGE : parse_sort(a);
}

int select_findings(const struct report_set *set, const struct args *a, struct selection *out)
{
	size_t most = 0;
	int refused;

	*out = (struct selection){ 0 };
	refused = parse_sort(a);
	if (refused)
		return refused;
	for (size_t i = 0; i < set->reports.count; i++)
		most += set->reports.v[i]->findings.count;
	out->v = malloc((most + 1) * sizeof(*out->v));
	if (!out->v)
		return args_refuse(a, "no memory for %zu findings", most);
	for (size_t i = 0; i < set->reports.count; i++)
		select_report(set->reports.v[i], a, out);
	qsort(out->v, out->count, sizeof(*out->v), compare);
	return 0;
}

void select_free(struct selection *s)
{
	free(s->v);
	*s = (struct selection){ 0 };
}
