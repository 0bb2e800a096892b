/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses on the call stack of the current thread. Any thread; never faults, never symbolises. */
#ifndef SHIM_UNWIND_H
#define SHIM_UNWIND_H

#include <stddef.h>
#include <stdint.h>

/* @brief Look for libunwind now, so that no hook has to. Also done at the first unwind_full(). */
void unwind_init(void);
/* @brief With unwind tables, else by frame pointers. @return frames, innermost first. */
size_t unwind_full(uintptr_t *pcs, size_t max);
/* @brief Only by frame pointers: ends at the first function that was compiled without. */
size_t unwind_fast(uintptr_t *pcs, size_t max);
const char *unwind_name(void);

#endif
