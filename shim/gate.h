/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two look-up gates share: from a name, or from an address that the real driver gave
 * out, to the wrapper of that very ABI. Any thread, at any time after relocation; no locks.
 */
#ifndef SHIM_GATE_H
#define SHIM_GATE_H

#include <stdbool.h>

/* @brief Number of the row with this exported symbol, -1 when there is none. */
int gate_row(const char *symbol);

/*
 * @brief @address is what the next dlsym answered for the symbol of @row on an explicit handle.
 * @return the wrapper, if it is the real driver's function; else @address.
 */
void *gate_from_symbol(int row, void *address);

/*
 * @brief @address is what the real driver answered when asked for an ABI of @base.
 * @return the wrapper of the row with this address; else @address, and it is counted if other
 * ABIs of @base are hooked.
 */
void *gate_from_driver(const char *base, void *address);

/*
 * @brief @address is what the next dlsym answered for @name, a function of CUPTI, on an explicit
 * handle. @return ours, if the shim has to know of its use; else @address. guests.c; the no-op
 * build has none.
 */
void *gate_guest(const char *name, void *address) __attribute__((weak));

/* @brief Is this the first copy of the shim in the process? Others only forward. */
bool gate_first(void);

#endif
