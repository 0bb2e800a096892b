/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: fill in what the ledger wants to know beyond the arguments of a call - the context, the
 * stack - and keep errno. No policy but two tables: which kinds belong to a context, and how
 * dear a stack may be.
 *
 * What belongs to a context follows the documentation of cuCtxDestroy: cuMemAlloc, managed and
 * page-locked memory, imports, globals. Virtual memory belongs to the process, pools and graph
 * memory to the device.
 *
 * Threads: any, at the same time. No state but the first context that was ever seen.
 */
#include <errno.h>

#include "arena/exec.h"
#include "arena/order.h"
#include "arena/stage.h"
#include "arena/storage.h"
#include "arena/tag.h"
#include "shim/device.h"
#include "shim/record.h"

#define KIND(kind)	 (1u << RANGE_##kind)
#define KINDS_OF_CONTEXT (KIND(DEVICE) | KIND(MANAGED) | KIND(HOST) | KIND(IPC) | KIND(GLOBAL))
#define KINDS_FREQUENT	 (KIND(POOL) | KIND(GRAPH))

/* The first context that owned a range; a second one sets the flag for ever. */
static _Atomic uint64_t first_context;
static _Atomic bool many_contexts;

static void context_seen(uint64_t context)
{
	uint64_t first = load_relaxed(&first_context);

	if (first == context || context == 0)
		return;
	/* Pairs with nothing: whoever loses the race compares with the winner's context. */
	if (first == 0 && cas_acq_rel(&first_context, &first, context))
		return;
	if (first != context)
		store_relaxed(&many_contexts, true);
}

bool record_many_contexts(void)
{
	return load_relaxed(&many_contexts);
}

static uint64_t context_here(void)
{
	CUcontext ctx = NULL;

	/* Legal in any state of any capture, and on a thread without a context. */
	shim_inside++;
	if (REAL(cuCtxGetCurrent)(&ctx) != CUDA_SUCCESS)
		ctx = NULL;
	shim_inside--;
	context_seen((uint64_t)(uintptr_t)ctx);
	return (uint64_t)(uintptr_t)ctx;
}

static uint32_t stack_of(enum range_kind kind)
{
	return stack_here((KINDS_FREQUENT >> kind) & 1 ? STACK_FREQUENT : STACK_SEGMENT);
}

static struct range_desc describe(enum range_kind kind, uint64_t base, uint64_t size_bytes,
				  uint64_t scope)
{
	return (struct range_desc){
		.base = base,
		.size_bytes = size_bytes,
		.kind = kind,
		.context = (KINDS_OF_CONTEXT >> kind) & 1 ? context_here() : 0,
		.scope = scope,
		.stack = stack_of(kind),
	};
}

void record_open(enum range_kind kind, uint64_t base, uint64_t size_bytes, uint64_t scope)
{
	int saved = errno;

	if (base != 0 && size_bytes != 0) {
		struct range_desc d = describe(kind, base, size_bytes, scope);

		ledger_open(&d);
	}
	errno = saved;
}

void record_open_once(enum range_kind kind, uint64_t base, uint64_t size_bytes, uint64_t scope)
{
	struct range_view v;

	if (ledger_find(base, &v) && v.base == base && v.size_bytes == size_bytes)
		return;
	record_open(kind, base, size_bytes, scope);
}

void record_open_imported(uint64_t base)
{
	int saved = errno;
	struct own_calls own = own_calls_begin();
	CUdeviceptr start = 0;
	size_t size_bytes = 0;
	CUresult rc = REAL(cuMemGetAddressRange_v2)(&start, &size_bytes, base);

	own_calls_end(&own);
	/* A driver that does not tell: at least the first byte is known. */
	record_open(RANGE_IPC, base, rc == CUDA_SUCCESS ? start + size_bytes - base : 1, 0);
	errno = saved;
}

struct range *record_close(uint64_t base, enum stack_use use)
{
	int saved = errno;
	struct range *r = NULL;

	if (base != 0)
		r = ledger_close_begin(base, stack_here(use));
	errno = saved;
	return r;
}

void record_settle(struct range *r, CUresult rc)
{
	int saved = errno;

	ledger_close_end(r, rc == CUDA_SUCCESS);
	errno = saved;
}

struct unmap_batch record_close_scope(enum range_kind kind, uint64_t scope)
{
	int saved = errno;
	struct unmap_batch b = { 0 };

	ledger_scope_begin(kind, scope, stack_of(kind), &b);
	errno = saved;
	return b;
}

void record_closed_scope(struct unmap_batch *b, CUresult rc)
{
	int saved = errno;

	ledger_unmap_end(b, rc == CUDA_SUCCESS);
	errno = saved;
}

void record_map(uint64_t base, uint64_t size_bytes, uint64_t handle)
{
	int saved = errno;
	struct range_desc d = describe(RANGE_MAPPED, base, size_bytes, handle);

	ledger_map(&d);
	errno = saved;
}

struct unmap_batch record_unmap(uint64_t base, uint64_t size_bytes)
{
	int saved = errno;
	struct unmap_batch b = { 0 };

	ledger_unmap_begin(base, size_bytes, stack_of(RANGE_MAPPED), &b);
	errno = saved;
	return b;
}

void record_context_gone(uint64_t context)
{
	int saved = errno;

	if (context != 0) {
		exec_close_context(context);
		ledger_close_context(context);
		/* From here on nothing is asked of what was made in it. */
		device_forget(context);
		order_context_gone(context);
		tag_context_gone(context);
		stage_context_gone(context);
		storage_context_gone(context);
	}
	errno = saved;
}

struct own_calls own_calls_begin(void)
{
	struct own_calls own = { .mode = CU_STREAM_CAPTURE_MODE_RELAXED };

	shim_inside++;
	own.exchanged = REAL(cuThreadExchangeStreamCaptureMode)(&own.mode) == CUDA_SUCCESS;
	return own;
}

void own_calls_end(struct own_calls *own)
{
	if (own->exchanged)
		REAL(cuThreadExchangeStreamCaptureMode)(&own->mode);
	shim_inside--;
}
