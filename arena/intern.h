/* SPDX-License-Identifier: Apache-2.0 */
/* Strings stored once, known by a small number. Any thread; look-up by number takes no lock. */
#ifndef ARENA_INTERN_H
#define ARENA_INTERN_H

#include <stdint.h>

/* @brief Number of @s; 0 for NULL, the empty string, and when there is no memory. */
uint32_t intern(const char *s);
/* @brief The string of @id, "" for 0 or an unknown one. Never freed. */
const char *interned(uint32_t id);

#endif
