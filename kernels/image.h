/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compiled kernels, and what they are called with (kernels.def). image.c embeds them; in a
 * build without nvcc image-fallback.c stands in. Constant.
 */
#ifndef KERNELS_IMAGE_H
#define KERNELS_IMAGE_H

#include <stdint.h>

/* For cuModuleLoadData(); NULL: there are none. */
extern const void *const kernel_image;

/* struct <kernel>_args: the parameters, laid out as the driver packs them. */
#define P(type, name) type name;
#define KERNEL(name, doc, params) struct name##_args { params };
#include "kernels/kernels.def"
#undef KERNEL
#undef P

#endif
