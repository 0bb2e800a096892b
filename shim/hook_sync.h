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
/* @brief device_ops.event_done, with the same care. */
bool sync_event_is_done(uint64_t event, uint64_t stream);

/* @brief Would a call on @stream become a part of a capture, or break one? Any thread. */
bool sync_must_not_ask(uint64_t stream);

#endif
