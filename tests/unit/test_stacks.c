/* SPDX-License-Identifier: Apache-2.0 */
/* Native stacks: frames, modules, de-duplication, limits, other stacks, threads. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>

#include "called.h"
#include "shim/coverage.h"
#include "shim/modules.h"
#include "shim/options.h"
#include "shim/stacks.h"
#include "shim/unwind.h"

static void set_stacks(const char *assignment)
{
	options_init((char *const[]){ (char *)assignment, NULL });
}

/* Is a return address of @id inside the 256 bytes of code from @function on? */
static bool has_frame_in(uint32_t id, const void *function)
{
	struct stack_frame frames[STACK_DEPTH_MAX], at = modules_frame((uintptr_t)function);
	size_t count = stack_frames(id, frames, STACK_DEPTH_MAX);

	for (size_t i = 0; i < count; i++)
		if (frames[i].module == at.module && frames[i].offset > at.offset &&
		    frames[i].offset < at.offset + 256)
			return true;
	return false;
}

/* Is libunwind here? Stacks in full need it. */
static bool full(void)
{
	unwind_init();
	return strcmp(stack_unwinder(), "libunwind") == 0;
}

static CALLED uint32_t leaf(enum stack_use use)
{
	uint32_t id = stack_here(use);

	__asm__ volatile("" ::: "memory");
	return id;
}

static CALLED uint32_t middle(enum stack_use use)
{
	uint32_t id = leaf(use);

	__asm__ volatile("" ::: "memory");
	return id;
}

Test(stacks, a_full_one_names_its_callers_innermost_first)
{
	struct stack_frame frames[STACK_DEPTH_MAX];
	uint32_t id = middle(STACK_SEGMENT);
	size_t count = stack_frames(id, frames, STACK_DEPTH_MAX);

	cr_assert_neq(id, 0);
	cr_expect_geq(count, 4);
	cr_expect(has_frame_in(id, leaf));
	cr_expect(has_frame_in(id, middle));
	cr_expect_lt(frames[0].offset - modules_frame((uintptr_t)leaf).offset, 256);
}

Test(stacks, a_frequent_one_goes_by_frame_pointers)
{
	uint32_t id = middle(STACK_FREQUENT);

	cr_assert_neq(id, 0);
	cr_expect(has_frame_in(id, leaf));
	cr_expect(has_frame_in(id, middle));
	cr_expect_str_eq(stack_unwinder(), "frame-pointer", "libunwind was not needed");
}

Test(stacks, off_takes_none)
{
	set_stacks("ARENA_STACKS=off");
	cr_expect_eq(middle(STACK_SEGMENT), 0);
	cr_expect_eq(middle(STACK_FINDING), 0);
}

Test(stacks, all_unwinds_frequent_ones_in_full)
{
	set_stacks("ARENA_STACKS=all");
	cr_assert_neq(middle(STACK_FREQUENT), 0);
	cr_expect(strcmp(stack_unwinder(), "libunwind") == 0 || !full());
}

Test(stacks, without_libunwind_frame_pointers_serve)
{
	struct rlimit before, none;
	uint32_t id;
	int error;

	middle(STACK_FREQUENT);	/* glibc opens a file to tell where the stack is */
	getrlimit(RLIMIT_NOFILE, &before);
	none = (struct rlimit){ 0, before.rlim_max };
	setrlimit(RLIMIT_NOFILE, &none);	/* so that it cannot be opened */
	errno = EDOM;
	id = middle(STACK_SEGMENT);
	error = errno;
	setrlimit(RLIMIT_NOFILE, &before);
	cr_expect_eq(error, EDOM);
	cr_expect_str_eq(stack_unwinder(), "frame-pointer");
	cr_expect(has_frame_in(id, leaf));
	cr_expect(has_frame_in(id, middle));
}

Test(stacks, the_same_stack_is_stored_once)
{
	uint32_t first = 0, other;

	for (int i = 0; i < 100; i++) {
		uint32_t id = middle(STACK_SEGMENT);

		first = first ? first : id;
		cr_expect_eq(id, first);
	}
	other = middle(STACK_SEGMENT);
	cr_expect_neq(other, first, "another call site is another stack");
}

Test(stacks, own_frames_are_left_out)
{
	struct stack_frame frames[STACK_DEPTH_MAX];
	uint32_t own = modules_frame((uintptr_t)dlsym(RTLD_DEFAULT, "modules_own")).module;
	size_t count = stack_frames(middle(STACK_SEGMENT), frames, STACK_DEPTH_MAX);

	cr_assert_neq(own, 0);
	for (size_t i = 0; i < count; i++)
		cr_expect_neq(frames[i].module, own);
}

Test(stacks, unknown_ids_have_no_frames)
{
	struct stack_frame frame;

	cr_expect_eq(stack_frames(0, &frame, 1), 0);
	cr_expect_eq(stack_frames(1, &frame, 1), 0);
	middle(STACK_SEGMENT);
	cr_expect_eq(stack_frames(2, &frame, 1), 0);
	cr_expect_eq(stack_frames(UINT32_MAX, &frame, 1), 0);
	cr_expect_null(stack_module(0));
	cr_expect_null(stack_module(STACK_MODULE_MAX));
}

Test(stacks, max_limits_what_is_told)
{
	struct stack_frame frames[2] = { { 0, 0 }, { 7, 7 } };

	cr_expect_eq(stack_frames(middle(STACK_SEGMENT), frames, 1), 1);
	cr_expect_eq(frames[1].module, 7);
}

/* ---- modules ---- */

/* The build-id as the toolchain wrote it, read from the file by other means. */
static const char *file_build_id(const char *path)
{
	static char id[256];
	char command[512];
	FILE *out;

	snprintf(command, sizeof(command),
		 "readelf -n %s | sed -n 's/.*Build ID: //p' | tr -d '\\n'", path);
	out = popen(command, "r");
	cr_assert_not_null(out);
	id[fread(id, 1, sizeof(id) - 1, out)] = '\0';
	pclose(out);
	return id;
}

static void expect_module_of(const void *address, const char *file)
{
	struct stack_frame f = modules_frame((uintptr_t)address);
	const struct stack_module *m = stack_module(f.module);
	Dl_info info;

	cr_assert_not_null(m);
	cr_assert(dladdr(address, &info));
	cr_expect_eq(f.offset, (uintptr_t)address - (uintptr_t)info.dli_fbase);
	cr_expect(strstr(m->path, file), "%s", m->path);
	cr_expect_eq(m->path[0], '/');
	cr_expect_geq(strlen(m->build_id), 16, "no build-id in %s", m->path);
	cr_expect_str_eq(m->build_id, file_build_id(m->path));
}

Test(modules, the_program_a_library_and_their_build_ids)
{
	expect_module_of((const void *)middle, "test_stacks");
	expect_module_of(dlsym(RTLD_DEFAULT, "getenv"), "libc.so");
}

Test(modules, outside_of_all_is_the_address_itself)
{
	struct stack_frame f = modules_frame(4096);

	cr_expect_eq(f.module, 0);
	cr_expect_eq(f.offset, 4096);
	cr_expect_not(modules_cover(4096));
	cr_expect(modules_cover((uintptr_t)middle));
}

Test(modules, each_has_one_number)
{
	uint32_t number = modules_frame((uintptr_t)middle).module;

	cr_expect_eq(modules_frame((uintptr_t)leaf).module, number);
	cr_expect_neq(modules_frame((uintptr_t)dlsym(RTLD_DEFAULT, "getenv")).module, number);
}

Test(modules, one_of_another_namespace_has_a_path)
{
	void *other = dlmopen(LM_ID_NEWLM, "libjansson.so.4", RTLD_NOW), *here;
	uint32_t number;
	const struct stack_module *m;

	if (!other)
		cr_skip_test("no second namespace here: %s", dlerror());
	number = modules_frame((uintptr_t)dlsym(other, "json_object")).module;
	m = stack_module(number);
	cr_assert_not_null(m);
	cr_expect(strstr(m->path, "libjansson"), "%s", m->path);
	here = dlopen("libjansson.so.4", RTLD_NOW);
	cr_assert_not_null(here);
	cr_expect_neq(modules_frame((uintptr_t)dlsym(here, "json_object")).module, number,
		      "the same file at another place is another module");
}

/* ---- walks that must end well ---- */

#if defined(__x86_64__)
/* A caller that uses the frame pointer register for something else. */
size_t walk_with_register(uintptr_t *pcs, size_t max, uintptr_t value);
__asm__(".text\n"
	".type walk_with_register, @function\n"
	"walk_with_register:\n"
	"	push %rbp\n"
	"	mov %rdx, %rbp\n"
	"	call unwind_fast@PLT\n"
	"	pop %rbp\n"
	"	ret\n"
	".size walk_with_register, . - walk_with_register\n");

Test(unwind, a_register_that_is_no_frame_pointer_ends_the_walk)
{
	uintptr_t pcs[STACK_DEPTH_MAX], loop[2] = { (uintptr_t)loop, (uintptr_t)middle };
	uintptr_t fake[4] = { 0, (uintptr_t)leaf, 0, 0 }, low = (uintptr_t)pcs - 65536;
	const uintptr_t bad[] = { 0, 1, 8, (uintptr_t)fake + 1, low, (uintptr_t)middle, UINTPTR_MAX,
				  UINTPTR_MAX - 7, (uintptr_t)1 << 63, 0x7ffffffff000 };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_expect_eq(walk_with_register(pcs, STACK_DEPTH_MAX, bad[i]), 1, "%zu", i);
	/* One more frame, then nothing. */
	cr_expect_eq(walk_with_register(pcs, STACK_DEPTH_MAX, (uintptr_t)fake), 2);
	cr_expect_eq(pcs[1], (uintptr_t)leaf);
	/* A frame that is its own caller is met once. */
	cr_expect_eq(walk_with_register(pcs, STACK_DEPTH_MAX, (uintptr_t)loop), 2);
}

/* stack_here() with a frame pointer of our choice, always from the same place. */
static CALLED uint32_t take_with_register(uintptr_t value)
{
	uint32_t (*volatile take)(enum stack_use) = stack_here;
	uint32_t id;

	__asm__ volatile("push %%rbp\n\tmov %%rsp, %%rbx\n\tand $-16, %%rsp\n\t"
			 "mov %[value], %%rbp\n\tcall *%[take]\n\t"
			 "mov %%rbx, %%rsp\n\tpop %%rbp"
			 : "=a"(id)
			 : [take] "r"(take), [value] "r"(value), "D"(STACK_FREQUENT)
			 : "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
	return id;
}

/* What a register held is no part of a stack: it would make every stack look new. */
Test(stacks, addresses_outside_of_all_modules_end_a_frequent_one)
{
	uintptr_t one[2] = { 0, 0x123456789a }, two[2] = { 0, 0x123456789b };
	uint32_t id = take_with_register((uintptr_t)one);

	cr_assert_neq(id, 0);
	cr_expect_eq(take_with_register((uintptr_t)two), id);
}
#endif

/* ---- other stacks ---- */

static ucontext_t home, away;
static uint32_t away_full, away_fast;

static void on_another_stack(void)
{
	away_fast = middle(STACK_FREQUENT);
	away_full = middle(STACK_SEGMENT);
}

Test(stacks, a_coroutine_does_not_fault)
{
	static char stack[1 << 16];

	getcontext(&away);
	away.uc_stack.ss_sp = stack;
	away.uc_stack.ss_size = sizeof(stack);
	away.uc_link = &home;
	makecontext(&away, on_another_stack, 0);
	swapcontext(&home, &away);
	cr_expect_eq(away_fast, 0, "nobody knows where this stack ends");
	cr_expect(has_frame_in(away_full, middle) || !full());
}

static CALLED bool agrees(uint32_t *with, uint32_t id)
{
	bool same = *with == 0 || *with == id;

	*with = id;
	return same;
}

/* Small, also with what sanitizers add: see has_frame_in(). */
static void *thread(void *arg)
{
	uint32_t *ids = arg;

	for (int i = 0; i < 1000; i++)
		if (!agrees(ids + i % 2, middle(i % 2 ? STACK_SEGMENT : STACK_FREQUENT)))
			return "not the same";
	return NULL;
}

Test(stacks, threads_agree)
{
	pthread_t threads[8];
	uint32_t ids[8][2] = { { 0 } };
	void *problem;

	/* Who comes while another thread looks for libunwind goes by frame pointers. */
	unwind_init();
	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, thread, ids[i]);
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], &problem);
		cr_expect_null(problem, "%s", (const char *)problem);
		cr_expect_eq(ids[i][0], ids[0][0]);
		/* libunwind does not always show the frame below the thread's first function, so
		 * these need not be equal. */
		cr_expect(has_frame_in(ids[i][1], middle));
		cr_expect(has_frame_in(ids[i][1], thread));
	}
}

/* ---- limits ---- */

/* A call path for each number: the bits choose between two call sites. */
static CALLED uint32_t path(unsigned bits, unsigned left)
{
	uint32_t id;

	if (left == 0)
		id = stack_here(STACK_FREQUENT);
	else if (bits & 1)
		id = path(bits >> 1, left - 1) ^ (left > 1000);
	else
		id = path(bits >> 1, left - 1);
	__asm__ volatile("" : "+r"(id));
	return id;
}

static CALLED uint32_t numbered(unsigned bits)
{
	uint32_t id = path(bits, 16);

	__asm__ volatile("" : "+r"(id));
	return id;
}

Test(stacks, the_limit_is_counted_and_known_ones_still_found)
{
	static uint32_t ids[STACK_COUNT_MAX + 101];
	/* Nothing in the loop depends on what came before, and its end is not known: a compiler that
	 * made two call sites of the one would make two stacks of each. */
	volatile unsigned paths = STACK_COUNT_MAX + 100;

	for (unsigned i = 0; i <= paths; i++)
		ids[i] = numbered(i % paths);
	cr_assert_neq(ids[0], 0);
	cr_assert_eq(ids[paths - 1], 0, "room for one too many");
	cr_expect_eq(ids[paths], ids[0], "a stack that is known is still found");
	cr_expect_gt(coverage[COVERAGE_STACKS_LEFT_OUT], 0);
}

Test(stacks, a_deep_one_keeps_its_innermost_frames)
{
	struct stack_frame frames[STACK_DEPTH_MAX];
	uint32_t id = path(0, 200);

	cr_expect_eq(stack_frames(id, frames, STACK_DEPTH_MAX), STACK_DEPTH_MAX);
}

Test(stacks, forgetting_frees_the_locks)
{
	cr_assert_neq(middle(STACK_SEGMENT), 0);
	stacks_forget();
	cr_expect_neq(leaf(STACK_SEGMENT), 0);
}
