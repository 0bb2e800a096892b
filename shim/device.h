/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device operations of arena/device.h, on the real driver. None of them is seen by the
 * wrappers, disturbs a capture of another thread, or changes errno or the current context.
 */
#ifndef SHIM_DEVICE_H
#define SHIM_DEVICE_H

#include "arena/device.h"
#include "shim/record.h"

/* @brief Fill in the operations. Once, while the shim starts. */
void device_start(void);
/* @brief @ctx is gone, with what was made in it. */
void device_forget(uint64_t ctx);

/* ---- between device*.c and place.c ---- */

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

/*
 * A context in which something was copied or fenced. Objects are never freed: a context that comes
 * back under an old handle is another place.
 */
struct place;
/* @brief That of the current context, made at its first use. @return NULL: no memory. */
struct place *place_here(void);
bool place_is_gone(const struct place *p);
void place_forget(uint64_t ctx);

/* Operations of device.h. */
int device_fence(uint64_t stream, uint64_t *fence);
int device_fence_context(uint64_t context, uint64_t *fence);
int device_wait(uint64_t fence, uint64_t stream);
bool device_fence_done(uint64_t fence);
void device_fence_free(uint64_t fence);
int device_copy(const struct device_copy *ops, uint32_t count, uint64_t stream);
int device_zero(const struct device_span *spans, uint32_t count, uint64_t stream);
int device_derive(const struct device_derivation *d, uint64_t stream);
int device_fingerprint(const struct device_span *spans, uint32_t count, uint64_t stream,
		       uint64_t *out);
int device_compare(const struct device_copy *pairs, uint32_t count, uint64_t stream,
		   uint64_t *first);
int device_scan(struct device_scan *scan);

#endif
