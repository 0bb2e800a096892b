/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device operations of arena/device.h, on the real driver. None of them is seen by the
 * wrappers, disturbs a capture of another thread, or changes errno or the current context.
 */
#ifndef SHIM_DEVICE_H
#define SHIM_DEVICE_H

#include "shim/record.h"

/* @brief Fill in the operations. Once, while the shim starts. */
void device_start(void);
/* @brief @ctx is gone, with what was made in it. */
void device_forget(uint64_t ctx);

/* ---- between device.c and device_copy.c ---- */

/* A call into the driver from wherever we are, in a context of our choice. */
struct visit {
	struct own_calls own;
	int saved_errno;
	bool pushed;
};
/* @brief Make @ctx current; NULL: what is current, else the primary context of device 0.
 * visit_end() follows in any case. */
CUresult visit_begin(struct visit *v, CUcontext ctx);
/* @brief The same for the context of @stream. @return also CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
 * @stream captures, or touching it would break a capture. */
CUresult visit_stream(struct visit *v, uint64_t stream);
void visit_end(struct visit *v);
/* @return 0 or -errno, as arena/device.h has it. */
int device_error(CUresult rc);

int device_copy_batch(const struct device_copy *ops, uint32_t count, uint64_t stream);

#endif
