/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for the embedded kernels where there is no nvcc: enough for the simulated driver. */
#include "image.h"

const unsigned long long victim_image[] = { 0 };
const unsigned long long victim_image_cond[] = { 0 };
