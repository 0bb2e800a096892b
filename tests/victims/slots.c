/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the C API behind the words of slots.h. Any thread. */
#include "slots.h"

#include <string.h>

void arena_check(int r, const char *what, const char *file, int line)
{
	char text[512] = "";

	if (r == ARENA_OK || r == ARENA_E_ABSENT)
		return;
	arena_last_message(text, sizeof(text));
	fflush(stdout);
	fprintf(stderr, "%s:%d: %s: %d %s\n", file, line, what, r, text);
	exit(1);
}

void arena_needed(void)
{
	struct arena_status s = ARENA_STATUS_INIT;

	if (arena_status(&s) == ARENA_E_ABSENT)
		victim_skip("the story needs the library");
}

int told(const char *name, int r)
{
	char text[512] = "";

	if (r != ARENA_OK && r != ARENA_E_ABSENT)
		arena_last_message(text, sizeof(text));
	printf("call %s %d %s\n", name, r, text);
	return r;
}

struct arena *layer(const char *path)
{
	struct arena *a = NULL;

	AK(arena_open(path, &a));
	return a;
}

struct arena_spec spec_bytes(size_t bytes)
{
	struct arena_spec s = ARENA_SPEC_INIT;

	s.device = (int32_t)victim_device;
	s.bytes = bytes;
	strcpy(s.dtype, "<i4");
	return s;
}

void slot_bind(struct arena *a, const char *name, CUdeviceptr p, size_t bytes)
{
	struct arena_spec spec = spec_bytes(bytes);

	AK(arena_bind(a, name, &spec, (void *)p));
}

void slot_unbind(struct arena *a, const char *name)
{
	AK(arena_unbind(a, name));
}

CUdeviceptr slot_put(struct arena *a, const char *name, CUdeviceptr src, size_t bytes,
		     enum arena_publish how)
{
	struct arena_spec spec = spec_bytes(bytes);
	void *live = NULL;

	AK(arena_put(a, name, &spec, (const void *)src, how, &live, S));
	name_range(name, (uintptr_t)live, bytes);
	return (CUdeviceptr)live;
}

CUdeviceptr slot_put_value(struct arena *a, const char *name, int v, enum arena_publish how)
{
	CUdeviceptr source = dev_alloc("source", 4 * N_INTS), live;

	poke(source, v);
	live = slot_put(a, name, source, 4 * N_INTS, how);
	settle();
	dev_free(source);
	return live;
}

CUdeviceptr slot_scratch(struct arena *a, const char *name, size_t bytes, enum arena_init init)
{
	struct arena_spec spec = spec_bytes(bytes);
	void *p = NULL;

	AK(arena_get_or_alloc(a, name, &spec, init, &p, S));
	name_range(name, (uintptr_t)p, bytes);
	return (CUdeviceptr)p;
}

void *slot_object(struct arena *a, const char *name, arena_factory_fn make, void *ctx)
{
	void *object = NULL;
	int r = arena_object(a, name, "wrapper", make, ctx, &object);

	AK(r);
	/* Where nobody keeps objects, the story makes its own. */
	if (r == ARENA_E_ABSENT)
		MUST(make(ctx, &object) == 0);
	return object;
}

struct arena_snapshot *snap(void)
{
	struct arena_snapshot *s = NULL;

	AK(arena_snapshot(&s));
	return s;
}

static int print_json(const char *verb, const char *name, int r, char *json)
{
	printf("%s %s %d %s\n", verb, name, r, json ? json : "");
	if (json)
		arena_free(json);
	return r;
}

void verify(const char *name, const struct arena_snapshot *s)
{
	char *json = NULL;
	int r = arena_verify(s, &json);

	print_json("verify", name, r, json);
}

uint64_t reload_begin(const struct arena_scope *scope)
{
	uint64_t id = 0;

	AK(arena_reload_begin(scope, &id));
	return id;
}

void commit(struct arena *a)
{
	AK(arena_layer_commit(a, S));
}

int reload_end(const char *name, uint64_t id)
{
	char *json = NULL;
	int r = arena_reload_end(id, &json);

	return print_json("reload", name, r, json);
}

int reload_abort(const char *name, uint64_t id, const char *why)
{
	char *json = NULL;
	int r = arena_reload_abort(id, why, &json);

	return print_json("reload", name, r, json);
}

struct arena_status status(void)
{
	struct arena_status s = ARENA_STATUS_INIT;

	AK(arena_status(&s));
	return s;
}
