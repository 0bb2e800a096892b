/* SPDX-License-Identifier: Apache-2.0 */
/* The shapes that Marlin takes. Any thread; pure. */
#ifndef KERNELS_MARLIN_H
#define KERNELS_MARLIN_H

#include <stdint.h>

/*
 * @brief Round a weight [k, n] up to a shape that Marlin takes: N by 64 and K by 128, or N by 128
 * and K by 64, whichever is smaller, in whole groups. A shape that is taken stays.
 * @param group_size rows a scale, or -1. Weights in act-order are never padded: do not ask.
 */
void marlin_pad(uint32_t *k, uint32_t *n, int32_t group_size);

#endif
