/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept for a context: the kernels that are loaded there, and tables for those that work on
 * many slots at once. Private to device_*.c and place.c. Any thread, inside a visit of the context.
 */
#ifndef SHIM_PLACE_H
#define SHIM_PLACE_H

#include "kernels/publish.h"
#include "shim/device.h"

/*
 * A piece of pinned memory and one of the device, for a table and a number for each of its rows.
 * It is filled on the host, sent along on the stream, and free again when the event behind the
 * launch is done.
 */
struct table {
	struct table *next;
	struct publish_op *host;
	CUdeviceptr device;
	uint32_t cap;
	CUevent done; /* behind its newest use */
};

static inline uint64_t *table_numbers(const struct table *t)
{
	return (uint64_t *)(t->host + t->cap);
}

static inline CUdeviceptr table_numbers_device(const struct table *t)
{
	return t->device + t->cap * sizeof(*t->host);
}

/* @brief The kernel of this name. @return NULL: it is not to be had (no image for this device, a
 * build without nvcc). */
CUfunction place_kernel(const struct place *p, const char *name);
/* @brief May a kernel of @p touch @addr? Peers may not have been introduced. */
bool place_is_near(const struct place *p, uint64_t addr);

/* @brief A table with room that the device is done with. */
CUresult table_get(struct place *p, uint32_t count, struct table **out);
/* @brief It is free when what is queued on @s now is done. */
void table_put_behind(struct place *p, struct table *t, CUstream s);
/*
 * @brief Send the first @count rows, and launch @kernel over their tiles.
 * @param blocks for so many tiles. @param numbers is the fourth parameter, for kernels that have
 * one.
 */
CUresult table_launch(const struct table *t, uint32_t count, CUfunction kernel,
		      uint32_t (*blocks)(uint64_t tiles), CUstream s);

#endif
