/* SPDX-License-Identifier: Apache-2.0 */
/* Where in a program something happened, in words. One thread. */
#ifndef CTL_PLACE_H
#define CTL_PLACE_H

#include "model.h"

/*
 * @brief A place that is the same in another run of the same build: the innermost Python frame,
 * else two native ones as module and offset; "" if it is not known.
 * @return from @p
 */
const char *place_stable(struct pool *p, const struct report *r, uint64_t stack);
/*
 * @brief The frames of a stack, innermost first, the Python ones before the native ones, with
 * symbols where symbolise_init() allows. At most @max of each.
 */
struct texts place_frames(struct pool *p, const struct report *r, uint64_t stack, size_t max);

/* @brief A kernel's name as it was written, without its parameters. @return from @p */
const char *place_kernel(struct pool *p, const char *mangled);
/* @brief Without the folders. */
const char *place_file(const char *path);

#endif
