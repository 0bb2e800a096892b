/* SPDX-License-Identifier: Apache-2.0 */
/* Job: stand in for image.c in a build without nvcc. No code, so no threads. */
#include "kernels/decode/decode.h"

const void *const decode_image = NULL;
