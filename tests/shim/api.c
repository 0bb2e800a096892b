/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public API on the simulated driver: arguments, structs of other sizes, refusals that change
 * nothing, and one verdict for all who ask.
 *
 *	api absent | errors | sizes | slots | objects | failed_puts | puts | forked
 *	api ends pass | fail | unproven | aborted | unsafe CODE      CODE of the end
 *
 * The runner checks the exit line, and the status of the process.
 */
#include <cuda.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arena/arena.h"

#include "check.h"

#define BYTES	4096
#define INTS	(BYTES / 4)

#define MUST(call) CHECK((call) == CUDA_SUCCESS, "driver")
/* @r is @err, and the message has @words. */
#define FAILS(call, err, words)                                                               \
	do {                                                                                  \
		int r_ = (call);                                                              \
                                                                                              \
		CHECK(r_ == (err), "%d, not %d: %s", r_, (int)(err), message());              \
		CHECK(strstr(message(), words), "no '%s' in '%s'", words, message());         \
	} while (0)
#define WORKS(call)                                                                           \
	do {                                                                                  \
		int r_ = (call);                                                              \
                                                                                              \
		CHECK(r_ == 0, "%d: %s", r_, message());                                      \
	} while (0)

static const char *message(void)
{
	static char text[512];

	text[0] = '\0';
	arena_last_message(text, sizeof(text));
	return text;
}

static void start_cuda(void)
{
	CUcontext ctx;
	CUdevice dev;

	MUST(cuInit(0));
	MUST(cuDeviceGet(&dev, 0));
	MUST(cuDevicePrimaryCtxRetain(&ctx, dev));
	MUST(cuCtxSetCurrent(ctx));
}

static struct arena_spec ints(void)
{
	struct arena_spec s = ARENA_SPEC_INIT;

	s.bytes = BYTES;
	s.ndim = 1;
	s.shape[0] = INTS;
	strcpy(s.dtype, "<i4");
	return s;
}

static struct arena *layer(const char *path)
{
	struct arena *a = NULL;

	WORKS(arena_open(path, &a));
	CHECK(a, "%s", path);
	return a;
}

static int first_int(const void *p)
{
	int v = 0;

	MUST(cuMemcpyDtoH(&v, (CUdeviceptr)p, sizeof(v)));
	return v;
}

static void *put(struct arena *a, const char *name, int v, enum arena_publish how)
{
	struct arena_spec spec = ints();
	static int values[INTS];
	void *live = NULL;

	for (int i = 0; i < INTS; i++)
		values[i] = v;
	WORKS(arena_put(a, name, &spec, values, how, &live, NULL));
	MUST(cuCtxSynchronize());
	return live;
}

static struct arena_status status(void)
{
	struct arena_status s = ARENA_STATUS_INIT;

	WORKS(arena_status(&s));
	return s;
}

/* ---- nobody is there ---- */

static int never_called(void *ctx, void **object)
{
	(void)object;
	*(int *)ctx = 1;
	return 0;
}

static void absent_slots(struct arena_spec *spec)
{
	int called = 0;
	void *p = &called;

	CHECK(arena_get_or_alloc(NULL, "s", spec, ARENA_ZERO, &p, NULL) == ARENA_E_ABSENT, "get");
	CHECK(arena_put(NULL, "s", spec, p, ARENA_STAGED, &p, NULL) == ARENA_E_ABSENT, "put");
	CHECK(arena_bind(NULL, "s", spec, p) == ARENA_E_ABSENT, "bind");
	CHECK(arena_unbind(NULL, "s") == ARENA_E_ABSENT, "unbind");
	CHECK(arena_object(NULL, "s", "t", never_called, &called, &p) == ARENA_E_ABSENT, "object");
	CHECK(p == &called && !called, "something happened");
}

static void absent_reloads(void)
{
	uint64_t id = 7;
	char *json = NULL;

	CHECK(arena_reload_begin(NULL, &id) == ARENA_E_ABSENT && id == 7, "begin");
	CHECK(arena_receive("k", 0, 1) == ARENA_E_ABSENT, "receive");
	CHECK(arena_layer_commit(NULL, NULL) == ARENA_E_ABSENT, "commit");
	CHECK(arena_reload_end(id, &json) == ARENA_E_ABSENT && !json, "end");
	CHECK(arena_reload_abort(id, "why", &json) == ARENA_E_ABSENT && !json, "abort");
	CHECK(arena_cache_register("c", NULL, NULL) == ARENA_E_ABSENT, "register");
	CHECK(arena_cache_flushed("c") == ARENA_E_ABSENT, "flushed");
	CHECK(arena_manifest_load("/nowhere") == ARENA_E_ABSENT, "manifest");
}

static void test_absent(void)
{
	struct arena_spec spec = ints();
	struct arena_status s = ARENA_STATUS_INIT;
	struct arena *a = NULL;
	struct arena_snapshot *snap = NULL;
	char *json = NULL;

	CHECK(arena_status(&s) == ARENA_E_ABSENT && !s.arenas, "status");
	CHECK(arena_open("a", &a) == ARENA_E_ABSENT && !a, "open");
	CHECK(arena_enter(NULL) == ARENA_E_ABSENT, "enter");
	CHECK(arena_leave() == ARENA_E_ABSENT, "leave");
	CHECK(arena_current(&a) == ARENA_E_ABSENT && !a, "current");
	CHECK(arena_tag_push("t", ARENA_VALUE) == ARENA_E_ABSENT, "push");
	CHECK(arena_tag_pop() == ARENA_E_ABSENT, "pop");
	CHECK(arena_snapshot(&snap) == ARENA_E_ABSENT && !snap, "snapshot");
	CHECK(arena_verify(snap, &json) == ARENA_E_ABSENT && !json, "verify");
	CHECK(*arena_strerror(ARENA_E_ABSENT), "no text");
	absent_slots(&spec);
	absent_reloads();
}

/* ---- arguments ---- */

static void errors_names(void)
{
	char longest[ARENA_NAME_MAX + 2];
	struct arena *a = NULL;

	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	FAILS(arena_open(longest, &a), ARENA_E_INVALID, "path");
	FAILS(arena_open(NULL, &a), ARENA_E_INVALID, "path is NULL");
	FAILS(arena_open("", &a), ARENA_E_INVALID, "path is empty");
	FAILS(arena_open("a", NULL), ARENA_E_INVALID, "out");
	FAILS(arena_receive(longest, 0, 1), ARENA_E_INVALID, "longer than 255");
	FAILS(arena_cache_register("", NULL, NULL), ARENA_E_INVALID, "empty");
	FAILS(arena_cache_flushed("nobody"), ARENA_E_UNKNOWN, "nobody");
	CHECK(!a, "an arena");
	longest[ARENA_NAME_MAX] = '\0';
	WORKS(arena_open(longest, &a));
}

static void errors_slots(struct arena *a)
{
	struct arena_spec spec = ints(), bad = ints();
	void *p = NULL;

	FAILS(arena_get_or_alloc(NULL, "s", &spec, ARENA_ZERO, &p, NULL), ARENA_E_INVALID, "arena");
	FAILS(arena_get_or_alloc(a, "", &spec, ARENA_ZERO, &p, NULL), ARENA_E_INVALID, "slot");
	FAILS(arena_get_or_alloc(a, "s", NULL, ARENA_ZERO, &p, NULL), ARENA_E_INVALID, "spec");
	FAILS(arena_get_or_alloc(a, "s", &spec, (enum arena_init)9, &p, NULL), ARENA_E_INVALID, "9");
	FAILS(arena_get_or_alloc(a, "s", &spec, ARENA_ZERO, NULL, NULL), ARENA_E_INVALID, "ptr");
	FAILS(arena_put(a, "s", &spec, NULL, ARENA_STAGED, &p, NULL), ARENA_E_INVALID, "src");
	FAILS(arena_put(a, "s", &spec, &p, (enum arena_publish)3, &p, NULL), ARENA_E_INVALID, "3");
	FAILS(arena_put(a, "s", &spec, &p, ARENA_STAGED, NULL, NULL), ARENA_E_INVALID, "live");
	FAILS(arena_bind(a, "s", &spec, NULL), ARENA_E_INVALID, "ptr");
	FAILS(arena_unbind(a, "s"), ARENA_E_UNKNOWN, "s");
	FAILS(arena_object(a, "s", "", never_called, NULL, &p), ARENA_E_INVALID, "type");
	FAILS(arena_object(a, "s", "t", NULL, NULL, &p), ARENA_E_INVALID, "factory");
	bad.bytes = 0;
	FAILS(arena_bind(a, "s", &bad, &bad), ARENA_E_INVALID, "bytes");
	bad = ints();
	bad.ndim = 9;
	FAILS(arena_bind(a, "s", &bad, &bad), ARENA_E_INVALID, "ndim");
	bad = ints();
	bad.flags = 4;
	FAILS(arena_bind(a, "s", &bad, &bad), ARENA_E_INVALID, "flags");
	/* Those of another kind of slot would be ignored. */
	bad.flags = ARENA_SPEC_ZERO;
	FAILS(arena_bind(a, "s", &bad, &bad), ARENA_E_INVALID, "spec.flags: 0x2, for a bound slot");
	FAILS(arena_put(a, "s", &bad, &p, ARENA_STAGED, &p, NULL), ARENA_E_INVALID,
	      "spec.flags: 0x2, for a value slot");
	bad.flags = ARENA_SPEC_ZERO | ARENA_SPEC_SCRATCH;
	FAILS(arena_get_or_alloc(a, "s", &bad, ARENA_EMPTY, &p, NULL), ARENA_E_INVALID,
	      "spec.flags: 0x3, for a scratch slot");
	bad = ints();
	bad.shape[0]++;
	FAILS(arena_bind(a, "s", &bad, &bad), ARENA_E_INVALID, "4096, but");
	bad = ints();
	bad.device = 77;
	FAILS(arena_get_or_alloc(a, "s", &bad, ARENA_ZERO, &p, NULL), ARENA_E_DEVICE,
	      "there is no device 77, the process sees 2; pass 0 to 1");
	CHECK(!p && status().slots == 0, "something happened");
}

static void errors_state(struct arena *a)
{
	struct arena *current = a;
	struct arena_scope scope = ARENA_SCOPE_INIT;
	char open[32];
	uint64_t id = 0;

	FAILS(arena_leave(), ARENA_E_BUSY, "");
	FAILS(arena_tag_pop(), ARENA_E_BUSY, "");
	FAILS(arena_tag_push("t", ARENA_SCRATCH), ARENA_E_BUSY, "");
	FAILS(arena_enter(NULL), ARENA_E_INVALID, "arena");
	WORKS(arena_current(&current));
	CHECK(!current, "a scope");
	FAILS(arena_receive("k", 0, 1), ARENA_E_BUSY, "arena_reload_begin");
	FAILS(arena_layer_commit(a, NULL), ARENA_E_BUSY, "arena_reload_begin");
	FAILS(arena_reload_end(1, NULL), ARENA_E_BUSY, "");
	FAILS(arena_reload_begin(NULL, NULL), ARENA_E_INVALID, "id");
	scope.role = "chorus";
	FAILS(arena_reload_begin(&scope, &id), ARENA_E_INVALID, "chorus");
	FAILS(arena_snapshot(NULL), ARENA_E_INVALID, "out");
	FAILS(arena_verify(NULL, NULL), ARENA_E_INVALID, "snapshot");
	FAILS(arena_manifest_load("/no/such/file"), ARENA_E_INVALID, "/no/such/file");
	WORKS(arena_reload_begin(NULL, &id));
	snprintf(open, sizeof(open), "reload %llu is open", (unsigned long long)id);
	FAILS(arena_reload_begin(NULL, &id), ARENA_E_BUSY, open);
	FAILS(arena_manifest_load("/no/such/file"), ARENA_E_BUSY, open);
	FAILS(arena_reload_end(id + 1, NULL), ARENA_E_UNKNOWN, "");
	WORKS(arena_reload_end(id, NULL));
}

static void test_errors(void)
{
	char few[8];
	struct arena *a;

	start_cuda();
	a = layer("model.layers.0");
	errors_names();
	errors_slots(a);
	errors_state(a);
	FAILS(arena_open("", &a), ARENA_E_INVALID, "empty");
	CHECK(arena_last_message(few, sizeof(few)) > (int)sizeof(few), "length");
	CHECK(strlen(few) == sizeof(few) - 1, "cut: %s", few);
	CHECK(arena_last_message(NULL, 0) > 0, "length alone");
	for (int err = -10; err <= 0; err++)
		CHECK(!strstr(arena_strerror(err), "not an error"), "%d has no text", err);
	CHECK(strstr(arena_strerror(-11), "not an error"), "-11");
	CHECK(strstr(arena_strerror(1), "not an error"), "1");
	WORKS(arena_free(NULL));
	WORKS(arena_snapshot_free(NULL));
}

/* ---- structs of older and newer callers ---- */

static void test_sizes(void)
{
	struct {
		struct arena_spec spec;
		char more[16];
	} newer = { .spec = ints() };
	struct arena_spec older = { .struct_bytes = offsetof(struct arena_spec, ndim),
				    .bytes = BYTES, .ndim = 77 };
	struct { struct arena_status s; uint64_t more; } large = { .more = 5 };
	struct arena_status s = ARENA_STATUS_INIT;
	struct arena *a;
	void *p = NULL;

	start_cuda();
	a = layer("model.layers.0");
	WORKS(arena_get_or_alloc(a, "older", &older, ARENA_EMPTY, &p, NULL));
	newer.spec.struct_bytes = sizeof(newer);
	WORKS(arena_get_or_alloc(a, "newer", &newer.spec, ARENA_EMPTY, &p, NULL));
	newer.more[3] = 1;
	FAILS(arena_get_or_alloc(a, "newest", &newer.spec, ARENA_EMPTY, &p, NULL), ARENA_E_INVALID,
	      "newer one");
	older.struct_bytes = 4;
	FAILS(arena_get_or_alloc(a, "none", &older, ARENA_EMPTY, &p, NULL), ARENA_E_INVALID, "4");
	s.struct_bytes = offsetof(struct arena_status, slots);
	s.slots = 99;
	WORKS(arena_status(&s));
	CHECK(s.arenas == 1 && s.slots == 99, "%llu arenas", (unsigned long long)s.arenas);
	CHECK(s.struct_bytes == offsetof(struct arena_status, slots), "size was changed");
	large.s.struct_bytes = sizeof(large);
	WORKS(arena_status(&large.s));
	CHECK(large.s.slots == 2 && large.more == 0, "newer fields are not zero");
	s.struct_bytes = 0;
	FAILS(arena_status(&s), ARENA_E_INVALID, "ARENA_STATUS_INIT");
}

/* ---- slots ---- */

static void slots_scratch(struct arena *a)
{
	struct arena_spec spec = ints(), other = ints();
	void *p = NULL, *again = NULL;

	WORKS(arena_get_or_alloc(a, "ws", &spec, ARENA_EMPTY, &p, NULL));
	CHECK(first_int(p) == 0, "a new slot is not zero");
	MUST(cuMemsetD32((CUdeviceptr)p, 5, INTS));
	WORKS(arena_get_or_alloc(a, "ws", &spec, ARENA_PRESERVE, &again, NULL));
	CHECK(again == p && first_int(p) == 5, "not preserved");
	WORKS(arena_get_or_alloc(a, "ws", &spec, ARENA_ZERO, &again, NULL));
	MUST(cuCtxSynchronize());
	CHECK(again == p && first_int(p) == 0, "not zeroed");
	other.bytes = 2 * BYTES;
	other.shape[0] = 2 * INTS;
	again = NULL;
	FAILS(arena_get_or_alloc(a, "ws", &other, ARENA_ZERO, &again, NULL), ARENA_E_SPEC,
	      "bytes=4096");
	CHECK(strstr(message(), "bytes=8192"), "one spec only: %s", message());
	FAILS(arena_put(a, "ws", &spec, p, ARENA_STAGED, &again, NULL), ARENA_E_SPEC, "scratch");
	FAILS(arena_bind(a, "ws", &spec, p), ARENA_E_SPEC, "scratch");
	FAILS(arena_unbind(a, "ws"), ARENA_E_SPEC, "scratch");
	CHECK(!again, "something was handed out");
}

static void slots_value(struct arena *a)
{
	CUdeviceptr device_source = 0;
	struct arena_spec spec = ints();
	uint64_t id = 0;
	void *w = put(a, "w", 1, ARENA_STAGED), *live = NULL;

	CHECK(first_int(w) == 1, "outside of a reload a put is published at once");
	WORKS(arena_reload_begin(NULL, &id));
	CHECK(put(a, "w", 2, ARENA_STAGED) == w && first_int(w) == 1, "staged");
	WORKS(arena_layer_commit(a, NULL));
	MUST(cuCtxSynchronize());
	CHECK(first_int(w) == 2, "committed");
	CHECK(put(a, "w", 3, ARENA_STAGED) == w, "address");
	CHECK(put(a, "w", 4, ARENA_DIRECT) == w && first_int(w) == 4, "direct");
	WORKS(arena_layer_commit(a, NULL));
	MUST(cuCtxSynchronize());
	CHECK(first_int(w) == 4, "the older value came back");
	MUST(cuMemAlloc(&device_source, BYTES));
	MUST(cuMemsetD32(device_source, 9, INTS));
	WORKS(arena_put(a, "w", &spec, (void *)device_source, ARENA_STAGED, &live, NULL));
	WORKS(arena_layer_commit(a, NULL));
	MUST(cuCtxSynchronize());
	CHECK(live == w && first_int(w) == 9, "from the device");
	WORKS(arena_reload_end(id, NULL));
	MUST(cuMemFree(device_source));
}

static void slots_bound(struct arena *a)
{
	struct arena_spec spec = ints();
	struct arena_snapshot *s = NULL;
	CUdeviceptr p = 0;
	char *json = NULL;

	MUST(cuMemAlloc(&p, BYTES));
	WORKS(arena_bind(a, "foreign", &spec, (void *)p));
	WORKS(arena_snapshot(&s));
	WORKS(arena_verify(s, &json));
	CHECK(json && strstr(json, "\"findings\":[]"), "%s", json);
	WORKS(arena_free(json));
	WORKS(arena_unbind(a, "foreign"));
	FAILS(arena_get_or_alloc(a, "foreign", &spec, ARENA_ZERO, (void **)&p, NULL), ARENA_E_SPEC,
	      "bound");
	WORKS(arena_bind(a, "foreign", &spec, (void *)p));
	WORKS(arena_verify(s, NULL));
	WORKS(arena_snapshot_free(s));
	MUST(cuMemFree(p));
}

static void test_slots(void)
{
	struct arena *a, *b, *current = NULL;

	start_cuda();
	a = layer("model.layers.0");
	CHECK(layer("model.layers.0") == a, "another arena");
	b = layer("model.layers.1");
	CHECK(a != b, "one arena for two paths");
	WORKS(arena_enter(a));
	WORKS(arena_enter(b));
	WORKS(arena_current(&current));
	CHECK(current == b, "innermost");
	WORKS(arena_leave());
	WORKS(arena_current(&current));
	CHECK(current == a, "outer");
	WORKS(arena_leave());
	slots_scratch(a);
	slots_value(a);
	slots_bound(b);
	CHECK(status().arenas == 2 && status().slots == 3, "%llu slots",
	      (unsigned long long)status().slots);
	CHECK(status().storage_bytes >= 2 * BYTES, "no storage");
}

/* ---- objects ---- */

static int make_or_fail(void *ctx, void **object)
{
	int *how = ctx;

	*object = how;
	return (*how)++ ? 0 : 42;
}

static void test_objects(void)
{
	int count = 0;
	void *object = NULL, *again = NULL;
	struct arena *a;

	start_cuda();
	a = layer("model.layers.0.attn");
	CHECK(arena_object(a, "o", "T", make_or_fail, &count, &object) == 42, "the factory's error");
	CHECK(!object && count == 1, "an object");
	WORKS(arena_object(a, "o", "T", make_or_fail, &count, &object));
	WORKS(arena_object(a, "o", "T", make_or_fail, &count, &again));
	CHECK(object == &count && again == object && count == 2, "made %d times", count);
	FAILS(arena_object(a, "o", "U", make_or_fail, &count, &again), ARENA_E_SPEC, "U");
}

/* ---- puts that fail before they have a slot ---- */

static int put_bytes(struct arena *a, const char *name, uint64_t bytes)
{
	struct arena_spec spec = ARENA_SPEC_INIT;
	int values[INTS] = { 0 };
	void *live = NULL;

	spec.bytes = bytes;
	return arena_put(a, name, &spec, values, ARENA_STAGED, &live, NULL);
}

/* Also for a caller who does not look at errors: half of the layer is not published. */
static void test_failed_puts(void)
{
	struct arena *a;
	uint64_t id = 0;
	void *w;

	start_cuda();
	a = layer("model.layers.0");
	w = put(a, "w", 1, ARENA_STAGED);
	put(a, "v", 1, ARENA_STAGED);
	WORKS(arena_reload_begin(NULL, &id));
	put(a, "w", 2, ARENA_STAGED);
	FAILS(put_bytes(a, "v", 2 * BYTES), ARENA_E_SPEC, "asked for with");
	FAILS(arena_layer_commit(a, NULL), ARENA_E_REFUSED, "v: its newest put failed");
	put(a, "w", 2, ARENA_STAGED);
	put(a, "v", 2, ARENA_STAGED);
	WORKS(arena_layer_commit(a, NULL));
	put(a, "w", 3, ARENA_STAGED);
	FAILS(put_bytes(a, "new", 1ull << 45), ARENA_E_DEVICE, "free device memory");
	FAILS(put_bytes(a, "none", 0), ARENA_E_INVALID, "bytes");
	FAILS(arena_layer_commit(a, NULL), ARENA_E_REFUSED, "its newest put failed");
	MUST(cuCtxSynchronize());
	CHECK(first_int(w) == 2, "half of it was published");
	put(a, "w", 3, ARENA_STAGED);
	put(a, "new", 3, ARENA_STAGED);
	put(a, "none", 3, ARENA_STAGED);
	WORKS(arena_layer_commit(a, NULL));
	WORKS(arena_reload_end(id, NULL));
	CHECK(status().verdict == ARENA_PASS, "verdict %d", (int)status().verdict);
}

/* ---- puts around the end of a reload ---- */

#define ROUNDS 600

struct putter {
	CUcontext ctx;
	struct arena *layer;
	pthread_barrier_t both;
	int value, code;
};

static int put_code(struct arena *a, int v)
{
	struct arena_spec spec = ints();
	int values[INTS] = { v };
	void *live = NULL;

	return arena_put(a, "w", &spec, values, ARENA_STAGED, &live, NULL);
}

static int put_at_flush(void *ctx, uint64_t generation)
{
	(void)generation;
	FAILS(put_code(ctx, 9), ARENA_E_BUSY, "put after it has ended");
	return 0;
}

static void *put_once(void *arg)
{
	struct putter *p = arg;

	MUST(cuCtxSetCurrent(p->ctx));
	pthread_barrier_wait(&p->both);
	p->code = put_code(p->layer, p->value);
	return NULL;
}

/* A put is live, or its reload fails, or its caller was told. @return the live value. */
static int round_of_puts(struct putter *p, const void *live, int before)
{
	pthread_t thread;
	uint64_t id = 0;
	int now;

	WORKS(arena_reload_begin(NULL, &id));
	pthread_create(&thread, NULL, put_once, p);
	pthread_barrier_wait(&p->both);
	WORKS(arena_reload_end(id, NULL));
	pthread_join(thread, NULL);
	MUST(cuCtxSynchronize());
	now = first_int(live);
	if (p->code == ARENA_E_BUSY)
		CHECK(now == before, "%d, but the put was refused", now);
	else
		CHECK(p->code == 0 && (now == p->value || status().verdict == ARENA_FAIL),
		      "put %d is lost: %d", p->value, p->code);
	return now;
}

static void test_puts(void)
{
	struct putter p;
	uint64_t id = 0;
	int now = 0, code;
	bool lost;
	void *live;

	start_cuda();
	p.layer = layer("model.layers.0");
	MUST(cuCtxGetCurrent(&p.ctx));
	pthread_barrier_init(&p.both, NULL, 2);
	live = put(p.layer, "w", 0, ARENA_STAGED);
	for (p.value = 1; p.value <= ROUNDS; p.value++) {
		now = round_of_puts(&p, live, now);
		lost = status().verdict == ARENA_FAIL;
		WORKS(arena_reload_begin(NULL, &id));
		code = arena_layer_commit(p.layer, NULL);
		CHECK(code == (lost ? ARENA_E_REFUSED : 0), "%d: %s", code, message());
		WORKS(arena_reload_end(id, NULL));
		MUST(cuCtxSynchronize());
		CHECK(first_int(live) == now, "a value of an earlier reload came up");
		CHECK((status().verdict == ARENA_FAIL) == lost, "a put is lost, or none is");
		put(p.layer, "w", now, ARENA_DIRECT); /* made up for */
	}
	WORKS(arena_cache_register("prefix", put_at_flush, p.layer));
	WORKS(arena_reload_begin(NULL, &id));
	WORKS(arena_reload_end(id, NULL));
	CHECK(first_int(live) == now, "a put of a flush callback");
}

/* ---- a child of this process ---- */

static void test_forked(void)
{
	struct arena *a = NULL;
	int left = 0;
	pid_t pid;

	start_cuda();
	layer("model.layers.0");
	pid = fork();
	if (pid == 0)
		_exit(arena_open("model.layers.0", &a) != ARENA_E_ABSENT);
	CHECK(waitpid(pid, &left, 0) == pid && left == 0, "the library is there in a child");
}

/* ---- one verdict for all who ask ---- */

static void load(struct arena *a, int v)
{
	put(a, "w", v, ARENA_STAGED);
	WORKS(arena_enter(a));
	WORKS(arena_receive("layers.0.w", 0, BYTES));
	WORKS(arena_leave());
	WORKS(arena_layer_commit(a, NULL));
}

static void full(struct arena *a, int v)
{
	uint64_t id = 0;

	WORKS(arena_reload_begin(NULL, &id));
	load(a, v);
	WORKS(arena_reload_end(id, NULL));
}

/* @return what the reload came to; *json is its line. */
static int end_as(const char *how, struct arena *a, char **json)
{
	const char *const layers[] = { "model.layers.0" };
	struct arena_scope scope = ARENA_SCOPE_INIT;
	bool unproven = strcmp(how, "unproven") == 0;
	bool partial = unproven || strcmp(how, "unsafe") == 0;
	uint64_t id = 0;

	scope.layers = layers;
	scope.layers_count = 1;
	if (!unproven)
		full(a, 1);
	if (strcmp(how, "unsafe") == 0) {
		WORKS(arena_reload_begin(NULL, &id));
		WORKS(arena_reload_abort(id, "first", NULL));
	}
	WORKS(arena_reload_begin(partial ? &scope : NULL, &id));
	if (strcmp(how, "fail") != 0)
		load(a, 2);
	if (strcmp(how, "aborted") == 0)
		return arena_reload_abort(id, "loader raised", json);
	return arena_reload_end(id, json);
}

static void test_ends(const char *how, int code)
{
	static const char *const verdicts[] = { "\"verdict\":\"pass\"", "\"verdict\":\"fail\"",
						"\"verdict\":\"unproven\"" };
	bool aborted = strcmp(how, "aborted") == 0, unsafe = aborted || strcmp(how, "unsafe") == 0;
	struct arena_status s;
	char *json = NULL;
	int r;

	start_cuda();
	r = end_as(how, layer("model.layers.0"), &json);
	CHECK(r == code, "the end returned %d: %s", r, message());
	s = status();
	CHECK(json && strstr(json, verdicts[s.verdict]), "status %d: %s", s.verdict, json);
	CHECK(s.unsafe == unsafe && !s.reload_open, "unsafe %d, open %d", s.unsafe, s.reload_open);
	CHECK(strstr(json, unsafe ? "\"unsafe\":true" : "\"unsafe\":false"), "%s", json);
	CHECK(!aborted || strstr(json, "loader raised"), "%s", json);
	WORKS(arena_free(json));
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (strcmp(what, "absent") == 0)
		test_absent();
	else if (strcmp(what, "errors") == 0)
		test_errors();
	else if (strcmp(what, "sizes") == 0)
		test_sizes();
	else if (strcmp(what, "slots") == 0)
		test_slots();
	else if (strcmp(what, "objects") == 0)
		test_objects();
	else if (strcmp(what, "failed_puts") == 0)
		test_failed_puts();
	else if (strcmp(what, "puts") == 0)
		test_puts();
	else if (strcmp(what, "forked") == 0)
		test_forked();
	else if (strcmp(what, "ends") == 0 && argc == 4)
		test_ends(argv[2], atoi(argv[3]));
	else
		CHECK(false, "%s: not known", what);
	return check_result();
}
