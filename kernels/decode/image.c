/* SPDX-License-Identifier: Apache-2.0 */
/* Job: hand out the fatbin that bin2c made a constant of. No code, so no threads. */
#include "kernels/decode/decode.h"

extern const unsigned long long decode_fatbin[];

const void *const decode_image = decode_fatbin;
