/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entry points for torch.cuda.memory.CUDAPluggableAllocator, looked up by name (arena(3), section
 * PYTORCH). Under a tag the memory is a slot's, else the driver's.
 *
 * Any thread. Types as PyTorch has them: a cudaStream_t is a pointer.
 */
#ifndef SHIM_PLUGGABLE_H
#define SHIM_PLUGGABLE_H

#include <sys/types.h>

#define EXPORT __attribute__((visibility("default")))

/* @brief Device memory for use on @stream. @return NULL: there is none, which was said. */
EXPORT void *arena_torch_malloc(ssize_t size, int device, void *stream);
/* @brief What arena_torch_malloc() gave; NULL: nothing happens. */
EXPORT void arena_torch_free(void *p, ssize_t size, int device, void *stream);

#endif
