/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal: colour, pager, hostile text, units, tables, progress. One thread. */
#ifndef CTL_TERM_H
#define CTL_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model.h"

struct args;

/* @brief Decide on colour and whether a pager shows what is printed. Once. */
void term_open(const struct args *a);
/* @brief Show it, and wait for the pager. @return false: the output could not be written (said on
 * stderr). */
bool term_close(void);

enum paint { PAINT_NONE, PAINT_BOLD, PAINT_DIM, PAINT_GOOD, PAINT_WARN, PAINT_BAD };
/* @brief The escape sequence that begins or ends it; "" without colour. */
const char *term_paint(enum paint p);
enum paint term_verdict_paint(enum verdict v);
enum paint term_severity_paint(enum severity s);

/*
 * @brief Make a string harmless: control characters, ESC, broken UTF-8 and the characters that
 * turn the direction of text become \xNN; the rest is copied.
 * @return bytes without the NUL; at most @size - 1 are written.
 */
size_t term_clean(char *buf, size_t size, const char *s);
/* @brief The same to a stream. */
void term_text(FILE *to, const char *s);
/* @brief The same for CSV: quoted when it must be. */
void term_csv(FILE *to, const char *s);
/* @brief A JSON string with its quotes; broken UTF-8 becomes U+FFFD. */
void term_json(FILE *to, const char *s);

/* @brief "1.5 MiB", "0 B"; "2.25 ms". @return buf */
#define UNIT_SIZE 24
char *unit_bytes(char buf[UNIT_SIZE], uint64_t bytes);
char *unit_ns(char buf[UNIT_SIZE], uint64_t ns);
/* @brief "2026-11-29 21:44:38.123 UTC". @return buf */
#define TIME_SIZE 40
char *unit_time(char buf[TIME_SIZE], uint64_t time_ns);

/* A table with aligned columns. */
struct table;
struct table *table_new(size_t columns, const char *const *heads);
/* @param right: the column is aligned to the right (numbers). */
void table_align(struct table *t, size_t column, bool right);
/* @brief Add a cell; after the last column a new row begins. @paint of this cell. */
void table_cell(struct table *t, enum paint paint, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* @brief Print with @indent spaces before each row, and free. */
void table_print(struct table *t, FILE *to, unsigned indent);

/* @brief Say on stderr (a terminal) how far @what is; nothing before a second has passed. */
void progress(const char *what, uint64_t done, uint64_t total);
void progress_end(void);
/* @brief Say nothing of it from now on. */
void progress_off(void);

#endif
