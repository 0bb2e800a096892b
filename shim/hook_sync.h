/* SPDX-License-Identifier: Apache-2.0 */
/* What the wrappers of synchronisation offer to the core (device.h). */
#ifndef SHIM_HOOK_SYNC_H
#define SHIM_HOOK_SYNC_H

#include <stdbool.h>
#include <stdint.h>

/*
 * @brief device_ops.stream_busy: does the driver say that work is queued on @stream?
 * Any thread. False when it cannot be told without disturbing a capture. errno is kept.
 */
bool sync_stream_busy(uint64_t stream);

#endif
