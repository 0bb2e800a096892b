/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled kernels (kernels.cu, kernels_cond.cu), embedded by bin2c. The simulated driver takes
 * any bytes; without nvcc, image_none.c stands in and the victims run on the simulation only. */
#ifndef VICTIM_IMAGE_H
#define VICTIM_IMAGE_H

extern const unsigned long long victim_image[];
extern const unsigned long long victim_image_cond[];

#endif
