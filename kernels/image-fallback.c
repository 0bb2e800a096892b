/* SPDX-License-Identifier: Apache-2.0 */
/* Job: stand in for image.c in a build without nvcc. No code, so no threads. */
#include <stddef.h>

#include "kernels/image.h"

const void *const kernel_image = NULL;
