/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staged publication: a put writes a shadow; a layer commit copies all shadows of the layer into
 * the live storage in one batch, ordered after replays in flight and before the next (order.h), so
 * that no replay sees a half-published layer. Padding is a part of the value: what a put does
 * not write is zero.
 *
 * Errors, with a message: ARENA_E_INVALID more bytes than the slot has; ARENA_E_NOMEM;
 * ARENA_E_DEVICE the driver refused; ARENA_E_BUSY a stream is being captured, or a launch does not
 * come back. After each of them nothing was published, and live values are as they were. Only
 * ARENA_E_UNSAFE says that the driver gave up half way, and live values may be mixed.
 *
 * Threads: any, without the registry lock unless it is said. Two threads may stage different
 * slots; who stages a slot while its layer is published gets either publication.
 */
#ifndef ARENA_STAGE_H
#define ARENA_STAGE_H

#include "arena/registry.h"
#include "arena/snapshot.h"

/* @brief Copy @src, on a device or the host, into the shadow of @s, on @stream. When the device
 * refuses, the slot is not staged, and lost. */
int stage_put(struct slot *s, uint64_t src, uint64_t bytes, uint64_t stream);
/* @brief The same into the live storage, at once. */
int stage_direct(struct slot *s, uint64_t src, uint64_t bytes, uint64_t stream);
/* @brief Zero the live storage, at once. */
int stage_zero(struct slot *s, uint64_t stream);

/*
 * @brief For value tags (tag.h): @addr, zeroed memory of device.alloc() with the slot's bytes, is
 * the shadow of @s from now on. Registry lock held.
 * @return the shadow that it replaces, 0: none; for stage_give_back(), without the lock.
 *
 * Wherever stage.c gives a shadow back to the device it asks tag_keeps_shadow(addr) first: true
 * means that a tagged user still holds it, and it must not be freed. Who writes the shadow orders
 * that before the stream of the publication.
 */
uint64_t stage_adopt(struct slot *s, uint64_t addr);
void stage_give_back(struct arena *a, uint64_t addr);

/* @brief Publish every shadow of @a on @stream: all or nothing. */
int stage_publish(struct arena *a, uint64_t stream);
/*
 * @brief The same as a part of a commit: derivations of @a run before (derived.h).
 * @param found what they find is appended. @param bytes out: how much was published.
 * @return also ARENA_E_REFUSED: an error was found, nothing was published.
 */
int stage_commit(struct arena *a, uint64_t stream, struct slot_findings *found, uint64_t *bytes);
/* @brief Drop the shadow @addr of @s. @return false: it is not that any more. */
bool stage_drop(struct slot *s, uint64_t addr);
/* @brief Drop the shadows of @a; live values stay, and what was staged is lost. */
void stage_discard(struct arena *a);
/* @brief The shadow of @s is gone. Registry lock held. */
void stage_lost(struct slot *s);
/* @brief The driver has destroyed @context: what was staged there is lost. No lock held. */
void stage_context_gone(uint64_t context);
/* @brief At the end of a reload: device memory that no shadow uses goes back. Waits for it. */
void stage_trim(void);

/* Most bytes of shadows at one time since the reset. */
uint64_t stage_peak_bytes(void);
void stage_peak_reset(void);

#endif
