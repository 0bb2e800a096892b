/* SPDX-License-Identifier: Apache-2.0 */
/* Equal strings, kept once. One thread. */
#ifndef CTL_INTERN_H
#define CTL_INTERN_H

#include "pool.h"

struct intern;

/* @brief Lies in @p, and so do its strings. */
struct intern *intern_new(struct pool *p);
/* @brief The one copy of @s; NULL stays NULL. */
const char *intern_text(struct intern *i, const char *s);

#endif
