/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel that steers a conditional node. It stands apart because it must be linked against
 * the device runtime, and what was linked holds no PTX.
 */
#include <cuda_runtime.h>

extern "C" __global__ void k_cond(cudaGraphConditionalHandle handle, int value)
{
	cudaGraphSetConditional(handle, (unsigned int)value);
}
