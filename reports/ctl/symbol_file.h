/* SPDX-License-Identifier: Apache-2.0 */
/* The file that a module's names are read from. One thread, that of the child. */
#ifndef CTL_SYMBOL_FILE_H
#define CTL_SYMBOL_FILE_H

#include "symbol_reader.h"

/*
 * @brief Open the module's file, or the one with its debug information: of the same build.
 * @param folders separated by colons, or NULL. @param a state, is_unverified and why are set.
 * @param path out: its name, SYMBOL_TEXT_MAX bytes.
 * @return descriptor, or -1: a->state says why not.
 */
int symbol_file_open(const struct symbol_ref *ref, const char *folders, struct symbol_answer *a,
		     char *path);

#endif
