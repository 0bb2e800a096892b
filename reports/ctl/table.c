/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table is kept until it is printed: the widths are known then. Cells are made harmless as
 * they come.
 *
 * Threads: one.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "pool.h"
#include "term.h"

#define CELL_MAX 4096

struct cell {
	const char *text;
	enum paint paint;
	size_t width; /* in characters */
};

struct column {
	struct cell head;
	size_t width;
	bool right;
};

struct table {
	struct pool pool;
	struct column *columns;
	size_t column_count;
	LIST_OF(struct cell) cells;
};

static struct cell make_cell(struct table *t, enum paint paint, const char *text)
{
	char clean[CELL_MAX];
	struct cell c = { .paint = paint };

	term_clean(clean, sizeof(clean), text);
	c.text = pool_text(&t->pool, clean);
	for (const char *s = clean; *s; s++)
		c.width += ((unsigned char)*s & 0xc0) != 0x80;
	return c;
}

static void widen(struct column *column, const struct cell *c)
{
	if (c->width > column->width)
		column->width = c->width;
}

struct table *table_new(size_t columns, const char *const *heads)
{
	struct pool pool = { 0 };
	struct table *t = pool_take(&pool, sizeof(*t));

	t->column_count = columns;
	t->pool = pool;
	t->columns = pool_take(&t->pool, columns * sizeof(*t->columns));
	for (size_t i = 0; i < columns; i++) {
		t->columns[i].head = make_cell(t, PAINT_DIM, heads[i]);
		widen(&t->columns[i], &t->columns[i].head);
	}
	return t;
}

void table_align(struct table *t, size_t column, bool right)
{
	t->columns[column].right = right;
}

void table_cell(struct table *t, enum paint paint, const char *format, ...)
{
	char text[CELL_MAX];
	struct cell c;
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	c = make_cell(t, paint, text);
	widen(&t->columns[t->cells.count % t->column_count], &c);
	LIST_ADD(&t->pool, t->cells, c);
}

/* The last column is not padded: no blanks at the end of a line. */
static void print_cell(const struct table *t, size_t i, const struct cell *c, FILE *to)
{
	int blanks = (int)(t->columns[i].width - c->width);
	bool last = i + 1 == t->column_count;

	if (t->columns[i].right)
		fprintf(to, "%*s", blanks, "");
	if (c->paint != PAINT_NONE)
		fputs(term_paint(c->paint), to);
	fputs(c->text, to);
	if (c->paint != PAINT_NONE)
		fputs(term_paint(PAINT_NONE), to);
	if (!t->columns[i].right && !last)
		fprintf(to, "%*s", blanks, "");
	fputs(last ? "\n" : "  ", to);
}

void table_print(struct table *t, FILE *to, unsigned indent)
{
	struct pool pool;

	fprintf(to, "%*s", (int)indent, "");
	for (size_t i = 0; i < t->column_count; i++)
		print_cell(t, i, &t->columns[i].head, to);
	for (size_t i = 0; i < t->cells.count; i++) {
		if (i % t->column_count == 0)
			fprintf(to, "%*s", (int)indent, "");
		print_cell(t, i % t->column_count, &t->cells.v[i], to);
	}
	pool = t->pool;
	pool_free(&pool);
}
