/* SPDX-License-Identifier: Apache-2.0 */
/* In place of symbol_reader.c in a build without libdw. One thread. */
#include <stdio.h>

#include "symbol_reader.h"

void symbol_reader_init(const char *folders)
{
}

void symbol_reader_find(const struct symbol_ref *ref, struct symbol_answer *a)
{
	a->state = SYMBOL_OFF;
	snprintf(a->why, sizeof(a->why), "this arenactl was built without libdw");
}
