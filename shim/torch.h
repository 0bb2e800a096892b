/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of PyTorch's caching allocator (arena/block.h), as the process tells them. Any thread. */
#ifndef SHIM_TORCH_H
#define SHIM_TORCH_H

/* @brief Note in the coverage if PyTorch's CUDA allocator is loaded, and tells somebody else. For
 * the last report; takes the linker's lock. */
void torch_check(void);

#endif
