/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that every call of the public API begins with. Any thread; each fails with a message. */
#ifndef SHIM_API_H
#define SHIM_API_H

#include "arena/registry.h"

/* @brief Is the library at work in this process? 0 or ARENA_E_ABSENT. Starts it if need be. */
int api_on(void);
/* @brief "@call: @what is NULL", if it is. */
int api_pointer(const char *call, const char *what, const void *p);
/* @brief A name: not NULL, not empty, not too long. */
int api_name(const char *call, const char *what, const char *name);
/* @brief api_on(), the arena, the name of a slot. */
int api_slot(const char *call, const struct arena *a, const char *slot);

#endif
