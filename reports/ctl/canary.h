/* SPDX-License-Identifier: Apache-2.0 */
/* What this program does when it is its own test: "arenactl --canary [abi]". One thread. */
#ifndef CTL_CANARY_H
#define CTL_CANARY_H

#include <stdbool.h>

/* First word of the command line. */
#define CANARY_WORD "--canary"
/* Second word: only say which library is there. */
#define CANARY_ABI "abi"

/* @param uses_cuda false: says which library is there, and no more. @return exit status. */
int canary_main(bool uses_cuda);

#endif
