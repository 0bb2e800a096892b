/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publications on the simulated driver, through the public interface. Argument: the scene.
 *
 *	commit		sizes that fit nothing; a thread without a context
 *	captures	while another thread captures; on a stream that captures
 *	fault		with SIM_FAIL: a commit that fails leaves every byte old, one that works
 *			makes every byte new
 *	half		with SIM_FAIL and no kernel: it is said that a layer is mixed
 *	locks		scratch that a commit zeroes
 *	locks-derive	the same beside a slot that it computes
 *	locks-fault	with SIM_FAIL: locks that cannot be zeroed leave every byte old
 *	derive		a slot that the commit computes from another one
 *	derive-fault	with SIM_FAIL: the same refuses the layer, and works when it is tried again
 */
#include <cuda.h>
#include <pthread.h>
#include <stdint.h>

#include "arena/derive.h"
#include "tests/shim/check.h"

#define SLOTS	 3
#define OK(call) CHECK((call) == CUDA_SUCCESS, "driver")

static const uint64_t sizes[SLOTS] = { 1, 5000, 3 * 16384 + 7 };
static struct arena *layer;
static CUdeviceptr source;
static void *live[SLOTS];
static CUstream stream;

static const char *message(void)
{
	static char text[512];

	arena_last_message(text, sizeof(text));
	return text;
}

static struct arena_spec spec_of(int i)
{
	struct arena_spec s = ARENA_SPEC_INIT;

	s.bytes = sizes[i];
	return s;
}

static int put(int i, enum arena_publish how, CUstream s)
{
	static const char *const names[] = { "one", "two", "three" };
	struct arena_spec spec = spec_of(i);

	return arena_put(layer, names[i], &spec, (void *)(source + 100), how, &live[i], s);
}

/* Stage @value everywhere, and commit. @return the first error. */
static int reload(int value, uint64_t *id)
{
	int err = arena_reload_begin(NULL, id);

	OK(cuMemsetD8(source, (unsigned char)value, 1 << 17));
	for (int i = 0; i < SLOTS && !err; i++)
		err = put(i, ARENA_STAGED, stream);
	return err ? err : arena_layer_commit(layer, stream);
}

static void finish(uint64_t id)
{
	char *json = NULL;

	CHECK(arena_reload_end(id, &json) == 0, "%s", message());
	arena_free(json);
}

/* The value of all bytes of all slots, or -1. */
static int value(void)
{
	static unsigned char bytes[1 << 17];

	OK(cuCtxSynchronize());
	for (int i = 0; i < SLOTS; i++)
		OK(cuMemcpyDtoH(bytes + (i ? sizes[0] : 0) + (i == 2 ? sizes[1] : 0),
				(CUdeviceptr)live[i], sizes[i]));
	for (uint64_t i = 1; i < sizes[0] + sizes[1] + sizes[2]; i++)
		if (bytes[i] != bytes[0])
			return -1;
	return bytes[0];
}

static void *load_bare(void *arg)
{
	CUcontext ctx = NULL;
	uint64_t id;

	OK(cuMemsetD8(source, 3, 1 << 17) == CUDA_ERROR_INVALID_CONTEXT ? 0 : 1);
	CHECK(arena_reload_begin(NULL, &id) == 0, "%s", message());
	for (int i = 0; i < SLOTS; i++)
		CHECK(put(i, ARENA_STAGED, stream) == 0, "%s", message());
	CHECK(arena_layer_commit(layer, stream) == 0, "%s", message());
	finish(id);
	OK(cuCtxGetCurrent(&ctx));
	CHECK(ctx == NULL, "the thread has got a context");
	return NULL;
}

static void scene_commit(void)
{
	pthread_t thread;
	uint64_t id;

	CHECK(reload(1, &id) == 0, "%s", message());
	finish(id);
	CHECK(value() == 1, "%d", value());
	CHECK(reload(2, &id) == 0, "%s", message());
	finish(id);
	CHECK(value() == 2, "%d", value());
	OK(cuMemsetD8(source, 3, 1 << 17));
	pthread_create(&thread, NULL, load_bare, NULL);
	pthread_join(thread, NULL);
	CHECK(value() == 3, "%d", value());
	OK(cuMemsetD8(source, 4, 1 << 17));
	for (int i = 0; i < SLOTS; i++)
		CHECK(put(i, ARENA_DIRECT, stream) == 0, "%s", message());
	CHECK(value() == 4, "%d", value());
}

static pthread_barrier_t turn;

static void *capture(void *arg)
{
	CUcontext ctx = arg;
	CUdeviceptr p;
	CUgraph graph;
	CUstream s;

	OK(cuCtxSetCurrent(ctx));
	OK(cuMemAlloc(&p, 4096));
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemsetD8Async(p, 1, 4096, s));
	pthread_barrier_wait(&turn);
	pthread_barrier_wait(&turn);
	OK(cuMemsetD8Async(p, 2, 4096, s));
	OK(cuStreamEndCapture(s, &graph));
	return NULL;
}

static void scene_captures(void)
{
	CUcontext ctx;
	CUgraph graph;
	pthread_t thread;
	uint64_t id;

	CHECK(reload(1, &id) == 0, "%s", message());
	finish(id);
	CHECK(value() == 1, "%d", value());
	OK(cuMemsetD8(source, 2, 1 << 17));
	OK(cuCtxSynchronize());
	pthread_barrier_init(&turn, NULL, 2);
	OK(cuCtxGetCurrent(&ctx));
	pthread_create(&thread, NULL, capture, ctx);
	pthread_barrier_wait(&turn);
	CHECK(arena_reload_begin(NULL, &id) == 0, "%s", message());
	for (int i = 0; i < SLOTS; i++)
		CHECK(put(i, ARENA_STAGED, stream) == 0, "%s", message());
	CHECK(arena_layer_commit(layer, stream) == 0, "%s", message());
	finish(id);
	pthread_barrier_wait(&turn);
	pthread_join(thread, NULL);
	CHECK(value() == 2, "%d", value());

	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(put(0, ARENA_DIRECT, stream) == ARENA_E_BUSY, "%s", message());
	CHECK(strstr(message(), "being captured") != NULL, "%s", message());
	OK(cuStreamEndCapture(stream, &graph));
	CHECK(value() == 2, "%d", value());
}

static void scene_fault(bool half)
{
	uint64_t id = 0;
	char *json = NULL;
	int err, now;

	/* Slots that exist, before the faults begin to count. */
	for (int i = 0; i < SLOTS; i++)
		if (put(i, ARENA_DIRECT, stream) != 0)
			exit(EXIT_SUCCESS); /* the fault came first */
	OK(cuStreamSynchronize(stream));
	err = reload(1, &id);
	now = value();
	if (half) {
		CHECK(err == ARENA_E_UNSAFE, "%d %s", err, message());
		CHECK(now == -1, "%d", now);
	} else if (err) {
		CHECK(now == 0, "%d, after %d %s", now, err, message());
	} else {
		CHECK(now == 1, "%d", now);
	}
	if (id != 0)
		arena_reload_abort(id, "a test", &json);
	arena_free(json);
}

#define LOCKS 3

static const char *const locks[LOCKS] = { "a", "b", "plain" };

/* Dirty, also behind them. The last one is scratch that no commit zeroes. */
static void get_locks(CUdeviceptr *at)
{
	for (int i = 0; i < LOCKS; i++) {
		struct arena_spec spec = spec_of(1);
		void *p = NULL;

		spec.flags = i < 2 ? ARENA_SPEC_ZERO : 0;
		CHECK(arena_get_or_alloc(layer, locks[i], &spec, ARENA_EMPTY, &p, stream) == 0,
		      "%s", message());
		at[i] = (CUdeviceptr)p;
		OK(cuMemsetD8(at[i], 5, sizes[1] + (i < 2)));
	}
}

/* Those that a commit zeroes hold @value; nothing else was touched. */
static void check_locks(const CUdeviceptr *at, int value)
{
	unsigned char bytes[5000];

	OK(cuCtxSynchronize());
	for (int i = 0; i < LOCKS; i++) {
		OK(cuMemcpyDtoH(bytes, at[i], sizes[1]));
		for (uint64_t b = 0; b < sizes[1]; b++)
			CHECK(bytes[b] == (i < 2 ? value : 5), "%s: %d", locks[i], bytes[b]);
		OK(cuMemcpyDtoH(bytes, at[i] + sizes[1], 1));
		CHECK(i == 2 || bytes[0] == 5, "behind %s: %d", locks[i], bytes[0]);
	}
}

static void scene_locks(void)
{
	CUdeviceptr at[LOCKS];
	uint64_t id;

	get_locks(at);
	CHECK(reload(1, &id) == 0, "%s", message());
	finish(id);
	CHECK(value() == 1, "%d", value());
	check_locks(at, 0);
}

/* Nothing was published: the layer is not mixed, and the commit works when it is tried again. */
static void scene_locks_fault(void)
{
	CUdeviceptr at[LOCKS];
	uint64_t id;

	get_locks(at);
	for (int i = 0; i < SLOTS; i++)
		CHECK(put(i, ARENA_DIRECT, stream) == 0, "%s", message());
	OK(cuStreamSynchronize(stream));
	CHECK(reload(1, &id) == ARENA_E_DEVICE, "%s", message());
	CHECK(strstr(message(), "nothing was published") != NULL, "%s", message());
	CHECK(value() == 0, "%d", value());
	CHECK(arena_layer_commit(layer, stream) == 0, "%s", message());
	finish(id);
	CHECK(value() == 1, "%d", value());
	check_locks(at, 0);
}

#define WIDE_BYTES 10000 /* of f32, for slot two as bf16 */

/* Slot wide follows from slot two. @return its live storage. */
static CUdeviceptr declare_wide(void)
{
	const struct arena_derive_arg args[] = { { "in", "two", 0 },
						 { "out", "wide", 0 },
						 { "count", NULL, WIDE_BYTES / 4 } };
	struct arena_derivation d = ARENA_DERIVATION_INIT;
	struct arena_spec spec = ARENA_SPEC_INIT;
	void *wide = NULL;

	spec.bytes = WIDE_BYTES;
	d.mode = ARENA_DERIVE_COMPUTE;
	d.name = "arena_sinks_f32";
	d.args = args;
	d.args_count = 3;
	CHECK(put(1, ARENA_DIRECT, stream) == 0, "%s", message());
	CHECK(arena_put(layer, "wide", &spec, (void *)source, ARENA_DIRECT, &wide, stream) == 0,
	      "%s", message());
	CHECK(arena_derive(layer, &d) == 0, "%s", message());
	return (CUdeviceptr)wide;
}

/* Is it what bf16 numbers of two bytes @value each give? */
static bool is_wide(CUdeviceptr wide, unsigned value)
{
	static uint32_t is[WIDE_BYTES / 4];

	OK(cuCtxSynchronize());
	OK(cuMemcpyDtoH(is, wide, WIDE_BYTES));
	for (int i = 0; i < WIDE_BYTES / 4; i++)
		if (is[i] != (value << 24 | value << 16))
			return false;
	return true;
}

static void scene_locks_derive(void)
{
	CUdeviceptr wide = declare_wide(), at[LOCKS];
	uint64_t id;

	get_locks(at);
	CHECK(reload(1, &id) == 0, "%s", message());
	finish(id);
	CHECK(is_wide(wide, 1), "it was not computed");
	check_locks(at, 0);
}

static void scene_derive(bool fault)
{
	CUdeviceptr wide = declare_wide();
	uint64_t id;

	OK(cuStreamSynchronize(stream));
	OK(cuMemsetD8(source, 1, 1 << 17));
	CHECK(arena_reload_begin(NULL, &id) == 0, "%s", message());
	CHECK(put(1, ARENA_STAGED, stream) == 0, "%s", message());
	if (fault) {
		CHECK(arena_layer_commit(layer, stream) == ARENA_E_DEVICE, "%s", message());
		CHECK(strstr(message(), "arena_sinks_f32") != NULL, "%s", message());
		CHECK(is_wide(wide, 0), "a refused layer has a new value");
	}
	CHECK(arena_layer_commit(layer, stream) == 0, "%s", message());
	finish(id);
	CHECK(is_wide(wide, 1), "it was not computed");
}

int main(int argc, char **argv)
{
	const char *scene = argc > 1 ? argv[1] : "commit";
	CUdevice dev;
	CUcontext ctx;

	OK(cuInit(0));
	OK(cuDeviceGet(&dev, 0));
	OK(cuDevicePrimaryCtxRetain(&ctx, dev));
	OK(cuCtxSetCurrent(ctx));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc(&source, 1 << 17));
	OK(cuMemsetD8(source, 0, 1 << 17));
	CHECK(arena_open("layer", &layer) == 0, "%s", message());
	if (strcmp(scene, "captures") == 0)
		scene_captures();
	else if (strcmp(scene, "fault") == 0 || strcmp(scene, "half") == 0)
		scene_fault(strcmp(scene, "half") == 0);
	else if (strcmp(scene, "locks") == 0)
		scene_locks();
	else if (strcmp(scene, "locks-fault") == 0)
		scene_locks_fault();
	else if (strcmp(scene, "locks-derive") == 0)
		scene_locks_derive();
	else if (strncmp(scene, "derive", 6) == 0)
		scene_derive(strcmp(scene, "derive-fault") == 0);
	else
		scene_commit();
	return check_result();
}
