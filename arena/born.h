/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State that lies in memory which a capture allocated. What a graph allocates in its pool it writes
 * before it reads it, so each replay overwrites what anybody else put there: a cache that was made
 * lazily inside the capture, lives on as state of the model, and is loaded by a reload. Whether
 * such memory is state or an output of the graph cannot be told from its address. So a slot that is
 * bound there says nothing; it is a finding (born-in-capture) when a reload writes it while an exec
 * lives whose own capture allocated the memory, and which may write it: it is the destination of a
 * copy or a fill, or an argument of a kernel. Who only reads it, and graphs of other captures,
 * overwrite nothing.
 *
 * What a reload copies there it loads: an error. Of kernels it is not known which of their
 * arguments they write, but a client may know what was written (arena_reload_wrote()). That may
 * have been a load that converts, or the clearing of an output, so it is a warning; and nothing
 * if something was captured while the reload was open, which writes tensors on paper only. A client
 * may not know which of the views of some memory was written: so there is one warning for each
 * allocation, and none if a copy into it was seen. Fills by the driver do not count: caches are
 * cleared by them.
 *
 * Threads: any.
 */
#ifndef ARENA_BORN_H
#define ARENA_BORN_H

#include "arena/snapshot.h"

/* 1 while a reload is open: writes are told to born_written(). */
extern _Atomic uint32_t born_watched;

/* Writes that were not noted: there were too many in a reload, or no memory. */
extern counter_t born_left_out;

enum born_how { BORN_COPIED, BORN_WRITTEN, BORN_HOWS };

/* @brief A reload begins (nothing was written yet) or has ended. The caller serialises. */
void born_watch(bool on);
/* @brief A capture begins, in any thread, whether or not another one is open. */
void born_capture_begins(void);
/* @brief [addr, addr + size_bytes) was written, outside of captures and graphs. */
void born_written(uint64_t addr, uint64_t size_bytes, enum born_how how);
/* @brief Append what the open reload wrote into slots of @a (NULL: of all arenas) for nothing.
 * Takes the registry lock, and the holders lock inside it. @return 0 or -ENOMEM. */
int born_verify(const struct arena *a, struct slot_findings *out);

#endif
