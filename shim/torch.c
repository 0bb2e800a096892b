/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: hear of every block that PyTorch's caching allocator hands out or takes back.
 *
 * libc10_cuda.so tells each one to c10::reportMemoryUsageToProfiler(), which libc10.so exports and
 * which does nothing unless a profiler records. The preloaded library exports the same name, so it
 * is found first; it records and passes the call on. In PyTorch both calls are made under the lock
 * of the device's allocator: a block is told after it was carved, and again before anybody else
 * can get it. CPU tensors are told only while a profiler records memory.
 *
 * The real function is looked up among the loaded objects: libc10.so is opened by Python without
 * RTLD_GLOBAL, so that RTLD_NEXT does not reach it.
 *
 * Not told: allocations by PYTORCH_NO_CUDA_MEMORY_CACHING, by pluggable allocators and by the
 * backend cudaMallocAsync. Each of these is a driver call of its own.
 *
 * Threads: any. No state but the two pointers.
 */
#include "shim/torch.h"

#include <string.h>

#include "arena/block.h"
#include "arena/reload.h"
#include "shim/coverage.h"
#include "shim/elf.h"
#include "shim/hook_capture.h"
#include "shim/options.h"
#include "shim/shim.h"
#include "shim/stacks.h"
#include "shim/walk.h"

/* The name with its namespace, up to the types of the parameters. */
#define REPORT "_ZN3c1027reportMemoryUsageToProfilerEP"

/* c10::Device: two bytes, passed in one register. */
struct c10_device {
	int8_t type, index;
};
enum { C10_CPU = 0, C10_CUDA = 1 };

typedef void (*report_fn)(void *ptr, int64_t bytes, uint64_t allocated, uint64_t reserved,
			  struct c10_device where);

/* PyTorch 2 counts in size_t, PyTorch 1 in int64_t. */
__attribute__((visibility("default"))) void
torch_report(void *ptr, int64_t bytes, uint64_t allocated, uint64_t reserved,
	     struct c10_device where) __asm__(REPORT "vlmmNS_6DeviceE");
__attribute__((visibility("default"))) void
torch_report_1(void *ptr, int64_t bytes, uint64_t allocated, uint64_t reserved,
	       struct c10_device where) __asm__(REPORT "vlllNS_6DeviceE");

/* ---- recording ---- */

/* @return BLOCK_SHARDS: not followed. */
static unsigned shard_of(struct c10_device where)
{
	uint64_t follow = option_value(OPTION_BLOCKS);

	if (where.type == C10_CUDA && follow != BLOCKS_OFF)
		return (uint8_t)where.index % BLOCK_SHARD_HOST;
	return where.type == C10_CPU && follow == BLOCKS_ALL ? BLOCK_SHARD_HOST : BLOCK_SHARDS;
}

/* Too many to take a stack each, unless somebody waits for what a reload does. */
static uint32_t alloc_stack(void)
{
	if (option_value(OPTION_STACKS) != STACKS_ALL && !reload_open())
		return 0;
	return stack_here(STACK_BLOCK);
}

static __attribute__((cold, noinline)) void freed_slow(struct range *r)
{
	/* What a capture gives back is nobody's fault. */
	block_freed(r, block_pooled(r) ? 0 : stack_here(STACK_SEGMENT));
}

/* Is it of a capture of this thread? On which stream it was asked for is not told, so what is for
 * a stream that is not captured passes for the graph's. */
static bool captures(struct c10_device where)
{
	return capture_here(where.type == C10_CUDA ? where.index : -1);
}

static __attribute__((noinline)) void record(void *ptr, int64_t bytes, struct c10_device where)
{
	uint64_t base = (uint64_t)(uintptr_t)ptr;
	unsigned shard;
	struct range *r;

	/* Acquire pairs with the release in shim_start(): the options are read. Who never used CUDA
	 * has nothing that could be captured, and must not start the shim. */
	if (load_acquire(&shim_state) != SHIM_ON || base == 0)
		return;
	shard = shard_of(where);
	if (shard == BLOCK_SHARDS)
		return;
	if (bytes > 0) {
		block_opened(shard, base, (uint64_t)bytes, captures(where), alloc_stack());
	} else if (bytes < 0) {
		r = block_closed(shard, base);
		if (__builtin_expect(r != NULL, 0))
			ERRNO_KEPT(freed_slow(r));
	}
}

/* ---- passing on ---- */

struct search {
	const char *name;
	void *own, *found;
};

static int search_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct elf_object o = elf_read_phdr(info);
	struct search *s = arg;
	void *p = elf_function(&o, s->name);

	if (p != s->own)
		s->found = p;
	return s->found != NULL;
}

static void *other_than(void *own, const char *name)
{
	struct search s = { .name = name, .own = own };

	dl_iterate_phdr(search_object, &s);
	return s.found;
}

static void nobody(void *ptr, int64_t bytes, uint64_t allocated, uint64_t reserved,
		   struct c10_device where)
{
}

/* Threads that race store equal values. */
static report_fn resolve(report_fn _Atomic *at, report_fn own, const char *name)
{
	report_fn fn = (report_fn)other_than((void *)own, name);

	if (fn == NULL)
		fn = nobody;
	/* Pairs with the acquires in TORCH_REPORT(). */
	store_release(at, fn);
	return fn;
}

static inline bool is_of_device(struct c10_device where)
{
	return !SELDOM(where.type != C10_CUDA) && !SELDOM((uint8_t)where.index >= BLOCK_SHARD_HOST);
}

/* Is that all there is to do? Nothing is quick before the shim is on and a block was recorded. */
static inline bool record_quick(void *ptr, int64_t bytes, struct c10_device where)
{
	struct block_shard *s = &block_shards[(uint8_t)where.index];

	/* Else the compiler reckons the address anew at each use. */
	__asm__("" : "+r"(s));
	return is_of_device(where) && block_event_quick(s, (uint64_t)(uintptr_t)ptr, bytes);
}

static inline void record_other(void *ptr, int64_t bytes, struct c10_device where)
{
	if (!is_of_device(where) ||
	    !block_enter(&block_shards[(uint8_t)where.index], (uint64_t)(uintptr_t)ptr, bytes))
		record(ptr, bytes, where);
}

#define REPORT_PARAMS \
	void *ptr, int64_t bytes, uint64_t allocated, uint64_t reserved, struct c10_device where
#define REPORT_ARGS ptr, bytes, allocated, reserved, where

/* PyTorch 2 reports each block. */
static QUICK_WORD report_fn _Atomic torch_report_next;

/* All ways out are tail jumps, so that the quick one needs no frame. */
#define TORCH_REPORT(function, types)                                                   \
	static report_fn _Atomic function##_next;                                       \
	static __attribute__((cold, noinline)) void function##_find(REPORT_PARAMS)      \
	{                                                                               \
		resolve(&function##_next, function, REPORT types)(REPORT_ARGS);         \
	}                                                                               \
	static report_fn _Atomic function##_next = function##_find;                     \
	static QUICK_CODE __attribute__((noinline)) void function##_slow(REPORT_PARAMS) \
	{                                                                               \
		record_other(ptr, bytes, where);                                        \
		load_acquire (&function##_next)(REPORT_ARGS);                           \
	}                                                                               \
	QUICK_CODE void function(REPORT_PARAMS)                                         \
	{                                                                               \
		if (!SELDOM(!record_quick(ptr, bytes, where)))                          \
			load_acquire (&function##_next)(REPORT_ARGS);                   \
		else                                                                    \
			function##_slow(REPORT_ARGS);                                   \
	}

TORCH_REPORT(torch_report, "vlmmNS_6DeviceE")
TORCH_REPORT(torch_report_1, "vlllNS_6DeviceE")

/* ---- coverage ---- */

/* What libc10_cuda.so may call, and whom it would reach without us. */
static struct route {
	const char *name;
	report_fn own;
	void *other;
} routes[] = {
	{ REPORT "vlmmNS_6DeviceE", torch_report, NULL },
	{ REPORT "vlllNS_6DeviceE", torch_report_1, NULL },
};

/* Is one of the slots for @way, and not bound past us? (One that is not bound yet will be ours.) */
static bool has_slot(const struct elf_object *o, const ElfW(Rela) * r, size_t count,
		     const struct route *way)
{
	for (; r != NULL && count != 0; r++, count--) {
		uint32_t symbol = ELF64_R_SYM(r->r_info);

		if (symbol != 0 && strcmp(o->strings + o->symbols[symbol].st_name, way->name) == 0)
			return *(void **)(o->bias + r->r_offset) != way->other;
	}
	return false;
}

static int check_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	static const char allocator[] = "libc10_cuda.so";
	struct elf_object o = elf_read_phdr(info);

	if (o.symbols == NULL || o.strings == NULL ||
	    strncmp(o.soname, allocator, strlen(allocator)) != 0)
		return 0;
	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
		if (has_slot(&o, o.rela, o.rela_count, &routes[i]) ||
		    has_slot(&o, o.jumps, o.jumps_count, &routes[i]))
			return 0;
	coverage_note(COVERAGE_TORCH_BLOCKS_UNSEEN, elf_basename(info->dlpi_name));
	return 0;
}

void torch_check(void)
{
	if (option_value(OPTION_BLOCKS) == BLOCKS_OFF)
		return;
	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
		routes[i].other = other_than((void *)routes[i].own, routes[i].name);
	dl_iterate_phdr(check_object, NULL);
}
