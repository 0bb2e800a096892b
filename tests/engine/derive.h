/* SPDX-License-Identifier: Apache-2.0 */
/* Post-load processing. One thread. */
#ifndef ENGINE_DERIVE_H
#define ENGINE_DERIVE_H

#include "tests/engine/engine.h"

/* @brief Compute every derived tensor of @l: from and to fresh values, which have memory. */
void derive_layer(struct layer *l);

#endif
