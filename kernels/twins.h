/* SPDX-License-Identifier: Apache-2.0 */
/* The C twins of the derivations: name_twin(args) for each row. Any thread; pure. */
#ifndef KERNELS_TWINS_H
#define KERNELS_TWINS_H

#include "kernels/derive.h"
#include "kernels/image.h"

#define KERNEL(name, doc, params)
#define DERIVE(name, doc, params, ranges) void name##_twin(const void *args);
#include "kernels/kernels.def"
#undef KERNEL

#endif
