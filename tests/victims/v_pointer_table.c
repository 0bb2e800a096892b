/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blind spot of parameters: a kernel that reads through a table of pointers refers to memory
 * that no parameter names. ARENA_SCAN (said in the .expect) looks behind parameters; what it finds
 * may be a number that looks like an address, so it is told and refuses nothing.
 */
#include "blocks.h"

#include <pthread.h>

#define PLACE 128 /* where in a table */

static CUdeviceptr out;

static void write_word(CUdeviceptr at, uint64_t word)
{
	poke_bytes(at, &word, sizeof(word));
}

/* A graph of a kernel that reads *(int *)*@at into out. */
static CUgraphExec chaser(CUdeviceptr at)
{
	CUgraphExec e;

	if (out == 0)
		out = dev_alloc("out", BIG);
	CAPTURE_EXEC(e, run_chase(out, at));
	return e;
}

/* Other memory for a table whose old one was freed: what runs now is sound. */
static void renew(CUdeviceptr at, int v)
{
	CUdeviceptr other = dev_alloc("other", BIG);

	poke(other, v);
	write_word(at, other);
}

/* @at points to @inner, which @take frees while the graph lives. */
static void freed_behind(CUdeviceptr at, CUdeviceptr inner, void (*take)(CUdeviceptr))
{
	CUgraphExec e;

	poke(inner, 1);
	write_word(at, inner);
	e = chaser(at);
	replay("E", e);
	MUST(peek(out) == 1);
	take(inner);
	renew(at, 2);
	replay("E", e);
	MUST(peek(out) == 2);
	tell("out", peek(out));
}

static void freed(void)
{
	freed_behind(dev_alloc("table", BIG) + PLACE, dev_alloc("inner", BIG), dev_free);
}

/* Virtual memory that the device has access to; and memory of a pool. */
static void freed_mapped(void)
{
	CUdeviceptr table = vmm_reserve("table", BIG, 0);

	vmm_map(table, vmm_create(BIG, false), BIG);
	freed_behind(table, dev_alloc("inner", BIG), dev_free);
}

static void freed_pooled(void)
{
	CUdeviceptr table = async_alloc("table", BIG);

	settle();
	freed_behind(table + PLACE, dev_alloc("inner", BIG), dev_free);
}

/* Blocks of a caching allocator: the driver sees no free. */
static struct pool ordinary;

static void block_back(CUdeviceptr p)
{
	block_free(&ordinary, p);
}

static void freed_block(void)
{
	CUdeviceptr table = block_alloc(&ordinary, "table", BIG);

	freed_behind(table + PLACE, block_alloc(&ordinary, "inner", BIG), block_back);
}

/* The graph goes first, or the parameters that the table was found behind. */
static void healthy(void)
{
	CUdeviceptr table = dev_alloc("table", BIG), inner = dev_alloc("inner", BIG);
	CUdeviceptr second = dev_alloc("second", BIG), kept = dev_alloc("kept", BIG);
	CUgraph g;
	CUgraphExec e;

	poke(kept, 3);
	write_word(table, inner);
	write_word(second, kept);
	CK(cuGraphExecDestroy(chaser(table)));
	e = chaser(table);
	CAPTURE(g, run_chase(out, second));
	CK(cuGraphExecUpdate(e, g, &(CUgraphExecUpdateResultInfo){ 0 }));
	dev_free(inner);
	replay("E", e);
	MUST(peek(out) == 3);
}

/* Counters, strides and what was left behind by others: words that happen to be addresses. */
static void lookalike(void)
{
	CUdeviceptr in = dev_alloc("in", BIG), a = dev_alloc("a", BIG), b = dev_alloc("b", BIG);
	CUgraphExec e;

	out = dev_alloc("out", BIG);
	write_word(in, a + 64);
	write_word(in + N_INTS * sizeof(int) + 1000, b);
	write_word(in + 4096 + 4, a); /* not where a pointer could be */
	CAPTURE_EXEC(e, run_copy(out, in, N_INTS));
	dev_free(a);
	dev_free(b);
	replay("E", e);
}

/* Tables that a kernel of ours cannot or need not read: of hosts, of other contexts. */
static void elsewhere(void)
{
	CUctxCreateParams params = { 0 };
	CUdeviceptr inner = dev_alloc("inner", BIG), managed, theirs, reserved;
	uint64_t *host = host_alloc("host", BIG);
	CUgraphExec e;
	CUcontext other;

	poke(inner, 4);
	CK(cuMemAllocManaged(&managed, BIG, CU_MEM_ATTACH_GLOBAL));
	*(uint64_t *)managed = *host = inner;
	CK(cuCtxCreate(&other, &params, 0, victim_device));
	theirs = dev_alloc("theirs", BIG);
	write_word(theirs, inner);
	CK(cuCtxSetCurrent(victim_context));
	/* Mapped, and nobody has access. */
	CK(cuMemAddressReserve(&reserved, BIG, 0, 0, 0));
	CK(cuMemMap(reserved, BIG, 0, vmm_create(BIG, false), 0));
	e = chaser((CUdeviceptr)(uintptr_t)host);
	chaser(managed);
	chaser(theirs);
	chaser(reserved);
	replay("E", e);
	MUST(peek(out) == 4);
	dev_free(inner);
}

/* ---- while another thread captures ---- */

static pthread_barrier_t together;

static void *captures(void *arg)
{
	CUgraph g;

	victim_thread_start();
	CK(cuStreamBeginCapture(S, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	pthread_barrier_wait(&together);
	pthread_barrier_wait(&together);
	run_set(*(CUdeviceptr *)arg, 5);
	CK(cuStreamEndCapture(S, &g)); /* it was left alone */
	CK(cuGraphDestroy(g));
	return NULL;
}

static void captured(void)
{
	CUdeviceptr table = dev_alloc("table", BIG), inner = dev_alloc("inner", BIG);
	CUgraphExec e;
	pthread_t other;
	CUgraph g;

	write_word(table, inner);
	out = dev_alloc("out", BIG);
	CAPTURE(g, run_chase(out, table));
	pthread_barrier_init(&together, NULL, 2);
	MUST(!pthread_create(&other, NULL, captures, &table));
	pthread_barrier_wait(&together);
	e = instantiate(g);
	pthread_barrier_wait(&together);
	pthread_join(other, NULL);
	dev_free(inner);
	renew(table, 6);
	replay("E", e);
	MUST(peek(out) == 6);
}

VICTIM({ "freed", freed }, { "off", freed }, { "freed-mapped", freed_mapped },
       { "freed-pooled", freed_pooled }, { "freed-block", freed_block }, { "healthy", healthy },
       { "lookalike", lookalike }, { "elsewhere", elsewhere }, { "captured", captured });
