/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas by path, slots by name, specs and their text; why the last call of a thread failed.
 *
 * Arenas and slots are made once and stay. Both are found by the numbers of their names, a slot
 * in one map for all arenas, whose key is (path, name).
 *
 * Threads: any; see registry.h for which calls want the registry lock.
 */
#include "arena/registry.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/intern.h"
#include "arena/map.h"
#include "arena/slab.h"
#include "arena/storage.h"

#define MESSAGE_BYTES 512

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The rest is guarded by it. */
static struct slab arenas = SLAB_INIT(struct arena);
static struct slab slots = SLAB_INIT(struct slot);
static struct slab misses = SLAB_INIT(struct missed);
static struct map by_path, by_name;
static struct arena *first, *last;

static _Thread_local char message[MESSAGE_BYTES];

void registry_lock(void)
{
	pthread_mutex_lock(&lock);
}

void registry_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

int arena_fail(enum arena_err err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	return err;
}

const char *arena_message(void)
{
	return message;
}

/* ---- arenas ---- */

static struct arena *arena_new(uint32_t path)
{
	struct arena *a = slab_get(&arenas);

	if (a == NULL)
		return NULL;
	*a = (struct arena){ .path = path, .storage = storage_new() };
	if (a->storage != NULL && map_put(&by_path, path, a) == 0)
		return a;
	storage_free(a->storage);
	slab_put(&arenas, a);
	return NULL;
}

struct arena *registry_open(const char *path)
{
	uint32_t id = intern(path);
	struct arena *a = map_get(&by_path, id);

	if (a != NULL || id == 0)
		return a;
	a = arena_new(id);
	if (a == NULL)
		return NULL;
	if (last != NULL)
		last->next = a;
	else
		first = a;
	last = a;
	return a;
}

struct arena *registry_first(void)
{
	return first;
}

/* ---- slots ---- */

static uint64_t key_of(const struct arena *a, uint32_t name)
{
	return (uint64_t)a->path << 32 | name;
}

struct slot *slot_find(struct arena *a, const char *name)
{
	uint32_t id = intern(name);

	return id != 0 ? map_get(&by_name, key_of(a, id)) : NULL;
}

/* The link to the miss of @name in @a; where it would be appended, if there is none. */
static struct missed **miss_find(struct arena *a, uint32_t name)
{
	struct missed **link = &a->missed;

	while (*link != NULL && (*link)->name != name)
		link = &(*link)->next;
	return link;
}

void slot_miss(struct arena *a, const char *name)
{
	uint32_t id = intern(name);
	struct missed *m = id != 0 && *miss_find(a, id) == NULL ? slab_get(&misses) : NULL;

	if (m == NULL)
		return;
	*m = (struct missed){ .name = id, .next = a->missed };
	a->missed = m;
}

static void miss_end(struct arena *a, uint32_t name)
{
	struct missed **link = miss_find(a, name), *m = *link;

	if (m == NULL)
		return;
	*link = m->next;
	slab_put(&misses, m);
}

struct slot *slot_add(struct arena *a, const char *name, enum arena_kind kind,
		      const struct arena_spec *spec)
{
	uint32_t id = intern(name);
	struct slot *s = id != 0 ? slab_get(&slots) : NULL;

	if (s == NULL)
		return NULL;
	*s = (struct slot){
		.arena = a,
		.name = id,
		.kind = kind,
		.spec = *spec,
		.serial = a->slots_count,
	};
	if (map_put(&by_name, key_of(a, id), s) != 0) {
		slab_put(&slots, s);
		return NULL;
	}
	if (a->slots_tail != NULL)
		a->slots_tail->next = s;
	else
		a->slots = s;
	a->slots_tail = s;
	a->slots_count++;
	miss_end(a, id);
	return s;
}

/* ---- specs ---- */

bool spec_equal(const struct arena_spec *a, const struct arena_spec *b)
{
	/* Both come from spec_read(): what is unused is zero. */
	return a->bytes == b->bytes && a->device == b->device && a->ndim == b->ndim &&
	       a->flags == b->flags && memcmp(a->shape, b->shape, sizeof(a->shape)) == 0 &&
	       memcmp(a->strides, b->strides, sizeof(a->strides)) == 0 &&
	       strcmp(a->dtype, b->dtype) == 0 && strcmp(a->layout, b->layout) == 0;
}

struct text {
	char *buf;
	size_t size_bytes, length;
};

static __attribute__((format(printf, 2, 3))) void put(struct text *t, const char *format, ...)
{
	size_t at = t->length < t->size_bytes ? t->length : t->size_bytes;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->buf + at, t->size_bytes - at, format, args);
	va_end(args);
	t->length += n > 0 ? (size_t)n : 0;
}

static void put_list(struct text *t, const char *name, const int64_t *v, uint32_t count)
{
	put(t, " %s=[", name);
	for (uint32_t i = 0; i < count; i++)
		put(t, "%s%" PRId64, i ? "," : "", v[i]);
	put(t, "]");
}

size_t spec_text(const struct arena_spec *s, char *buf, size_t buf_bytes)
{
	struct text t = { buf, buf_bytes, 0 };

	put(&t, "bytes=%" PRIu64, s->bytes);
	if (s->dtype[0])
		put(&t, " dtype=%s", s->dtype);
	if (s->ndim) {
		put_list(&t, "shape", s->shape, s->ndim);
		put_list(&t, "strides", s->strides, s->ndim);
	}
	put(&t, " device=%" PRId32, s->device);
	if (s->layout[0])
		put(&t, " layout=%s", s->layout);
	if (s->flags & ARENA_SPEC_SCRATCH)
		put(&t, " scratch");
	if (s->flags & ARENA_SPEC_ZERO)
		put(&t, " zero");
	return t.length;
}

/*
 * A caller built against another version has a smaller or a larger struct: what it lacks is zero,
 * what it has more must be.
 */
static int spec_copy(const struct arena_spec *in, struct arena_spec *out)
{
	const char *bytes = (const char *)in;
	uint32_t size_bytes;

	if (in == NULL)
		return arena_fail(ARENA_E_INVALID, "spec: NULL; pass a struct arena_spec");
	size_bytes = in->struct_bytes;
	if (size_bytes < offsetof(struct arena_spec, ndim) || size_bytes > 4096)
		return arena_fail(ARENA_E_INVALID,
				  "spec.struct_bytes: %" PRIu32 "; start from ARENA_SPEC_INIT",
				  size_bytes);
	for (uint32_t i = sizeof(*out); i < size_bytes; i++)
		if (bytes[i] != 0)
			return arena_fail(ARENA_E_INVALID,
					  "spec: byte %" PRIu32 " of %" PRIu32 " is set, this "
					  "library knows %zu; install a newer one",
					  i, size_bytes, sizeof(*out));
	memset(out, 0, sizeof(*out));
	memcpy(out, in, size_bytes < sizeof(*out) ? size_bytes : sizeof(*out));
	out->struct_bytes = sizeof(*out);
	return ARENA_OK;
}

/* A name in an array: its end is there, and what follows it is zero. */
static int spec_name(const char *field, char *name, size_t room)
{
	size_t length = strnlen(name, room);

	if (length == room)
		return arena_fail(ARENA_E_INVALID, "spec.%s: '%.*s' has no end; at most %zu bytes",
				  field, (int)room, name, room - 1);
	memset(name + length, 0, room - length);
	return ARENA_OK;
}

/* Unused entries are zero; strides that are not told are those of a contiguous array. */
static int spec_dims(struct arena_spec *s)
{
	bool told = false;
	int64_t stride = 1;

	if (s->ndim > ARENA_MAX_DIMS)
		return arena_fail(ARENA_E_INVALID, "spec.ndim: %" PRIu32 "; at most %d", s->ndim,
				  ARENA_MAX_DIMS);
	for (uint32_t i = 0; i < ARENA_MAX_DIMS; i++) {
		if (i >= s->ndim)
			s->shape[i] = s->strides[i] = 0;
		if (s->shape[i] < 0)
			return arena_fail(ARENA_E_INVALID,
					  "spec.shape[%" PRIu32 "]: %" PRId64 "; at least 0", i,
					  s->shape[i]);
		told |= s->strides[i] != 0;
	}
	for (uint32_t i = s->ndim; i-- > 0;) {
		if (!told)
			s->strides[i] = stride;
		/* Of one element the stride says nothing, and frameworks differ in it. */
		if (s->shape[i] <= 1)
			s->strides[i] = 1;
		else if (__builtin_mul_overflow(stride, s->shape[i], &stride))
			return arena_fail(ARENA_E_INVALID,
					  "spec.shape: more elements than 64 bits count");
	}
	return ARENA_OK;
}

/*
 * Bytes of an element: "<f4" of NumPy, where the number counts bytes (of "U" characters of 4), or
 * "bfloat16" of PyTorch, where it counts bits, and smaller ones share a byte as a pair.
 * @return 0: not known, and then nothing can be said about the extent.
 */
static uint64_t item_bytes(const char *dtype)
{
	static const char *const words[] = { "bfloat", "bits", "bool",	"complex", "float",
					     "int",    "qint", "quint", "uint" };
	size_t letters = strcspn(dtype, "0123456789");
	uint64_t number = strtoul(dtype + letters, NULL, 10);

	if (strcmp(dtype, "bool") == 0)
		return 1;
	if (number == 0 || number > 1024)
		return 0;
	if (strchr("<>|=", dtype[0]) != NULL)
		return letters == 2 ? number * (dtype[1] == 'U' ? 4 : 1) : 0;
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (strlen(words[i]) == letters && strncmp(dtype, words[i], letters) == 0)
			return (number + 7) / 8;
	return 0;
}

/* Elements from the first to the last one. @return false: more than 64 bits count. */
static bool count_extent(const struct arena_spec *s, uint64_t *elements)
{
	uint64_t distance = 0, step;

	*elements = 0;
	for (uint32_t i = 0; i < s->ndim; i++) {
		uint64_t stride = (uint64_t)s->strides[i];

		if (s->strides[i] < 0)
			stride = -stride;
		if (s->shape[i] == 0)
			return true;
		if (__builtin_mul_overflow((uint64_t)s->shape[i] - 1, stride, &step) ||
		    __builtin_add_overflow(distance, step, &distance))
			return false;
	}
	*elements = distance + 1;
	return true;
}

/* The shape has to lie in the bytes. It need not fill them: padding is a part of the slot. */
static int spec_fits(const struct arena_spec *s)
{
	uint64_t item = item_bytes(s->dtype), extent;

	if (s->ndim == 0 || item == 0)
		return ARENA_OK;
	if (!count_extent(s, &extent) || __builtin_mul_overflow(extent, item, &extent))
		return arena_fail(ARENA_E_INVALID, "spec.strides: more bytes than 64 bits count");
	if (extent <= s->bytes)
		return ARENA_OK;
	return arena_fail(ARENA_E_INVALID,
			  "spec.bytes: %" PRIu64 ", but shape, strides and dtype '%s' take %" PRIu64
			  "; tell what is right, or no shape",
			  s->bytes, s->dtype, extent);
}

int spec_read(const struct arena_spec *in, struct arena_spec *out)
{
	int err = spec_copy(in, out);

	if (err)
		return err;
	if (out->bytes == 0)
		return arena_fail(ARENA_E_INVALID, "spec.bytes: 0; tell the extent of the slot");
	if (out->bytes > (uint64_t)INT64_MAX)
		return arena_fail(ARENA_E_INVALID, "spec.bytes: %" PRIu64 "; no memory is so large",
				  out->bytes);
	if (out->device < 0)
		return arena_fail(ARENA_E_INVALID,
				  "spec.device: %" PRId32 "; pass a CUDA device ordinal",
				  out->device);
	if (out->flags & ~(uint32_t)(ARENA_SPEC_SCRATCH | ARENA_SPEC_ZERO))
		return arena_fail(ARENA_E_INVALID, "spec.flags: %#" PRIx32 "; known is %#x",
				  out->flags, ARENA_SPEC_SCRATCH | ARENA_SPEC_ZERO);
	err = spec_name("dtype", out->dtype, sizeof(out->dtype));
	if (!err)
		err = spec_name("layout", out->layout, sizeof(out->layout));
	err = err ? err : spec_dims(out);
	return err ? err : spec_fits(out);
}
