/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the scan of device.h, by the kernel arena_scan (kernels/maintain.h).
 *
 * It runs on a stream of its own that waits for no other and makes none wait. A kernel must not
 * touch what its context cannot read, as that would be the end of the context: so the driver is
 * asked about both ends of each span. The program's work may keep the device busy for ever, waiting
 * for the thread that is here: so this one waits SCAN_WAIT_NS at most. A kernel that is given up
 * runs later; freeing memory waits for it, and its table is not used again before it is done.
 *
 * Threads: any. No lock.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "arena/device.h"
#include "kernels/maintain.h"
#include "shim/place.h"

#define SCAN_WAIT_NS 500000000ull
#define SCAN_POLL_NS 20000

/* Where things are in a table; the same on the host and on the device. Rows come first. */
struct layout {
	size_t ranges, job, hits, end;
};

static struct layout layout_of(const struct device_scan *s)
{
	struct layout l;

	l.ranges = s->spans_count * sizeof(struct publish_op);
	l.job = l.ranges + s->ranges_count * sizeof(struct scan_range);
	l.hits = l.job + sizeof(struct scan_job);
	l.end = l.hits + s->cap * sizeof(struct scan_hit);
	return l;
}

/* ---- what can be read ---- */

static bool ask(void *answer, CUpointer_attribute attribute, uint64_t addr)
{
	return REAL(cuPointerGetAttribute)(answer, attribute, addr) == CUDA_SUCCESS;
}

/* Memory of this context, or of none (virtual memory, pools), that its device has access to. A
 * driver that does not tell of access is believed about memory of this context. */
static bool is_readable(const struct place *p, uint64_t addr)
{
	CUcontext here = NULL, ctx = NULL;
	uint64_t flags = 0; /* wider than any answer */
	unsigned int type = 0;

	if (!place_is_near(p, addr) || !ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, addr) ||
	    type != CU_MEMORYTYPE_DEVICE || REAL(cuCtxGetCurrent)(&here) != CUDA_SUCCESS)
		return false;
	if (ask(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, addr) && ctx != NULL && ctx != here)
		return false;
	if (!ask(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, addr))
		return ctx == here;
	return (flags & CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ) != 0;
}

/* @return the number of rows. */
static uint32_t fill_rows(const struct place *p, struct publish_op *ops, struct device_scan *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->spans_count; i++) {
		struct device_span *span = &s->spans[i];

		if (span->bytes < 8 || !is_readable(p, span->addr) ||
		    !is_readable(p, span->addr + span->bytes - 8))
			span->bytes = 0;
		else
			ops[n++] = (struct publish_op){ .src = span->addr, .bytes = span->bytes };
	}
	return n;
}

static void fill_job(const struct table *t, const struct layout *l, const struct device_scan *s)
{
	char *host = (char *)t->host;
	struct scan_range *ranges = (struct scan_range *)(host + l->ranges);
	struct scan_job *job = (struct scan_job *)(host + l->job);

	for (uint32_t i = 0; i < s->ranges_count; i++)
		ranges[i] = (struct scan_range){ s->ranges[i].addr,
						 s->ranges[i].addr + s->ranges[i].bytes };
	*job = (struct scan_job){
		.ranges = t->device + l->ranges,
		.hits = t->device + l->hits,
		.lowest = ranges[0].base,
		.highest = ranges[s->ranges_count - 1].end,
		.ranges_count = s->ranges_count,
		.cap = s->cap,
	};
}

/* ---- the launch ---- */

static CUresult queue(const struct table *t, const struct layout *l, uint32_t rows, CUfunction f,
		      CUstream s)
{
	uint64_t ops = t->device, job = t->device + l->job, tiles = publish_plan(t->host, rows);
	void *params[] = { &ops, &rows, &tiles, &job };
	CUresult rc = REAL(cuMemcpyHtoDAsync_v2)(t->device, t->host, l->hits, s);

	if (rc == CUDA_SUCCESS)
		rc = REAL(cuLaunchKernel)(f, maintain_blocks(tiles), 1, 1, PUBLISH_THREADS, 1, 1, 0,
					  s, params, NULL);
	if (rc == CUDA_SUCCESS)
		rc = REAL(cuMemcpyDtoHAsync_v2)((char *)t->host + l->job, t->device + l->job,
						l->end - l->job, s);
	return rc;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* @return CUDA_ERROR_NOT_READY: given up. */
static CUresult wait_for(CUstream s)
{
	const struct timespec pause = { .tv_nsec = SCAN_POLL_NS };
	uint64_t begin = now_ns();
	CUresult rc;

	while ((rc = REAL(cuStreamQuery)(s)) == CUDA_ERROR_NOT_READY &&
	       now_ns() - begin < SCAN_WAIT_NS)
		nanosleep(&pause, NULL);
	return rc;
}

static void take_hits(const struct table *t, const struct layout *l, struct device_scan *s)
{
	const struct scan_job *job = (const void *)((const char *)t->host + l->job);
	const struct scan_hit *hits = (const void *)((const char *)t->host + l->hits);

	s->found = job->found;
	for (uint32_t i = 0; i < s->cap && i < job->found; i++)
		s->hits[i] = (struct device_hit){ hits[i].address, hits[i].word };
}

static CUresult scan_on(CUstream own, struct place *p, CUfunction f, struct device_scan *scan)
{
	const struct layout l = layout_of(scan);
	const size_t row = sizeof(struct publish_op);
	struct table *t;
	CUresult rc = table_get(p, (uint32_t)((l.end + row - 1) / row), &t);
	uint32_t rows;

	if (rc != CUDA_SUCCESS)
		return rc;
	rows = fill_rows(p, t->host, scan);
	if (rows != 0) {
		fill_job(t, &l, scan);
		rc = queue(t, &l, rows, f, own);
		if (rc == CUDA_SUCCESS)
			rc = wait_for(own);
		if (rc == CUDA_SUCCESS)
			take_hits(t, &l, scan);
	}
	table_put_behind(p, t, own);
	return rc;
}

static int scan_here(struct device_scan *scan)
{
	struct place *p = place_here();
	CUfunction f = p != NULL ? place_kernel(p, "arena_scan") : NULL;
	CUstream own;
	CUresult rc;

	if (f == NULL)
		return -ENOSYS;
	rc = REAL(cuStreamCreate)(&own, CU_STREAM_NON_BLOCKING);
	if (rc == CUDA_SUCCESS) {
		rc = scan_on(own, p, f, scan);
		REAL(cuStreamDestroy_v2)(own);
	}
	return device_error(rc);
}

int device_scan(struct device_scan *scan)
{
	struct visit v;
	int err = device_error(visit_begin(&v, NULL));

	scan->found = 0;
	/* Of any thread: what follows may be forbidden, or wait for what the captured work does. */
	if (err == 0 && load_relaxed(&captures_active) != 0)
		err = -EBUSY;
	if (err == 0 && scan->spans_count != 0 && scan->ranges_count != 0)
		err = scan_here(scan);
	visit_end(&v);
	return err;
}
