/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded objects by number: path and build-id of what an address lies in. Any thread. */
#ifndef SHIM_MODULES_H
#define SHIM_MODULES_H

#include <stdbool.h>

#include "arena/stack.h"

/* @brief Name the object that @pc lies in; outside of all objects module is 0. */
struct stack_frame modules_frame(uintptr_t pc);
/* @return NULL for a number that was never given out. */
const struct stack_module *modules_get(uint32_t number);
/* @brief Does @pc lie in the shim itself? */
bool modules_own(uintptr_t pc);
/* @brief Does @pc lie in any object? True when that cannot be told without a lock. */
bool modules_cover(uintptr_t pc);
/* @brief In a forked child: a lock that another thread held is free. */
void modules_forget(void);

#endif
