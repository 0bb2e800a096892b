/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child of symbolise.c: reads files, which may be hostile, and answers on a pipe.
 * One thread; it may crash or stall, and is then replaced.
 */
#ifndef CTL_SYMBOL_READER_H
#define CTL_SYMBOL_READER_H

#include "symbolise.h"

/* Longest string of an answer; longer ones are cut. */
#define SYMBOL_TEXT_MAX 4096

/* What is put into an answer; strings may be temporary. */
struct symbol_answer {
	enum symbol_state state;
	bool is_unverified;
	size_t count;
	struct {
		char *function, *file; /* owned; NULL: none */
		unsigned line;
		bool is_inlined;
	} at[SYMBOL_FRAMES_MAX];
	char why[SYMBOL_TEXT_MAX];
};

/* @brief Once, before the others. @param folders as symbolise_init(). */
void symbol_reader_init(const char *folders);
/* @param a zeroed. */
void symbol_reader_find(const struct symbol_ref *ref, struct symbol_answer *a);
/* @return for free(); NULL: not mangled, or there is nobody to ask. */
char *symbol_demangle(const char *name);

#endif
