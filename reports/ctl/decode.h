/* SPDX-License-Identifier: Apache-2.0 */
/* A line of a report as a struct, by tables of the keys that are known. One thread. */
#ifndef CTL_DECODE_H
#define CTL_DECODE_H

#include "json.h"
#include "model.h"
#include "pool.h"

/* Most that is told of a bad line. */
#define DECODE_WHY_MAX 160

/*
 * @brief Decode one line.
 * @param bytes is changed; bytes[length] is writable.
 * @param out is filled but for file and number; lies in @pool and @bytes.
 * @return false: the line is worth nothing, @why says why. A type that is not known is no
 * mistake: LINE_UNKNOWN.
 */
bool decode_line(char *bytes, size_t length, struct pool *pool, struct line *out,
		 char why[DECODE_WHY_MAX]);

#endif
