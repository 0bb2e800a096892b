/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas when the context that their storage lies in goes away: the driver has freed it, so it is
 * dead for slots as well, and what is asked for again is somewhere else.
 *
 *	contexts reset | two | staged | flying | tags
 */
#include <cuda.h>
#include <stdint.h>

#include "arena/arena.h"

#include "check.h"

#define BYTES 4096
#define LARGE (3u << 20)

#define MUST(call) CHECK((call) == CUDA_SUCCESS, "driver: %s", #call)
#define WORKS(call)                                      \
	do {                                             \
		int r_ = (call);                         \
                                                         \
		CHECK(r_ == 0, "%d: %s", r_, message()); \
	} while (0)

static CUcontext primary;
static CUdevice dev;

static const char *message(void)
{
	static char text[512];

	text[0] = '\0';
	arena_last_message(text, sizeof(text));
	return text;
}

static void use_primary(void)
{
	MUST(cuDevicePrimaryCtxRetain(&primary, dev));
	MUST(cuCtxSetCurrent(primary));
}

static CUcontext another_context(void)
{
	CUctxCreateParams params = { 0 };
	CUcontext ctx;

	MUST(cuCtxCreate(&ctx, &params, 0, dev));
	return ctx;
}

static struct arena *layer(const char *path)
{
	struct arena *a = NULL;

	WORKS(arena_open(path, &a));
	return a;
}

static struct arena_spec spec_of(uint64_t bytes)
{
	struct arena_spec s = ARENA_SPEC_INIT;

	s.bytes = bytes;
	return s;
}

static CUdeviceptr scratch(struct arena *a, const char *name, uint64_t bytes)
{
	struct arena_spec spec = spec_of(bytes);
	void *p = NULL;

	WORKS(arena_get_or_alloc(a, name, &spec, ARENA_EMPTY, &p, NULL));
	CHECK(p, "%s", name);
	return (CUdeviceptr)p;
}

/* Not a byte more than the stream needs: @src is of the host. */
static CUdeviceptr put_on(struct arena *a, const char *name, int v, CUstream stream)
{
	struct arena_spec spec = spec_of(BYTES);
	static char values[BYTES];
	void *live = NULL;

	memset(values, v, sizeof(values));
	WORKS(arena_put(a, name, &spec, values, ARENA_STAGED, &live, stream));
	return (CUdeviceptr)live;
}

static CUdeviceptr put(struct arena *a, const char *name, int v)
{
	CUdeviceptr live = put_on(a, name, v, NULL);

	MUST(cuCtxSynchronize());
	return live;
}

static int value(CUdeviceptr p)
{
	char v = 0;

	MUST(cuMemcpyDtoH(&v, p, 1));
	return v;
}

static bool is_alive(CUdeviceptr p)
{
	CUcontext ctx = NULL;

	return cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, p) == CUDA_SUCCESS;
}

static uint64_t held(void)
{
	struct arena_status s = ARENA_STATUS_INIT;

	WORKS(arena_status(&s));
	return s.storage_bytes;
}

/* An exec of the current context that writes to @p. */
static CUgraphExec writer_of(CUdeviceptr p)
{
	CUDA_MEMSET_NODE_PARAMS params = {
		.dst = p, .value = 7, .elementSize = 1, .width = BYTES, .height = 1
	};
	CUgraphExec e = NULL;
	CUgraphNode node;
	CUcontext ctx;
	CUgraph g;

	MUST(cuCtxGetCurrent(&ctx));
	MUST(cuGraphCreate(&g, 0));
	MUST(cuGraphAddMemsetNode(&node, g, NULL, 0, &params, ctx));
	MUST(cuGraphInstantiate(&e, g, 0));
	return e;
}

static struct arena_snapshot *snap(void)
{
	struct arena_snapshot *s = NULL;

	WORKS(arena_snapshot(&s));
	return s;
}

/* Does a comparison with @s name @kind, as an error or not? */
static void verify(const struct arena_snapshot *s, const char *kind, bool is_error)
{
	char *json = NULL;
	int r = arena_verify(s, &json);

	CHECK(r == (is_error ? ARENA_E_REFUSED : 0), "%d: %s", r, json);
	CHECK(json && (!kind || strstr(json, kind)), "no %s in %s", kind, json);
	arena_free(json);
}

/* ---- scenes ---- */

/* The only context there is. */
static void reset(void)
{
	struct arena *a = layer("a");
	CUdeviceptr small = scratch(a, "small", BYTES), large = scratch(a, "large", LARGE);
	CUdeviceptr w = put(a, "w", 1), theirs, again;
	struct arena_snapshot *before = snap();

	CHECK(held() > LARGE, "%lu bytes", held());
	MUST(cuDevicePrimaryCtxReset(dev));
	CHECK(held() == 0, "%lu bytes of a dead context", held());
	use_primary();
	verify(before, "missing", true); /* w had a value */
	/* The driver hands the addresses out again, and what is there now is the program's. */
	MUST(cuMemAlloc(&theirs, LARGE));
	again = scratch(a, "small", BYTES);
	CHECK(is_alive(again) && again - theirs >= LARGE, "slot at 0x%llx", again);
	CHECK(is_alive(scratch(a, "large", LARGE)), "was at 0x%llx", large);
	w = put(a, "w", 2);
	CHECK(value(w) == 2, "value %d", value(w));
	CHECK(scratch(a, "small", BYTES) == again, "was at 0x%llx", small);
	MUST(cuMemFree(theirs));
	arena_snapshot_free(before);
}

/* What lies in a context that lives is left alone. */
static void two(void)
{
	struct arena *a = layer("a");
	CUdeviceptr here = scratch(a, "here", BYTES), there, after;
	CUcontext other = another_context();
	struct arena_snapshot *before;
	CUgraphExec e;

	there = put(a, "there", 1);
	MUST(cuCtxSetCurrent(primary));
	e = writer_of(there);
	before = snap();
	MUST(cuCtxDestroy(other));
	verify(before, "missing", true);
	CHECK(is_alive(here) && scratch(a, "here", BYTES) == here, "moved");
	after = put(a, "there", 2);
	CHECK(is_alive(after) && after != there, "0x%llx", after);
	CHECK(value(after) == 2, "value %d", value(after));
	CHECK(cuGraphLaunch(e, 0) != CUDA_SUCCESS, "it writes to what is not there");
	verify(before, "moved", true);
	arena_snapshot_free(before);
}

/* What was staged in it is lost: nothing of the layer is published before it is put again. */
static void staged(void)
{
	struct arena *a = layer("a");
	CUdeviceptr w = put(a, "w", 1), v = put(a, "v", 1);
	CUcontext other;
	char *json = NULL;
	CUstream stream;
	uint64_t id = 0;

	WORKS(arena_reload_begin(NULL, &id));
	put(a, "v", 2);
	other = another_context();
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	put_on(a, "w", 2, stream);
	MUST(cuCtxDestroy(other));
	MUST(cuCtxSetCurrent(primary));
	CHECK(arena_layer_commit(a, NULL) == ARENA_E_REFUSED, "%s", message());
	CHECK(value(w) == 1 && value(v) == 1, "values %d, %d", value(w), value(v));
	put(a, "w", 3);
	put(a, "v", 3);
	WORKS(arena_layer_commit(a, NULL));
	WORKS(arena_reload_end(id, &json));
	CHECK(value(w) == 3 && value(v) == 3, "values %d, %d", value(w), value(v));
	arena_free(json);
}

/* A graph was in flight there, and a publication was ordered before it: neither is waited for. */
static void flying(void)
{
	struct arena *a = layer("a");
	CUdeviceptr w = put(a, "w", 1);
	CUcontext other = another_context();
	CUstream stream;
	CUgraphExec e;

	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	e = writer_of(w);
	put_on(a, "w", 2, stream);
	MUST(cuGraphLaunch(e, stream));
	MUST(cuCtxDestroy(other));
	MUST(cuCtxSetCurrent(primary));
	CHECK(put(a, "w", 3) == w, "moved");
	CHECK(value(w) == 3, "value %d", value(w));
}

/* Served memory and shadows under tags, which the user frees too late. */
static void tags(void)
{
	struct arena *a = layer("a");
	CUdeviceptr first, shadow, theirs, again;
	uint64_t id = 0;

	WORKS(arena_enter(a));
	WORKS(arena_tag_push("t", ARENA_VALUE));
	MUST(cuMemAlloc(&first, BYTES));
	WORKS(arena_tag_pop());
	WORKS(arena_reload_begin(NULL, &id));
	WORKS(arena_tag_push("t", ARENA_VALUE));
	MUST(cuMemAlloc(&shadow, BYTES));
	CHECK(shadow != first, "no shadow");
	WORKS(arena_tag_pop());
	MUST(cuDevicePrimaryCtxReset(dev));
	arena_reload_abort(id, "the context is gone", NULL);
	use_primary();
	MUST(cuMemAlloc(&theirs, LARGE));
	CHECK(cuMemFree(shadow) != CUDA_SUCCESS || shadow == theirs, "freed twice");
	if (shadow != theirs)
		MUST(cuMemFree(theirs));
	WORKS(arena_tag_push("t", ARENA_VALUE));
	MUST(cuMemAlloc(&again, BYTES));
	WORKS(arena_tag_pop());
	CHECK(is_alive(again), "0x%llx", again);
	MUST(cuMemFree(again));
	CHECK(is_alive(again), "storage was freed");
	WORKS(arena_leave());
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} scenes[] = { { "reset", reset },
		       { "two", two },
		       { "staged", staged },
		       { "flying", flying },
		       { "tags", tags } };

	MUST(cuInit(0));
	MUST(cuDeviceGet(&dev, 0));
	use_primary();
	for (size_t i = 0; i < sizeof(scenes) / sizeof(*scenes); i++)
		if (argc == 2 && strcmp(argv[1], scenes[i].name) == 0) {
			scenes[i].run();
			return check_result();
		}
	fprintf(stderr, "usage: %s reset|two|staged|flying|tags\n", argv[0]);
	return 2;
}
