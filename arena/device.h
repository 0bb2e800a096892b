/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the core needs from the outside world; filled once by shim/ (or by a test) before the
 * first event. No function is called with a lock of the core held. Any thread.
 */
#ifndef ARENA_DEVICE_H
#define ARENA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct finding;
struct event;

/* One copy of a publication: device to device, any alignment, no overlap. */
struct device_copy {
	uint64_t dst, src, bytes;
};

/* Contents that are looked at, or zeroed. */
struct device_span {
	uint64_t addr, bytes;
};

/* A scan for words of @spans, at multiples of 8, that point into @ranges, which are sorted. Spans
 * that the current context cannot read get 0 bytes. Hits beyond @cap are only counted. */
struct device_hit {
	uint64_t addr, word;
};
struct device_scan {
	struct device_span *spans;
	const struct device_span *ranges;
	struct device_hit *hits;
	uint32_t spans_count, ranges_count, cap;
	uint64_t found;
};

/* A derivation, ready to run: the name of the kernel, its parameters. */
struct device_derivation {
	const char *name;
	const void *args;
};

/*
 * The second half is for arenas: NULL until the shim fills it (shim/device.c). A call returns 0 or
 * -errno, and then nothing was queued: -EBUSY when it would have disturbed a stream capture,
 * -EIO when the driver refused. A stream is a CUstream.
 */
struct device_ops {
	/* Is work queued on @stream (CUstream, or a key of sync.h) not finished? False when it
	 * cannot be told: the stream is gone or another thread's default stream, or asking would
	 * disturb a capture. */
	bool (*stream_busy)(uint64_t stream);
	/* Is what @event (CUevent), recorded on @stream, stands for finished? False when it
	 * cannot be told. NULL: never. */
	bool (*event_done)(uint64_t event, uint64_t stream);
	/* A finding was made. Called at most once per finding; may be NULL. */
	void (*finding)(const struct finding *f);
	/* The place of the program that a call stack was taken at: a hash of its innermost frames,
	 * 0: unknown. NULL: there are no stacks. */
	uint64_t (*stack_site)(uint32_t stack);

	/* Stream handles up to this one name another stream in each thread or context. */
	uint64_t shared_streams;

	/* Device memory of arenas and shadows, zeroed; the application is not told.
	 * @return also -ENODEV: no such device. */
	int (*alloc)(uint64_t bytes, int32_t device, uint64_t *addr);
	/* The context in which alloc() gets memory for this thread; 0: it cannot be told. NULL:
	 * never. */
	uint64_t (*context)(int32_t device);
	/* How many devices there are. NULL: not told. */
	int32_t (*devices)(void);
	/* Waits until nothing uses it any more. */
	void (*free)(uint64_t addr);
	/* The copies of one publication, in stream order, in one launch where a kernel is at hand.
	 * @return also -EREMOTEIO: the driver refused after a part had been queued. */
	int (*copy)(const struct device_copy *ops, uint32_t count, uint64_t stream);
	/* From wherever @src is, in stream order. */
	int (*put)(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t stream);
	/* In stream order; many in one launch, and -EREMOTEIO, as copy. */
	int (*zero)(const struct device_span *spans, uint32_t count, uint64_t stream);
	/* Launch a derivation, in stream order. @return also -ENOSYS: there is no such kernel. */
	int (*derive)(const struct device_derivation *d, uint64_t stream);
	/* A fingerprint of each span, and for each pair the offset of the first byte that differs,
	 * UINT64_MAX: none, after what is queued on @stream; they wait for it. -ENOSYS as above. */
	int (*fingerprint)(const struct device_span *spans, uint32_t count, uint64_t stream,
			   uint64_t *out);
	int (*compare)(const struct device_copy *pairs, uint32_t count, uint64_t stream,
		       uint64_t *first);
	/* What the memory holds now: nothing is waited for. Without a kernel -ENOSYS; -EBUSY
	 * also while anything captures; -EIO also when it takes too long. */
	int (*scan)(struct device_scan *scan);
	/* A fence comes after what is queued on @stream now; wait lets @stream wait for it. */
	int (*fence)(uint64_t stream, uint64_t *fence);
	/* The same after everything in @context, for a stream that has no name any more. */
	int (*fence_context)(uint64_t context, uint64_t *fence);
	int (*wait)(uint64_t fence, uint64_t stream);
	bool (*fence_done)(uint64_t fence);	/* also when the driver refuses to tell */
	void (*fence_free)(uint64_t fence);
	int (*synchronise)(uint64_t stream);
};

extern struct device_ops device;

/* Where memory is: what is there dies with the context. */
struct device_place {
	uint64_t context; /* 0: not known, it never dies */
	int32_t device;
};

static inline struct device_place device_place(int32_t ordinal)
{
	return (struct device_place){
		.context = device.context != NULL ? device.context(ordinal) : 0,
		.device = ordinal,
	};
}

static inline bool device_place_same(const struct device_place *a, const struct device_place *b)
{
	return a->context == b->context && a->device == b->device;
}

#endif
