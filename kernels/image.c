/* SPDX-License-Identifier: Apache-2.0 */
/* Job: hand out the fatbin that bin2c made a constant of. No code, so no threads. */
#include "kernels/image.h"

extern const unsigned long long kernels_fatbin[];

const void *const kernel_image = kernels_fatbin;
