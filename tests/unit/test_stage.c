/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shadows, publications and their order among launches, on a device whose memory is the host's:
 * copies happen at once, what is waited for is written down.
 */
#include "world.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "arena/binding.h"
#include "arena/registry.h"
#include "arena/stage.h"
#include "arena/storage.h"
#include "arena/sync.h"
#include "arena/tag.h"

#define P	0x9000ull /* the stream of publications */
#define A	0x5000ull
#define B	0x6000ull
#define SHARED	2ull
#define CONTEXT 1ull /* of world_exec() */
#define G	0x100ull
#define BYTES	1024u

/* ---- the device ---- */

enum call { NONE, ALLOC, COPY, PUT, ZERO, FENCE, FENCE_CONTEXT, WAIT, SYNCHRONISE };

static struct {
	char log[4096];
	enum call fails; /* which call, */
	unsigned after;	 /* how many of them work before, */
	unsigned more;	 /* how many more of them fail */
	int err;
	_Atomic bool fences_pass;
	_Atomic bool hold_copy, copy_begun; /* a copy stays in the driver */
	unsigned fences, fences_freed, allocs, frees;
	uint64_t alloc_bytes;
} dev;

static void note(const char *format, ...)
{
	size_t n = strlen(dev.log);
	va_list args;

	va_start(args, format);
	vsnprintf(dev.log + n, sizeof(dev.log) - n, format, args);
	va_end(args);
}

static int fails(enum call c)
{
	if (dev.fails != c || (dev.after != 0 && dev.after-- != 0))
		return 0;
	if (dev.more-- == 0) {
		dev.more = 0;
		dev.fails = NONE;
	}
	return dev.err;
}

static int dev_alloc(uint64_t bytes, int32_t ordinal, uint64_t *addr)
{
	int err = fails(ALLOC);

	if (err)
		return err;
	*addr = (uint64_t)aligned_alloc(4096, (bytes + 4095) & ~4095ull);
	memset((void *)*addr, 0, bytes);
	dev.allocs++;
	dev.alloc_bytes += bytes;
	return 0;
}

static void dev_free(uint64_t addr)
{
	dev.frees++;
	free((void *)addr);
}

static int dev_copy(const struct device_copy *ops, uint32_t count, uint64_t stream)
{
	int err = fails(COPY);

	note("copy%u@%lx ", count, (unsigned long)stream);
	if (err != 0 && err != -EREMOTEIO)
		return err;
	store_release(&dev.copy_begun, true);
	while (load_acquire(&dev.hold_copy))
		sched_yield();
	for (uint32_t i = 0; i < (err ? count / 2 : count); i++)
		memcpy((void *)ops[i].dst, (void *)ops[i].src, ops[i].bytes);
	return err;
}

static int dev_put(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t stream)
{
	int err = fails(PUT);

	if (err == 0)
		memcpy((void *)dst, (void *)src, bytes);
	return err;
}

static int dev_zero(const struct device_span *spans, uint32_t count, uint64_t stream)
{
	int err = fails(ZERO);

	note("zero%u@%lx ", count, (unsigned long)stream);
	if (err != 0 && err != -EREMOTEIO)
		return err;
	for (uint32_t i = 0; i < (err ? count / 2 : count); i++)
		memset((void *)spans[i].addr, 0, spans[i].bytes);
	return err;
}

static int dev_fence(uint64_t stream, uint64_t *fence)
{
	int err = fails(FENCE);

	if (err)
		return err;
	note("fence@%lx ", (unsigned long)stream);
	*fence = ++dev.fences;
	return 0;
}

static int dev_fence_context(uint64_t context, uint64_t *fence)
{
	int err = fails(FENCE_CONTEXT);

	if (err)
		return err;
	note("context%lu ", (unsigned long)context);
	*fence = ++dev.fences;
	return 0;
}

static int dev_wait(uint64_t fence, uint64_t stream)
{
	int err = fails(WAIT);

	if (err == 0)
		note("wait@%lx ", (unsigned long)stream);
	return err;
}

static bool dev_fence_done(uint64_t fence)
{
	return load_acquire(&dev.fences_pass);
}

static void dev_fence_free(uint64_t fence)
{
	dev.fences_freed++;
}

static int dev_synchronise(uint64_t stream)
{
	note("sync@%lx ", (unsigned long)stream);
	return fails(SYNCHRONISE);
}

static void start(void)
{
	world_start();
	device.shared_streams = SHARED;
	device.alloc = dev_alloc;
	device.free = dev_free;
	device.copy = dev_copy;
	device.put = dev_put;
	device.zero = dev_zero;
	device.fence = dev_fence;
	device.fence_context = dev_fence_context;
	device.wait = dev_wait;
	device.fence_done = dev_fence_done;
	device.fence_free = dev_fence_free;
	device.synchronise = dev_synchronise;
}

TestSuite(stage, .init = start, .timeout = 20);

/* What the device was asked since the last look. */
#define LOG(expected)                                \
	do {                                         \
		cr_assert_str_eq(dev.log, expected); \
		dev.log[0] = 0;                      \
	} while (0)

/* ---- slots and launches ---- */

static struct arena *layer(const char *path)
{
	struct arena *a;

	registry_lock();
	a = registry_open(path);
	registry_unlock();
	cr_assert_not_null(a);
	return a;
}

static struct slot *value_of(struct arena *a, const char *name, uint64_t bytes)
{
	struct arena_spec spec = ARENA_SPEC_INIT;
	struct slot *s;
	uint64_t base;

	spec.bytes = bytes;
	cr_assert_eq(storage_take(a, 0, bytes, &base), 0);
	registry_lock();
	s = slot_add(a, name, ARENA_VALUE, &spec);
	binding_set(s, base);
	registry_unlock();
	return s;
}

static int put_bytes(struct slot *s, int value, unsigned bytes, uint64_t stream)
{
	static char source[1 << 16];

	memset(source, value, bytes);
	return stage_put(s, (uint64_t)source, bytes, stream);
}

static int put(struct slot *s, int value)
{
	return put_bytes(s, value, BYTES, P);
}

static int live(const struct slot *s, unsigned at)
{
	return ((const unsigned char *)s->base)[at];
}

static bool launch(uint64_t handle, uint64_t stream)
{
	bool ok = guard_launch(handle, stream);

	if (ok)
		guard_launched();
	return ok;
}

static uint32_t mark(uint64_t handle)
{
	return load_relaxed(&exec_find(handle)->mark);
}

static void synchronise(uint64_t stream)
{
	uint64_t ticket = sync_begin();

	sync_stream_done(stream, ticket);
}

/* ---- shadows ---- */

Test(stage, a_put_is_seen_after_the_publication)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES), *t = value_of(a, "v", BYTES);

	cr_assert_eq(put(s, 1), 0);
	cr_assert_eq(put(t, 2), 0);
	cr_assert_eq(live(s, 0), 0, "old until the commit");
	cr_assert_neq(s->shadow, 0);
	LOG("");
	cr_assert_eq(stage_publish(a, P), 0);
	LOG("copy2@9000 fence@9000 ");
	cr_assert_eq(live(s, BYTES - 1), 1);
	cr_assert_eq(live(t, 0), 2);
	cr_assert_eq(s->shadow, 0);
	cr_assert_eq(stage_publish(a, P), 0, "nothing is staged");
	LOG("");
}

Test(stage, what_is_not_put_is_zero)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);

	cr_assert_eq(put_bytes(s, 0xff, BYTES, P), 0);
	cr_assert_eq(put_bytes(s, 0xee, 100, P), 0, "staged again, and shorter");
	cr_assert_eq(stage_publish(a, P), 0);
	cr_assert_eq(live(s, 99), 0xee);
	cr_assert_eq(live(s, 100), 0);
	cr_assert_eq(live(s, BYTES - 1), 0);
	cr_assert_eq(put_bytes(s, 1, BYTES + 1, P), ARENA_E_INVALID);
	cr_assert(strstr(arena_message(), "1025 bytes put, it has 1024"));
	cr_assert_eq(s->shadow, 0);
}

Test(stage, a_discard_leaves_the_live_value)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);

	put(s, 1);
	stage_publish(a, P);
	put(s, 2);
	stage_discard(a);
	cr_assert_eq(s->shadow, 0);
	cr_assert_eq(stage_publish(a, P), 0);
	cr_assert_eq(live(s, 0), 1);
}

Test(stage, direct_and_zero_go_to_the_live_storage)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);
	char source[BYTES];

	memset(source, 7, sizeof(source));
	world_exec(G, KERNEL(1, 1, s->base));
	launch(G, A);
	cr_assert_eq(stage_direct(s, (uint64_t)source, 10, P), 0);
	cr_assert_eq(live(s, 9), 7);
	cr_assert_eq(live(s, 10), 0);
	LOG("fence@5000 wait@9000 zero1@9000 fence@9000 ");
	launch(G, A);
	LOG("wait@5000 ");
	cr_assert_eq(stage_zero(s, P), 0);
	cr_assert_eq(live(s, 0), 0);
	cr_assert_eq(stage_direct(s, (uint64_t)source, BYTES + 1, P), ARENA_E_INVALID);
}

static struct slot *locks_of(struct arena *a, const char *name, int32_t ordinal)
{
	struct slot *s = value_of(a, name, BYTES);

	s->kind = ARENA_SCRATCH;
	s->spec.flags = ARENA_SPEC_ZERO;
	s->spec.device = ordinal;
	memset((void *)s->base, 5, BYTES);
	return s;
}

Test(stage, locks_are_zeroed_with_what_is_published)
{
	struct arena *a = layer("model.0");
	struct slot *x = locks_of(a, "x", 0), *y = locks_of(a, "y", 0), *w;

	cr_assert_eq(stage_publish(a, P), 0, "nothing is staged");
	LOG("zero2@9000 fence@9000 ");
	cr_assert_eq(live(x, 0) + live(y, BYTES - 1), 0);
	memset((void *)x->base, 5, BYTES);
	w = value_of(a, "w", BYTES);
	put(w, 1);
	stage_discard(a);
	cr_assert_eq(live(x, 0), 5, "nothing was published");
	world_exec(G, KERNEL(1, 1, x->base));
	launch(G, A);
	put(w, 2);
	dev.log[0] = 0;
	cr_assert_eq(stage_publish(a, P), 0);
	/* Behind the replay. */
	LOG("wait@9000 fence@5000 wait@9000 zero2@9000 copy1@9000 fence@9000 ");
	cr_assert_eq(live(x, 0), 0);
	cr_assert_eq(live(w, 0), 2);
	x->spec.flags = 0;
	memset((void *)x->base, 5, BYTES);
	cr_assert_eq(stage_publish(a, P), 0);
	cr_assert_eq(live(x, 0), 5, "plain scratch is left alone");
}

/* The values stay as they were, and launches do not meet what is zeroed. */
Test(stage, nothing_is_published_when_locks_cannot_be_zeroed)
{
	static const struct {
		enum call call;
		int err;
		const char *launch;
	} cases[] = {
		{ ZERO, -EIO, "" },
		{ ZERO, -EREMOTEIO, "wait@5000 " },
		{ COPY, -EIO, "wait@5000 wait@5000 " },
	};
	struct arena *a = layer("model.0");
	struct slot *x = locks_of(a, "x", 0), *y = locks_of(a, "y", 0);
	struct slot *w = value_of(a, "w", BYTES);

	world_exec(G, KERNEL(1, 1, x->base));
	put(w, 1);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		memset((void *)y->base, 5, BYTES);
		dev.fails = cases[i].call;
		dev.err = cases[i].err;
		cr_assert_eq(stage_publish(a, P), ARENA_E_DEVICE, "%zu", i);
		cr_assert(strstr(arena_message(), "nothing was published"), "%zu", i);
		cr_assert_eq(live(w, 0), 0, "%zu", i);
		dev.log[0] = 0;
		launch(G, A);
		LOG(cases[i].launch);
	}
	cr_assert_eq(stage_publish(a, P), 0);
	cr_assert_eq(live(w, 0), 1);
	cr_assert_eq(live(y, 0), 0);
}

Test(stage, locks_of_another_device_are_refused)
{
	struct arena *a = layer("model.0");
	struct slot *x = locks_of(a, "x", 0);

	locks_of(a, "y", 1);
	cr_assert_eq(stage_publish(a, P), ARENA_E_SPEC);
	cr_assert_eq(live(x, 0), 5);
}

/* ---- memory ---- */

Test(stage, extra_memory_is_that_of_one_layer)
{
	struct arena *layers[8];
	struct slot *slots[8][4];
	unsigned before;
	char path[16];

	for (int i = 0; i < 8; i++) {
		snprintf(path, sizeof(path), "model.%d", i);
		layers[i] = layer(path);
		for (int k = 0; k < 4; k++) {
			snprintf(path, sizeof(path), "w%d", k);
			slots[i][k] = value_of(layers[i], path, 16 * BYTES);
		}
	}
	before = dev.allocs;
	stage_peak_reset();
	/* The device is far behind: no fence is ever passed. */
	for (int i = 0; i < 8; i++) {
		for (int k = 0; k < 4; k++)
			cr_assert_eq(put_bytes(slots[i][k], i + 1, 16 * BYTES, P), 0);
		cr_assert_eq(stage_publish(layers[i], P), 0);
	}
	cr_assert_eq(dev.allocs - before, 1, "used again, behind the publication before");
	cr_assert_eq(stage_peak_bytes(), 4 * 16 * BYTES);
	stage_trim();
	cr_assert_eq(dev.frees, 1);
	cr_assert_eq(dev.fences - dev.fences_freed, 8, "what is not passed is still known");
	store_release(&dev.fences_pass, true);
	put(slots[0][0], 1);
	stage_publish(layers[0], P);
	stage_trim();
	cr_assert_eq(dev.fences - dev.fences_freed, 1);
}

Test(stage, memory_that_is_used_again_waits_for_its_reader)
{
	struct arena *a = layer("model.0"), *b = layer("model.1");
	struct slot *s = value_of(a, "w", BYTES), *t = value_of(b, "w", BYTES);
	uint64_t shadow;

	put(s, 1);
	shadow = s->shadow;
	stage_publish(a, P);
	dev.log[0] = 0;
	cr_assert_eq(put_bytes(t, 2, BYTES, B), 0);
	cr_assert_eq(t->shadow, shadow);
	LOG("wait@6000 ");
	/* Dropped while it may still be written to: not used again. */
	stage_discard(b);
	put(t, 3);
	cr_assert_neq(t->shadow, shadow);
}

Test(stage, an_adopted_shadow_is_published_and_freed)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);
	uint64_t addr = 0;

	dev_alloc(BYTES, 0, &addr);
	memset((void *)addr, 9, BYTES);
	registry_lock();
	cr_assert_eq(stage_adopt(s, addr), 0);
	registry_unlock();
	cr_assert_eq(stage_publish(a, P), 0);
	cr_assert_eq(live(s, 5), 9);
	cr_assert_eq(dev.frees, 1);
}

/* What was dropped without a newer value is lost, until there is one. */
Test(stage, lost_values)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES), *t = value_of(a, "v", BYTES);
	uint64_t addr = 0;

	put(s, 1);
	stage_discard(a);
	cr_assert(s->lost);
	cr_assert_not(t->lost);
	put(s, 1);
	cr_assert_not(s->lost);
	cr_assert_eq(stage_publish(a, P), 0);
	cr_assert(s->restored && !s->lost);
	put(s, 2);
	stage_drop(s, s->shadow); /* the caller has a newer one */
	cr_assert_not(s->lost);
	put(s, 3);
	stage_discard(a);
	cr_assert(s->lost);
	dev_alloc(BYTES, 0, &addr);
	registry_lock();
	cr_assert_eq(stage_adopt(s, addr), 0);
	registry_unlock();
	cr_assert_not(s->lost);
	stage_discard(a);
}

/* ---- order ---- */

Test(stage, replays_in_flight_come_first_and_the_next_one_follows)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);

	world_exec(G, KERNEL(1, 1, s->base));
	launch(G, A);
	put(s, 1);
	cr_assert_eq(stage_publish(a, P), 0);
	LOG("fence@5000 wait@9000 copy1@9000 fence@9000 ");
	cr_assert(launch(G, A));
	LOG("wait@5000 ");
	cr_assert(launch(G, B));
	LOG("wait@6000 ");
	store_release(&dev.fences_pass, true);
	cr_assert(launch(G, B));
	LOG("");
	cr_assert_eq(mark(G), 0, "the mark is gone");
	stage_trim();
	cr_assert_eq(dev.fences, dev.fences_freed);
	cr_assert_eq(world_findings, 0);
	cr_assert_eq(world_counters().launches_judged, 0);
}

Test(stage, other_layers_are_left_alone)
{
	struct arena *a = layer("model.0"), *b = layer("model.1");
	struct slot *s = value_of(a, "w", BYTES), *t = value_of(b, "w", BYTES);

	world_exec(G, KERNEL(1, 1, t->base));
	launch(G, A);
	put(s, 1);
	stage_publish(a, P);
	LOG("copy1@9000 fence@9000 ");
	launch(G, A);
	LOG("");
	cr_assert_eq(mark(G), 0);
}

Test(stage, what_is_proven_done_is_not_waited_for)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);

	world_exec(G, KERNEL(1, 1, s->base));
	launch(G, A);
	synchronise(A);
	put(s, 1);
	stage_publish(a, P);
	LOG("copy1@9000 fence@9000 ");
}

/* Good enough to keep a finding back, not to publish under a running graph. */
Test(stage, an_event_is_no_proof)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);

	world_exec(G, KERNEL(1, 1, s->base));
	launch(G, A);
	sync_event_recorded(0xe0, A, sync_begin());
	sync_event_done(0xe0);
	cr_assert(sync_proven(A, load_relaxed(&exec_find(G)->last_ticket)));
	put(s, 1);
	stage_publish(a, P);
	LOG("fence@5000 wait@9000 copy1@9000 fence@9000 ");
}

Test(stage, a_stream_without_a_name_is_waited_for_by_its_context)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);

	world_exec(G, KERNEL(1, 1, s->base));
	launch(G, A);
	sync_stream_forget(A);
	put(s, 1);
	stage_publish(a, P);
	LOG("context1 wait@9000 copy1@9000 fence@9000 ");
	store_release(&dev.fences_pass, true);
	launch(G, SHARED);
	synchronise(SHARED); /* of some thread */
	put(s, 2);
	dev.log[0] = 0;
	stage_publish(a, P);
	LOG("context1 wait@9000 copy1@9000 fence@9000 ");
}

Test(stage, an_exec_that_went_while_it_ran_is_waited_for)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);

	world_exec(G, KERNEL(1, 1, s->base));
	launch(G, A);
	exec_close(G);
	put(s, 1);
	stage_publish(a, P);
	LOG("fence@5000 wait@9000 copy1@9000 fence@9000 ");
	synchronise(A);
	put(s, 1);
	dev.log[0] = 0;
	stage_publish(a, B);
	LOG("wait@6000 fence@9000 wait@6000 copy1@6000 fence@6000 ");
}

Test(stage, an_exec_that_is_made_meanwhile_follows)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);

	put(s, 1);
	stage_publish(a, P);
	dev.log[0] = 0;
	world_exec(G, KERNEL(1, 1, s->base));
	launch(G, A);
	LOG("wait@5000 ");
	exec_close(G);
	world_exec(G, KERNEL(1, 1, s->base));
	exec_set_node(G, KERNEL(1, 1, s->base + 8));
	launch(G, B);
	LOG("wait@6000 ");
}

Test(stage, puts_on_other_streams_come_first)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);

	put_bytes(s, 1, BYTES, A);
	put_bytes(s, 1, BYTES, P);
	put_bytes(s, 1, BYTES, SHARED);
	stage_publish(a, P);
	LOG("fence@5000 wait@9000 fence@2 wait@9000 copy1@9000 fence@9000 ");
	put_bytes(s, 1, BYTES, P);
	dev.log[0] = 0;
	stage_publish(a, P);
	LOG("wait@9000 copy1@9000 fence@9000 ");
}

static void *put_elsewhere(void *arg)
{
	put_bytes(arg, 1, BYTES, SHARED);
	return NULL;
}

static void *publish_shared(void *arg)
{
	stage_publish(arg, SHARED);
	return NULL;
}

Test(stage, a_put_on_the_default_stream_of_another_thread)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);
	pthread_t thread;

	pthread_create(&thread, NULL, put_elsewhere, s);
	pthread_join(thread, NULL);
	stage_publish(a, SHARED);
	LOG("context0 wait@2 copy1@2 fence@2 ");
}

/* A later thread may get the same memory for its own variables; its default stream is another. */
Test(stage, a_put_on_the_default_stream_of_a_thread_that_ended)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);
	pthread_t thread;

	pthread_create(&thread, NULL, put_elsewhere, s);
	pthread_join(thread, NULL);
	pthread_create(&thread, NULL, publish_shared, a);
	pthread_join(thread, NULL);
	LOG("context0 wait@2 copy1@2 fence@2 ");
}

/* A handle that was destroyed must not be asked for, and another stream may have it. */
Test(stage, a_put_on_a_stream_that_is_gone)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);

	put_bytes(s, 1, BYTES, A);
	sync_stream_forget(A);
	stage_publish(a, P);
	LOG("context0 wait@9000 copy1@9000 fence@9000 ");
	store_release(&dev.fences_pass, true);
	put_bytes(s, 2, BYTES, A);
	sync_stream_forget(A);
	put_bytes(s, 3, BYTES, A);
	stage_publish(a, A);
	LOG("context0 wait@5000 copy1@5000 fence@5000 ");
	put_bytes(s, 4, BYTES, A);
	synchronise(A);
	sync_stream_forget(A);
	stage_publish(a, P);
	LOG("copy1@9000 fence@9000 ");
}

/* ---- threads ---- */

struct launching {
	pthread_t thread;
	_Atomic bool done;
};

static void *launch_elsewhere(void *arg)
{
	struct launching *l = arg;

	launch(G, A);
	store_release(&l->done, true);
	return NULL;
}

static void *publish_elsewhere(void *arg)
{
	cr_assert_eq(stage_publish(arg, P), 0);
	return NULL;
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

Test(stage, a_launch_waits_while_a_publication_is_being_queued)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);
	struct launching l = { .done = false };
	pthread_t publisher;

	world_exec(G, KERNEL(1, 1, s->base));
	put(s, 1);
	store_release(&dev.hold_copy, true);
	pthread_create(&publisher, NULL, publish_elsewhere, a);
	while (!load_acquire(&dev.copy_begun))
		sched_yield();
	pthread_create(&l.thread, NULL, launch_elsewhere, &l);
	pause_ms(50);
	cr_assert_not(load_acquire(&l.done));
	store_release(&dev.hold_copy, false);
	pthread_join(l.thread, NULL);
	pthread_join(publisher, NULL);
	LOG("copy1@9000 fence@9000 wait@5000 ");
}

/* Of a block that two publications read, the newer may be done first. */
Test(stage, memory_that_two_publications_read_is_not_used_again)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", 900 << 10), *t = value_of(a, "v", 900 << 10);
	uint64_t shadow, other;
	pthread_t publisher;

	put(s, 1);
	shadow = s->shadow;
	store_release(&dev.hold_copy, true);
	pthread_create(&publisher, NULL, publish_elsewhere, a);
	while (!load_acquire(&dev.copy_begun))
		sched_yield();
	put_bytes(t, 2, BYTES, B);
	other = t->shadow;
	store_release(&dev.hold_copy, false);
	pthread_join(publisher, NULL);
	cr_assert_eq(other - shadow, 900 << 10, "in one block");
	dev.log[0] = 0;
	cr_assert_eq(stage_publish(a, B), 0);
	LOG("copy1@6000 fence@6000 "); /* beside the other: nothing orders them */
	put_bytes(s, 3, BYTES, B);
	cr_assert_neq(s->shadow, shadow);
}

Test(stage, a_publication_waits_for_a_launch_that_is_being_queued)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);
	pthread_t publisher;

	world_exec(G, KERNEL(1, 1, s->base));
	put(s, 1);
	cr_assert(guard_launch(G, A)); /* and the driver has it not yet */
	pthread_create(&publisher, NULL, publish_elsewhere, a);
	pause_ms(50);
	cr_assert_not(load_acquire(&dev.copy_begun));
	guard_launched();
	pthread_join(publisher, NULL);
	LOG("fence@5000 wait@9000 copy1@9000 fence@9000 ");
}

Test(stage, a_thread_publishes_between_its_own_launches)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);

	world_exec(G, KERNEL(1, 1, s->base));
	for (int i = 0; i < 100; i++) {
		put(s, i);
		cr_assert_eq(stage_publish(a, A), 0);
		cr_assert(launch(G, A));
		cr_assert_eq(live(s, 0), i);
		dev.log[0] = 0;
	}
}

/* ---- refusals ---- */

/* One failing call at each step: nothing is published, the next try works, nothing is lost. */
Test(stage, an_error_at_each_step_publishes_nothing)
{
	static const struct {
		enum call call;
		unsigned after;
		int err, answer;
	} steps[] = {
		{ FENCE_CONTEXT, 0, -EIO, ARENA_E_DEVICE }, /* the launch in flight */
		{ FENCE_CONTEXT, 0, -EBUSY, ARENA_E_BUSY }, { WAIT, 0, -EIO, ARENA_E_DEVICE },
		{ WAIT, 1, -EIO, ARENA_E_DEVICE }, /* the put on another stream */
		{ FENCE, 0, -EIO, ARENA_E_DEVICE },	    { COPY, 0, -EIO, ARENA_E_DEVICE },
		{ COPY, 0, -EBUSY, ARENA_E_BUSY },	    { COPY, 0, -ENOSPC, ARENA_E_DEVICE },
	};
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES), *t = value_of(a, "v", BYTES);

	world_exec(G, KERNEL(1, 1, s->base));
	store_release(&dev.fences_pass, true);
	for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		launch(G, SHARED);
		cr_assert_eq(put_bytes(s, 10 + (int)i, BYTES, B), 0);
		cr_assert_eq(put_bytes(t, 10 + (int)i, BYTES, B), 0);
		dev.fails = steps[i].call;
		dev.after = steps[i].after;
		dev.err = steps[i].err;
		cr_assert_eq(stage_publish(a, P), steps[i].answer, "step %u: %s", i,
			     arena_message());
		cr_assert_eq(dev.fails, NONE);
		cr_assert_eq(live(s, 0), i == 0 ? 0 : 9 + (int)i);
		cr_assert_eq(live(t, 0), i == 0 ? 0 : 9 + (int)i);
		cr_assert(launch(G, A), "nobody waits for it");
		cr_assert_eq(stage_publish(a, P), 0, "step %u: %s", i, arena_message());
		cr_assert_eq(live(s, 0), 10 + (int)i);
		cr_assert_eq(live(t, 0), 10 + (int)i);
	}
	put(s, 1);
	stage_publish(a, P);
	launch(G, A);
	stage_discard(a);
	stage_trim();
	cr_assert_eq(dev.fences, dev.fences_freed);
	cr_assert_eq(dev.allocs - dev.frees, 1, "only the storage is left");
}

Test(stage, a_publication_without_a_fence_is_waited_for)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);

	put(s, 1);
	dev.fails = FENCE;
	dev.err = -EIO;
	cr_assert_eq(stage_publish(a, P), 0);
	LOG("copy1@9000 sync@9000 ");
	cr_assert_eq(live(s, 0), 1);
}

Test(stage, half_a_publication_is_said)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES), *t = value_of(a, "v", BYTES);

	put(s, 1);
	put(t, 1);
	dev.fails = COPY;
	dev.err = -EREMOTEIO;
	cr_assert_eq(stage_publish(a, P), ARENA_E_UNSAFE);
	cr_assert(strstr(arena_message(), "model.0"));
	cr_assert_eq(s->shadow, 0);
	cr_assert_eq(t->shadow, 0);
}

Test(stage, a_failed_put_is_not_staged)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES);
	static const struct {
		enum call call;
		int err, answer;
	} steps[] = { { ALLOC, -ENOSPC, ARENA_E_DEVICE },
		      { PUT, -EIO, ARENA_E_DEVICE },
		      { PUT, -EBUSY, ARENA_E_BUSY },
		      { ZERO, -EIO, ARENA_E_DEVICE } };

	for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		dev.fails = steps[i].call;
		/* A block is asked for once more, at its least size. */
		dev.more = steps[i].call == ALLOC;
		dev.err = steps[i].err;
		cr_assert_eq(put_bytes(s, 1, BYTES / 2, P), steps[i].answer, "step %u", i);
		cr_assert_eq(s->shadow, 0);
		cr_assert_eq(stage_publish(a, P), 0);
		cr_assert_eq(live(s, 0), 0);
	}
	stage_trim();
	cr_assert_eq(dev.allocs - dev.frees, 1);
}

Test(stage, slots_of_two_devices_are_refused)
{
	struct arena *a = layer("model.0");
	struct slot *s = value_of(a, "w", BYTES), *t = value_of(a, "v", BYTES);

	t->spec.device = 1;
	put(s, 1);
	put(t, 1);
	cr_assert_eq(stage_publish(a, P), ARENA_E_SPEC);
	cr_assert_eq(live(s, 0), 0);
}
