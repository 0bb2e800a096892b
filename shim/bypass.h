/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways past the shim that the dynamic linker leaves open, looked for when a report is written.
 * (gate_dlsym.c counts when such ways are opened.) Any thread; takes the linker's own lock.
 */
#ifndef SHIM_BYPASS_H
#define SHIM_BYPASS_H

/*
 * @brief Call @found for each symbol of a loaded object that is bound past the shim: a function
 * of hooks.def bound to the driver itself, or dlsym/dlvsym bound to the C library; and, with
 * symbol "libcuda.so.1", for each driver in another link namespace.
 * @return how many were found. Strings are valid during the call only.
 */
typedef void (*bypass_found_fn)(void *arg, const char *object, const char *symbol);
unsigned bypass_scan(bypass_found_fn found, void *arg);

#endif
