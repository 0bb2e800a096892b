/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The addresses on the stack of the calling thread, by one of two ways.
 *
 * libunwind reads unwind tables and finds every frame. It is looked up at run time with
 * RTLD_LOCAL: as DT_NEEDED its _Unwind_* symbols would replace the C++ unwinder of the host. Only
 * unw_backtrace is asked for. Where it is missing, and where a stack is taken often, frame
 * pointers are followed: a few loads, no tables, no locks. (libunwind keeps a pipe, to ask whether
 * an address can be read. It is opened when the first stack is taken: the driver's own descriptors
 * are open by then, so a host that closed either would have lost CUDA first.)
 *
 * Any thread. Nothing is dereferenced but the thread's own stack between its stack pointer and its
 * upper end, so a register that holds no frame pointer ends the walk and never faults.
 */
#include "shim/unwind.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "arena/atomics.h"

/* There when the host is built with TSan, whose locks do not work any more when libunwind frees the
 * cache of a thread that ends. */
extern void __tsan_init(void) __attribute__((weak));

typedef int (*backtrace_fn)(void **pcs, int max);

enum { UNSOUGHT, SEEKING, FOUND, MISSING };

static _Atomic int state = UNSOUGHT;
/* Written before state becomes FOUND. */
static backtrace_fn unw_backtrace;

void unwind_init(void)
{
	int expected = UNSOUGHT, saved = errno;
	void *lib;

	/* Pairs with the release stores below: who sees FOUND sees the function. Whoever comes
	 * while another thread (or this one, further out) seeks goes by frame pointers. */
	if (!cas_acq_rel(&state, &expected, SEEKING))
		return;
	lib = __tsan_init ? NULL : dlopen("libunwind.so.8", RTLD_LAZY | RTLD_LOCAL);
	if (lib)
		unw_backtrace = (backtrace_fn)dlsym(lib, "unw_backtrace");
	store_release(&state, unw_backtrace ? FOUND : MISSING);
	errno = saved;
}

const char *unwind_name(void)
{
	/* Pairs with unwind_init(). */
	return load_acquire(&state) == FOUND ? "libunwind" : "frame-pointer";
}

size_t unwind_full(uintptr_t *pcs, size_t max)
{
	int n = 0, saved = errno;

	unwind_init();
	/* Pairs with the release store in unwind_init(). */
	if (load_acquire(&state) == FOUND)
		n = unw_backtrace((void **)pcs, (int)max);
	errno = saved;
	return n > 0 ? (size_t)n : unwind_fast(pcs, max);
}

/* The calling thread's stack; both 1 when it cannot be told. */
static _Thread_local uintptr_t stack_base, stack_end;

/* glibc allocates here, so it is asked once a thread. */
static __attribute__((cold, noinline)) void find_stack_slow(void)
{
	int saved = errno;
	pthread_attr_t attr;
	void *base;
	size_t bytes;

	stack_base = stack_end = 1;
	if (pthread_getattr_np(pthread_self(), &attr) == 0) {
		if (pthread_attr_getstack(&attr, &base, &bytes) == 0) {
			stack_base = (uintptr_t)base;
			stack_end = stack_base + bytes;
		}
		pthread_attr_destroy(&attr);
	}
	errno = saved;
}

/* What a frame pointer points to. */
struct frame {
	uintptr_t caller, return_address;
};

__attribute__((no_sanitize("address"))) size_t unwind_fast(uintptr_t *pcs, size_t max)
{
	uintptr_t at = (uintptr_t)__builtin_frame_address(0), low = at;
	size_t n = 0;

	if (stack_end == 0)
		find_stack_slow();
	/* A coroutine runs on a stack whose end nobody knows. */
	if (at < stack_base)
		return 0;
	while (n < max) {
		const struct frame *f = (const struct frame *)at;

		/* Upwards only, aligned, inside the stack: a loop or a fault cannot happen. */
		if (at < low || at % sizeof(uintptr_t) != 0 || at >= stack_end ||
		    stack_end - at < sizeof(*f) || f->return_address < 4096)
			break;
		pcs[n++] = f->return_address;
		low = at + sizeof(*f);
		at = f->caller;
	}
	return n;
}
