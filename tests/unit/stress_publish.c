/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays under load while layers are published, with a printed seed (ARENA_TEST_SEED). Each stream
 * is a thread that executes what was queued, slowly: a replay reads every slot of its layers and a
 * publication writes them one by one, so that a replay which runs beside one sees two values. A
 * plain program, so that it runs under TSan as it is. Argument: publications of each layer.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "arena/binding.h"
#include "arena/device.h"
#include "arena/exec.h"
#include "arena/registry.h"
#include "arena/stage.h"
#include "arena/storage.h"
#include "arena/sync.h"
#include "tests/unit/seed.h"

/* Chunks of arenas live for ever and are known only from mmap slabs, which LSan does not read. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

#define LAYERS	  2
#define SLOTS	  12
#define BYTES	  4096u
#define LAUNCHERS 3
#define STREAMS	  (LAUNCHERS + LAYERS)
#define DEPTH	  16 /* operations in a queue, then its callers wait */
#define NAME(i)	  (0x1000ull + (uint64_t)(i)*16)

/* ---- streams ---- */

struct fence {
	_Atomic bool done;
	_Atomic uint32_t users; /* its owner, and each operation that is queued on it */
};

enum kind { REPLAY, COPY, RECORD, WAIT, STOP };
struct op {
	enum kind kind;
	unsigned layers; /* REPLAY: one bit each */
	struct fence *fence;
	struct device_copy *ops;
	uint32_t count;
};

struct stream {
	pthread_t thread;
	pthread_mutex_t lock; /* guards the rest */
	pthread_cond_t changed;
	struct op queue[DEPTH];
	unsigned head, count; /* count includes the one that is being executed */
};

static struct stream streams[STREAMS];
static struct arena *layers[LAYERS];
static struct slot *slots[LAYERS][SLOTS];
static _Atomic uint64_t replays, mixed, fences_live;
static _Atomic bool over;
static unsigned rounds = 300;
static uint64_t seed_of_run;

static void __attribute__((noreturn)) fail(const char *what)
{
	fprintf(stderr, "stress_publish: %s: %s\n", what, arena_message());
	exit(1);
}

static void fence_put(struct fence *f)
{
	if (sub_acq_rel(&f->users, 1) == 1) {
		add_relaxed(&fences_live, -1ul);
		free(f);
	}
}

static uint64_t word(const struct slot *s, unsigned at)
{
	uint64_t v;

	memcpy(&v, (const char *)s->base + at, sizeof(v));
	return v;
}

static void replay(unsigned which)
{
	for (unsigned l = 0; l < LAYERS; l++) {
		uint64_t first;
		bool ok = true;

		if (!(which & 1u << l))
			continue;
		first = word(slots[l][0], 0);
		for (unsigned i = 0; i < SLOTS; i++) {
			ok &= word(slots[l][i], 0) == first &&
			      word(slots[l][i], BYTES - 8) == first;
			sched_yield();
		}
		add_relaxed(&mixed, !ok);
	}
	add_relaxed(&replays, 1);
}

static void execute(const struct op *o)
{
	switch (o->kind) {
	case REPLAY:
		replay(o->layers);
		break;
	case COPY:
		for (uint32_t i = 0; i < o->count; i++) {
			memcpy((void *)o->ops[i].dst, (void *)o->ops[i].src, o->ops[i].bytes);
			sched_yield();
		}
		free(o->ops);
		break;
	case RECORD:
		store_release(&o->fence->done, true);
		break;
	case WAIT:
		while (!load_acquire(&o->fence->done))
			sched_yield();
		break;
	case STOP:
		break;
	}
	if (o->fence)
		fence_put(o->fence);
}

static void *run(void *arg)
{
	struct stream *s = arg;
	struct op o;

	do {
		pthread_mutex_lock(&s->lock);
		while (s->count == 0)
			pthread_cond_wait(&s->changed, &s->lock);
		o = s->queue[s->head];
		pthread_mutex_unlock(&s->lock);
		execute(&o);
		pthread_mutex_lock(&s->lock);
		s->head = (s->head + 1) % DEPTH;
		s->count--;
		pthread_cond_broadcast(&s->changed);
		pthread_mutex_unlock(&s->lock);
	} while (o.kind != STOP);
	return NULL;
}

static struct stream *stream_of(uint64_t name)
{
	return &streams[(name - NAME(0)) / 16];
}

static void queue(uint64_t name, const struct op *o)
{
	struct stream *s = stream_of(name);

	pthread_mutex_lock(&s->lock);
	while (s->count == DEPTH)
		pthread_cond_wait(&s->changed, &s->lock);
	s->queue[(s->head + s->count++) % DEPTH] = *o;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

static int drain(uint64_t name)
{
	struct stream *s = stream_of(name);

	pthread_mutex_lock(&s->lock);
	while (s->count != 0)
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* ---- the device ---- */

static int dev_alloc(uint64_t bytes, int32_t ordinal, uint64_t *addr)
{
	*addr = (uint64_t)aligned_alloc(4096, (bytes + 4095) & ~4095ull);
	memset((void *)*addr, 0, bytes);
	return 0;
}

static void dev_free(uint64_t addr)
{
	free((void *)addr);
}

static int dev_copy(const struct device_copy *ops, uint32_t count, uint64_t stream)
{
	struct op o = { .kind = COPY, .count = count, .ops = malloc(count * sizeof(*ops)) };

	memcpy(o.ops, ops, count * sizeof(*ops));
	queue(stream, &o);
	return 0;
}

static int dev_put(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t stream)
{
	struct device_copy op = { dst, src, bytes };

	return dev_copy(&op, 1, stream);
}

static int dev_fence(uint64_t stream, uint64_t *fence)
{
	struct fence *f = calloc(1, sizeof(*f));

	store_relaxed(&f->users, 2);
	add_relaxed(&fences_live, 1);
	queue(stream, &(struct op){ .kind = RECORD, .fence = f });
	*fence = (uint64_t)f;
	return 0;
}

static int dev_wait(uint64_t fence, uint64_t stream)
{
	struct fence *f = (struct fence *)fence;

	add_relaxed(&f->users, 1);
	queue(stream, &(struct op){ .kind = WAIT, .fence = f });
	return 0;
}

static bool dev_fence_done(uint64_t fence)
{
	return load_acquire(&((struct fence *)fence)->done);
}

static void dev_fence_free(uint64_t fence)
{
	fence_put((struct fence *)fence);
}

/* ---- the program ---- */

static void open_layer(unsigned l)
{
	struct arena_spec spec = ARENA_SPEC_INIT;
	uint64_t base;
	char name[16];

	spec.bytes = BYTES;
	snprintf(name, sizeof(name), "layer%u", l);
	registry_lock();
	layers[l] = registry_open(name);
	registry_unlock();
	for (unsigned i = 0; i < SLOTS; i++) {
		if (storage_take(layers[l], 0, BYTES, &base))
			fail("storage");
		snprintf(name, sizeof(name), "w%u", i);
		registry_lock();
		slots[l][i] = slot_add(layers[l], name, ARENA_VALUE, &spec);
		binding_set(slots[l][i], base);
		registry_unlock();
	}
}

static void open_exec(uint64_t handle, unsigned which)
{
	struct exec_builder *b = exec_build_begin();

	for (unsigned l = 0; l < LAYERS; l++)
		for (unsigned i = 0; (which & 1u << l) && i < SLOTS; i++) {
			struct word w = { .value = slots[l][i]->base,
					  .confidence = CONFIDENCE_EXACT };

			exec_build_node(b,
					&(struct node_desc){ .graph = handle,
							     .node = handle * 100 + l * SLOTS + i,
							     .words = &w,
							     .words_count = 1 });
		}
	exec_open(handle, 1, b);
}

static void *launcher(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;
	uint64_t seed = seed_of_run + me, stream = NAME(me), ticket;

	for (unsigned n = 0; !load_relaxed(&over); n++) {
		unsigned which = 1 + (unsigned)seed_below(&seed, 3);
		uint64_t handle = 1 + me * 4 + which;
		struct exec *e;

		if (n < 4 || seed_below(&seed, 50) == 0)
			open_exec(handle, which); /* also in place of one that still runs */
		if (exec_find(handle) == NULL)
			continue;
		e = guard_launch_quick(handle, stream);
		if (e == NULL && !guard_launch(handle, stream))
			fail("a launch was refused");
		queue(stream, &(struct op){ .kind = REPLAY, .layers = which });
		if (e != NULL)
			guard_launched_quick(e, launcher_self);
		else
			guard_launched();
		if (seed_below(&seed, 20) == 0) {
			ticket = sync_begin();
			drain(stream);
			sync_stream_done(stream, ticket);
		}
	}
	return NULL;
}

static void *publisher(void *arg)
{
	unsigned l = (unsigned)(uintptr_t)arg;
	uint64_t stream = NAME(LAUNCHERS + l);
	/* What a queued put reads has to stay. */
	char(*sources)[BYTES] = calloc(rounds + 1, BYTES);

	for (unsigned n = 1; n <= rounds; n++) {
		memset(sources[n], (int)(n % 255 + 1), BYTES);
		for (unsigned i = 0; i < SLOTS; i++)
			if (stage_put(slots[l][i], (uint64_t)sources[n], BYTES, stream))
				fail("put");
		if (stage_publish(layers[l], stream))
			fail("publish");
	}
	drain(stream);
	free(sources);
	return NULL;
}

static void check_end(void)
{
	stage_trim();
	for (unsigned l = 0; l < LAYERS; l++)
		for (unsigned i = 0; i < SLOTS; i++)
			if (((unsigned char *)slots[l][i]->base)[BYTES - 1] != rounds % 255 + 1)
				fail("a slot has not the newest value");
	fprintf(stderr, "# %lu replays, %lu saw half a layer, %lu fences left\n",
		(unsigned long)load_relaxed(&replays), (unsigned long)load_relaxed(&mixed),
		(unsigned long)load_relaxed(&fences_live));
	if (load_relaxed(&mixed) != 0)
		fail("a replay saw half a layer");
	/* The list keeps what nobody asked for since. */
	if (load_relaxed(&fences_live) > LAYERS)
		fail("fences are left");
}

int main(int argc, char **argv)
{
	pthread_t threads[STREAMS];

	seed_of_run = seed_start("stress_publish");
	if (argc > 1)
		rounds = (unsigned)strtoul(argv[1], NULL, 0);
	if (ledger_init())
		return 1;
	device.alloc = dev_alloc;
	device.free = dev_free;
	device.copy = dev_copy;
	device.put = dev_put;
	device.fence = dev_fence;
	device.wait = dev_wait;
	device.fence_done = dev_fence_done;
	device.fence_free = dev_fence_free;
	device.synchronise = drain;
	for (unsigned l = 0; l < LAYERS; l++)
		open_layer(l);
	for (unsigned i = 0; i < STREAMS; i++) {
		pthread_mutex_init(&streams[i].lock, NULL);
		pthread_cond_init(&streams[i].changed, NULL);
		pthread_create(&streams[i].thread, NULL, run, &streams[i]);
	}
	for (unsigned i = 0; i < STREAMS; i++)
		pthread_create(&threads[i], NULL, i < LAUNCHERS ? launcher : publisher,
			       (void *)(uintptr_t)(i < LAUNCHERS ? i : i - LAUNCHERS));
	for (unsigned i = LAUNCHERS; i < STREAMS; i++)
		pthread_join(threads[i], NULL);
	store_relaxed(&over, true);
	for (unsigned i = 0; i < LAUNCHERS; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < STREAMS; i++)
		queue(NAME(i), &(struct op){ .kind = STOP });
	for (unsigned i = 0; i < STREAMS; i++)
		pthread_join(streams[i].thread, NULL);
	check_end();
	return 0;
}
