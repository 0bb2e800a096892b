/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tags and reloads: which reload a pass belongs to, what an open value tag stops, when the length
 * of a sequence is known, whose thread has ended, and what puts may not write. Each test has a
 * process of its own.
 */
#include "tags.h"

#include <pthread.h>
#include <unistd.h>

static struct arena *a;

static void start(void)
{
	fake_start();
	a = fake_arena("a");
	scope_enter(a);
}
TestSuite(tag_reload, .init = start);

/* ---- words ---- */

#define BYTES 512u

static void pass(enum arena_kind kind, int calls)
{
	push("t", kind);
	for (int i = 0; i < calls; i++)
		absorbed(served(BYTES));
	pop();
}

/* The verdict of a reload in which every layer was committed. */
static enum reload_verdict end(void)
{
	struct reload_outcome o;
	enum reload_verdict verdict;

	cr_assert_eq(reload_end(reload, &o), 0);
	verdict = o.verdict;
	reload_outcome_free(&o);
	return verdict;
}

static int commit_layer(void)
{
	return reload_commit(a, FAKE_STREAM);
}

static bool message_has(const char *word)
{
	return strstr(arena_message(), word) != NULL;
}

static void refused(const char *word)
{
	cr_assert_eq(commit_layer(), ARENA_E_REFUSED);
	cr_assert(message_has(word), "%s", arena_message());
}

/* What another thread does before it ends; 0 or the line that failed. */
static void in_thread(void *(*run)(void *))
{
	pthread_t thread;
	void *line;

	cr_assert_eq(pthread_create(&thread, NULL, run, NULL), 0);
	pthread_join(thread, &line);
	cr_assert_null(line, "line %lu of the thread", (unsigned long)(uintptr_t)line);
}

#define WANT(condition)                                     \
	do {                                                \
		if (!(condition))                           \
			return (void *)(uintptr_t)__LINE__; \
	} while (0)

/* ---- open tags ---- */

Test(tag_reload, open_value_tag_is_not_committed)
{
	char thread[32];

	pass(ARENA_VALUE, 2);
	open_reload();
	push("t", ARENA_VALUE);
	served(BYTES);
	cr_assert_eq(commit_layer(), ARENA_E_BUSY);
	snprintf(thread, sizeof(thread), "in thread %d;", gettid());
	cr_assert(message_has("layer a: value tag t is open"), "%s", arena_message());
	cr_assert(message_has(thread), "%s", arena_message());
	cr_assert(message_has("pop it before the commit"));
	/* Nothing changed. */
	served(BYTES);
	pop();
	cr_assert_eq(commit_layer(), 0, "%s", arena_message());
	cr_assert_neq(end(), RELOAD_FAIL);
}

static void *push_and_wait(void *arg)
{
	pthread_barrier_t *barrier = arg;

	WANT(scope_enter(a) == 0 && tag_push("t", ARENA_VALUE) == 0);
	pthread_barrier_wait(barrier);
	pthread_barrier_wait(barrier);
	WANT(tag_pop() == 0);
	return NULL;
}

Test(tag_reload, open_value_tag_of_another_thread)
{
	pthread_barrier_t barrier;
	pthread_t thread;
	void *line;

	pass(ARENA_VALUE, 2);
	open_reload();
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, push_and_wait, &barrier);
	pthread_barrier_wait(&barrier);
	cr_assert_eq(commit_layer(), ARENA_E_BUSY);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, &line);
	cr_assert_null(line);
	cr_assert_eq(commit_layer(), 0, "%s", arena_message());
}

Test(tag_reload, other_open_tags_stop_no_commit)
{
	open_reload();
	push("ws", ARENA_SCRATCH);
	served(BYTES);
	scope_enter(fake_arena("b"));
	push("w", ARENA_VALUE);
	cr_assert_eq(commit_layer(), 0, "%s", arena_message());
	pop();
	scope_leave();
	pop();
}

Test(tag_reload, value_tag_is_not_pushed_while_the_layer_is_committed)
{
	cr_assert_eq(tag_commit_begin(a), 0);
	cr_assert_eq(tag_push("t", ARENA_VALUE), ARENA_E_BUSY);
	cr_assert(message_has("push it after the commit"));
	cr_assert_eq(tag_depth, 0);
	push("ws", ARENA_SCRATCH);
	pop();
	tag_commit_end(a, false);
	push("t", ARENA_VALUE);
}

/* ---- which reload a pass belongs to ---- */

Test(tag_reload, pass_of_a_tag_that_was_pushed_before_begin)
{
	pass(ARENA_VALUE, 2);
	push("t", ARENA_VALUE);
	open_reload();
	not_served(BYTES + 1);
	served(BYTES);
	pop();
	refused("another size");
	cr_assert_eq(end(), RELOAD_FAIL);
	/* And well. */
	push("t", ARENA_VALUE);
	open_reload();
	served(BYTES);
	served(BYTES);
	pop();
	cr_assert_eq(commit_layer(), 0, "%s", arena_message());
}

Test(tag_reload, pass_on_both_sides_of_begin)
{
	pass(ARENA_VALUE, 2);
	push("t", ARENA_VALUE);
	served(BYTES);
	open_reload();
	not_served(BYTES);
	pop();
	refused("other side of a reload's begin or end");
}

Test(tag_reload, pass_on_both_sides_of_end)
{
	pass(ARENA_VALUE, 2);
	open_reload();
	push("t", ARENA_VALUE);
	absorbed(served(BYTES));
	close_reload();
	not_served(BYTES);
	pop();
	cr_assert(finds("t#1", "other side"));
	/* Scratch is where it was. */
	push("ws", ARENA_SCRATCH);
	served(BYTES);
	open_reload();
	served(BYTES);
	pop();
	look_from_now();
	cr_assert_eq(findings_count(), 0);
}

Test(tag_reload, misfits_of_all_passes_count_until_the_next)
{
	pass(ARENA_VALUE, 2);
	open_reload();
	pass(ARENA_VALUE, 1);
	pass(ARENA_VALUE, 2);
	refused("1 allocations, 2 in the first pass");
	cr_assert_eq(end(), RELOAD_FAIL);
	open_reload();
	pass(ARENA_VALUE, 2);
	cr_assert_eq(commit_layer(), 0, "%s", arena_message());
	cr_assert_neq(end(), RELOAD_FAIL);
}

Test(tag_reload, reload_is_not_told_what_was_before)
{
	pass(ARENA_VALUE, 2);
	look_from_now();
	pass(ARENA_VALUE, 1);
	cr_assert_eq(findings_count(), 1);
	open_reload();
	cr_assert_neq(end(), RELOAD_FAIL);
	cr_assert_eq(findings_count(), 1); /* of the older snapshot, still */
	look_from_now();
	cr_assert_eq(findings_count(), 0);
}

/* ---- how long a pass is ---- */

Test(tag_reload, longer_pass_extends_until_a_snapshot)
{
	pass(ARENA_VALUE, 1); /* cut short */
	pass(ARENA_VALUE, 3);
	cr_assert_eq(findings_count(), 0);
	pass(ARENA_VALUE, 2); /* shorter than what is there */
	cr_assert(finds("t", "2 allocations, 3 in the first pass"));
	look_from_now();
	push("t", ARENA_VALUE);
	for (int i = 0; i < 3; i++)
		served(BYTES);
	not_served(BYTES);
	pop();
	cr_assert(finds("t#3", "the first pass had fewer calls"));
}

Test(tag_reload, failed_reload_teaches_nothing)
{
	open_reload();
	pass(ARENA_VALUE, 1);
	look_from_now(); /* it is not over yet */
	pass(ARENA_VALUE, 2);
	cr_assert_eq(findings_count(), 0);
	close_reload();
	open_reload();
	pass(ARENA_VALUE, 3);
	cr_assert_eq(commit_layer(), 0, "%s", arena_message());
	cr_assert_neq(end(), RELOAD_FAIL);
	open_reload();
	pass(ARENA_VALUE, 3);
	cr_assert_eq(commit_layer(), 0, "%s", arena_message());
	push("t", ARENA_VALUE);
	for (int i = 0; i < 3; i++)
		served(BYTES);
	not_served(BYTES);
	pop();
	refused("the first pass had fewer calls");
}

/* One that fails for another layer's sake. */
static void fail_elsewhere(void)
{
	cr_assert_eq(fake_give(fake_arena("b"), "x", BYTES, 1, false), 0, "%s", arena_message());
	cr_assert_eq(end(), RELOAD_FAIL);
}

static void mend_elsewhere(void)
{
	cr_assert_eq(fake_give(fake_arena("b"), "x", BYTES, 2, false), 0, "%s", arena_message());
	cr_assert_eq(reload_commit(fake_arena("b"), FAKE_STREAM), 0, "%s", arena_message());
}

Test(tag_reload, committed_layer_has_taught_though_another_failed)
{
	open_reload();
	pass(ARENA_VALUE, 2);
	cr_assert_eq(commit_layer(), 0, "%s", arena_message());
	fail_elsewhere();
	open_reload();
	mend_elsewhere();
	pass(ARENA_VALUE, 1);
	refused("1 allocations, 2 in the first pass");
	cr_assert_eq(end(), RELOAD_FAIL);
	open_reload();
	mend_elsewhere();
	pass(ARENA_VALUE, 2);
	cr_assert_eq(commit_layer(), 0, "%s", arena_message());
	cr_assert_neq(end(), RELOAD_FAIL);
	cr_assert(!reload_unsafe());
}

/* @calls of @bytes in a reload that ends well. */
static void right_pass(int calls, uint64_t bytes)
{
	open_reload();
	push("t", ARENA_VALUE);
	for (int i = 0; i < calls; i++) {
		uint64_t mine = served(bytes);

		memset((void *)(uintptr_t)mine, 7, bytes);
		absorbed(mine);
	}
	pop();
	cr_assert_eq(commit_layer(), 0, "%s", arena_message());
	cr_assert_neq(end(), RELOAD_FAIL);
	cr_assert(!reload_unsafe());
	for (int i = 0; i < calls; i++) {
		char name[16];

		snprintf(name, sizeof(name), "t#%d", i);
		cr_assert_eq(fake_value(fake_find(a, name)), 7);
		cr_assert_eq(fake_find(a, name)->spec.bytes, bytes);
	}
}

Test(tag_reload, wrong_first_passes_leave_no_doubt)
{
	/* The second one has shadows, which are dropped. */
	for (int i = 0; i < 2; i++) {
		open_reload();
		pass(ARENA_VALUE, 3);
		close_reload();
	}
	right_pass(2, BYTES);
	right_pass(2, BYTES);
	/* What was in vain is no part of the pass. */
	open_reload();
	push("t", ARENA_VALUE);
	served(BYTES);
	served(BYTES);
	not_served(BYTES);
	pop();
	refused("the first pass had fewer calls");
	cr_assert_eq(end(), RELOAD_FAIL);
	right_pass(2, BYTES);
}

Test(tag_reload, first_pass_with_other_sizes)
{
	open_reload();
	pass(ARENA_VALUE, 2);
	close_reload();
	right_pass(2, 2 * BYTES);
	right_pass(2, 2 * BYTES);
	/* Of one reload, or known: no. */
	open_reload();
	push("t", ARENA_VALUE);
	not_served(BYTES);
	pop();
	cr_assert_eq(end(), RELOAD_FAIL);
}

Test(tag_reload, first_pass_with_two_sizes)
{
	open_reload();
	pass(ARENA_VALUE, 1);
	push("t", ARENA_VALUE);
	not_served(2 * BYTES);
	pop();
	refused("the slot has another size");
}

Test(tag_reload, what_a_reload_that_passed_has_made_is_judged)
{
	struct slot *s;

	open_reload();
	pass(ARENA_VALUE, 1);
	cr_assert_neq(end(), RELOAD_FAIL); /* a warning: it was not committed */
	open_reload();
	s = fake_find(a, "t#0");
	cr_assert(!s->tentative);
	close_reload();
}

/* ---- threads that end ---- */

static void *end_under_the_tag(void *arg)
{
	uint64_t addr;

	(void)arg;
	WANT(scope_enter(a) == 0 && tag_push("t", ARENA_VALUE) == 0);
	WANT(serve(BYTES, &addr));
	return NULL;
}

static void *end_without_a_call(void *arg)
{
	(void)arg;
	WANT(scope_enter(a) == 0 && tag_push("t", ARENA_VALUE) == 0);
	return NULL;
}

Test(tag_reload, thread_that_ends_pops_its_tag)
{
	pass(ARENA_VALUE, 2);
	look_from_now();
	in_thread(end_under_the_tag);
	push("t", ARENA_VALUE);
	cr_assert(finds("t", "ended before it popped the tag"));
	cr_assert(finds("t", "1 allocations, 2 in the first pass"));
	served(BYTES);
	served(BYTES);
	pop();
	look_from_now();
	in_thread(end_without_a_call);
	pass(ARENA_VALUE, 2);
	cr_assert_eq(findings_count(), 0);
}

/* Its number may be that of any of these by now, of the last one for sure of none that lives. */
Test(tag_reload, thread_that_ends_is_known_by_any_other)
{
	for (int i = 0; i < 50; i++)
		in_thread(end_under_the_tag);
	look_from_now();
	cr_assert_eq(findings_count(), 0); /* the snapshot found the last one */
	pass(ARENA_VALUE, 1);
}

Test(tag_reload, half_pass_of_a_thread_that_ended_is_not_committed)
{
	pass(ARENA_VALUE, 2);
	open_reload();
	in_thread(end_under_the_tag);
	refused("1 allocations, 2 in the first pass");
	cr_assert_eq(end(), RELOAD_FAIL);
}

/* ---- puts ---- */

Test(tag_reload, put_does_not_write_what_is_served)
{
	struct slot *s;
	uint64_t mine;

	pass(ARENA_VALUE, 1);
	s = fake_find(a, "t#0");
	open_reload();
	push("t", ARENA_VALUE);
	mine = served(BYTES);
	memset((void *)(uintptr_t)mine, 1, BYTES);
	cr_assert_eq(fake_give(a, "t#0", BYTES, 9, false), ARENA_E_BUSY);
	cr_assert(message_has("slot t#0 of a: it is being filled by tag t of thread"));
	cr_assert_eq(fake_give(a, "t#0", BYTES, 9, true), ARENA_E_BUSY);
	pop();
	cr_assert_eq(fake_give(a, "t#0", BYTES, 9, false), ARENA_E_BUSY);
	cr_assert(message_has("it is staged by tag t; commit the layer first"));
	/* Also when its user has freed it: it waits for the commit. */
	cr_assert_eq(*(unsigned char *)(uintptr_t)mine, 1);
	absorbed(mine);
	cr_assert_eq(fake_give(a, "t#0", BYTES, 9, false), ARENA_E_BUSY);
	cr_assert_eq(commit_layer(), 0, "%s", arena_message());
	cr_assert_eq(fake_value(s), 1);
	/* After the commit it is a slot like any other. */
	cr_assert_eq(fake_give(a, "t#0", BYTES, 9, false), 0, "%s", arena_message());
	cr_assert_eq(commit_layer(), 0, "%s", arena_message());
	cr_assert_eq(fake_value(s), 9);
}

Test(tag_reload, put_does_not_write_what_the_first_pass_is_served)
{
	uint64_t mine;

	open_reload();
	push("t", ARENA_VALUE);
	mine = served(BYTES);
	memset((void *)(uintptr_t)mine, 1, BYTES);
	cr_assert_eq(fake_give(a, "t#0", BYTES, 9, false), ARENA_E_BUSY);
	cr_assert(message_has("slot t#0 of a: it is being filled by tag t of thread"));
	pop();
	cr_assert_eq(fake_give(a, "t#0", BYTES, 9, false), ARENA_E_BUSY);
	cr_assert(message_has("it is staged by tag t; commit the layer first"));
	cr_assert_eq(fake_give(a, "t#0", BYTES, 9, true), ARENA_E_BUSY);
	cr_assert_eq(commit_layer(), 0, "%s", arena_message());
	cr_assert_eq(fake_value(fake_find(a, "t#0")), 1);
	cr_assert_eq(fake_give(a, "t#0", BYTES, 9, false), 0, "%s", arena_message());
	cr_assert_eq(commit_layer(), 0, "%s", arena_message());
	cr_assert_eq(fake_value(fake_find(a, "t#0")), 9);
}

/* ---- while a reload is ending ---- */

static int allocate_values(void *ctx, uint64_t generation)
{
	(void)ctx;
	(void)generation;
	push("t", ARENA_VALUE);
	not_served(BYTES);
	not_served(BYTES);
	pop();
	push("ws", ARENA_SCRATCH);
	served(BYTES);
	pop();
	return 0;
}

Test(tag_reload, values_are_not_served_while_it_is_ending)
{
	pass(ARENA_VALUE, 2);
	look_from_now();
	cr_assert_eq(cache_register("kv", allocate_values, NULL), 0);
	open_reload();
	pass(ARENA_VALUE, 2);
	cr_assert_eq(commit_layer(), 0, "%s", arena_message());
	cr_assert_neq(end(), RELOAD_FAIL);
	cr_assert_eq(fake_find(a, "t#0")->shadow, 0);
	cr_assert_eq(findings_count(), 0);
	pass(ARENA_VALUE, 2);
	cr_assert_eq(findings_count(), 0);
}
