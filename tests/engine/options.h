/* SPDX-License-Identifier: Apache-2.0 */
/* The command line. One thread. */
#ifndef ENGINE_OPTIONS_H
#define ENGINE_OPTIONS_H

#include "tests/engine/engine.h"

/* @brief Read it; a wrong one ends the program with one line. */
void options_read(int argc, char **argv, struct options *out);

#endif
