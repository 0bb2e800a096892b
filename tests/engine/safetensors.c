/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: read and write safetensors files. What a header says is checked before it is used: every
 * tensor lies in the file, has as many bytes as its shape and type need, and the tensors cover the
 * data without a hole or an overlap, as the format demands. One thread a file.
 */
#include "tests/engine/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_MAX    (100u << 20) /* the reference implementation's limit */
#define LENGTH	      8		   /* bytes of the header's length */
#define PATH_SHOWN    200	   /* bytes, in errors */
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* What a check needs to say where it failed. */
struct reader {
	const char *path;
	char *error;
	size_t error_bytes;
	uint64_t data_bytes;
	const char *data;
};

static const struct {
	const char *name;
	uint32_t bits;
} dtypes[] = {
	{ "F4", 4 },   { "F6_E2M3", 6 }, { "F6_E3M2", 6 }, { "BOOL", 8 },    { "U8", 8 },
	{ "I8", 8 },   { "F8_E4M3", 8 }, { "F8_E5M2", 8 }, { "F8_E8M0", 8 }, { "U16", 16 },
	{ "I16", 16 }, { "F16", 16 },	 { "BF16", 16 },   { "U32", 32 },    { "I32", 32 },
	{ "F32", 32 }, { "U64", 64 },	 { "I64", 64 },	   { "F64", 64 },    { "C64", 64 },
};

static uint32_t bits_of(const char *dtype)
{
	for (size_t i = 0; i < ARRAY_SIZE(dtypes); i++)
		if (!strcmp(dtypes[i].name, dtype))
			return dtypes[i].bits;
	return 0;
}

uint32_t safetensors_dtype_bytes(const char *dtype)
{
	uint32_t bits = bits_of(dtype);

	return bits % 8 == 0 ? bits / 8 : 0;
}

/* A name from a file may hold anything: keep it on one line. Of a long path the end says most. */
static int refuse(const struct reader *r, const char *name, const char *why)
{
	size_t length = strlen(r->path), cut = length > PATH_SHOWN ? length - PATH_SHOWN : 0;

	snprintf(r->error, r->error_bytes, "%s%s: %s%.80s%s%s", cut ? "..." : "", r->path + cut,
		 name ? "tensor '" : "", name ? name : "", name ? "': " : "", why);
	for (char *c = r->error; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	return -1;
}

static int read_shape(const struct reader *r, const json_t *shape, struct safetensor *t)
{
	uint64_t bits = bits_of(t->dtype);

	if (!bits)
		return refuse(r, t->name, "its dtype is unknown");
	if (json_array_size(shape) > SAFETENSORS_DIMS_MAX)
		return refuse(r, t->name, "it has more than 8 dimensions");
	t->ndim = (uint32_t)json_array_size(shape);
	for (uint32_t i = 0; i < t->ndim; i++) {
		const json_t *n = json_array_get(shape, i);

		if (!json_is_integer(n) || json_integer_value(n) < 0)
			return refuse(r, t->name, "its shape has something that is no size");
		t->shape[i] = (uint64_t)json_integer_value(n);
		if (__builtin_mul_overflow(bits, t->shape[i], &bits))
			return refuse(r, t->name, "its shape needs more than 64 bits count");
	}
	if (bits % 8 != 0)
		return refuse(r, t->name, "its shape and dtype end inside of a byte");
	t->bytes = bits / 8;
	return 0;
}

static int read_place(const struct reader *r, const json_t *offsets, struct safetensor *t)
{
	const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
	uint64_t from, to;

	if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
	    json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
		return refuse(r, t->name, "its data_offsets are not a begin and an end");
	from = (uint64_t)json_integer_value(begin);
	to = (uint64_t)json_integer_value(end);
	if (to > r->data_bytes)
		return refuse(r, t->name, "it ends behind the end of the file");
	if (to - from != t->bytes)
		return refuse(r, t->name, "its data_offsets do not fit its shape and dtype");
	t->data = r->data + from;
	return 0;
}

static int read_tensor(const struct reader *r, const char *name, const json_t *entry,
		       struct safetensor *t)
{
	const char *dtype = json_string_value(json_object_get(entry, "dtype"));
	const json_t *shape = json_object_get(entry, "shape");

	t->name = name;
	t->dtype = dtype;
	if (!dtype || !json_is_array(shape) || json_object_size(entry) != 3)
		return refuse(r, name, "it has not exactly dtype, shape and data_offsets");
	if (read_shape(r, shape, t))
		return -1;
	return read_place(r, json_object_get(entry, "data_offsets"), t);
}

static int by_place(const void *a, const void *b)
{
	const struct safetensor *x = a, *y = b;

	if (x->data != y->data)
		return (const char *)x->data < (const char *)y->data ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* One behind the other, from the first byte to the last. */
static int check_cover(const struct reader *r, struct safetensors *s)
{
	const char *next = r->data;

	qsort(s->tensors, s->count, sizeof(*s->tensors), by_place);
	for (size_t i = 0; i < s->count; i++) {
		if (s->tensors[i].data != next)
			return refuse(r, s->tensors[i].name,
				      "it overlaps another, or leaves a hole");
		next += s->tensors[i].bytes;
	}
	return next == r->data + r->data_bytes ? 0 : refuse(r, NULL, "it has data of no tensor");
}

/* "__metadata__" is text by name. */
static int check_metadata(const struct reader *r, json_t *metadata)
{
	const char *name;
	json_t *value;

	if (!json_is_object(metadata))
		return refuse(r, NULL, "its __metadata__ is not a JSON object");
	json_object_foreach(metadata, name, value)
	{
		if (!json_is_string(value))
			return refuse(r, NULL, "its __metadata__ has something that is no text");
	}
	return 0;
}

static int read_header(const struct reader *r, struct safetensors *s)
{
	const char *name;
	json_t *entry;

	s->tensors = calloc(json_object_size(s->header) + 1, sizeof(*s->tensors));
	if (!s->tensors)
		return refuse(r, NULL, "there is no memory for its header");
	json_object_foreach(s->header, name, entry)
	{
		bool is_tensor = strcmp(name, "__metadata__") != 0;

		if (is_tensor ? read_tensor(r, name, entry, &s->tensors[s->count])
			      : check_metadata(r, entry))
			return -1;
		s->count += is_tensor;
	}
	return check_cover(r, s);
}

static int parse(struct reader *r, struct safetensors *s)
{
	const char *bytes = s->map;
	uint64_t length;
	json_error_t why;

	if (s->map_bytes < LENGTH)
		return refuse(r, NULL, "it is shorter than the length of its header");
	memcpy(&length, bytes, sizeof(length));
	if (length > HEADER_MAX || length > s->map_bytes - LENGTH)
		return refuse(r, NULL, "its header is longer than the file, or than 100 MiB");
	if (length == 0 || bytes[LENGTH] != '{')
		return refuse(r, NULL, "its header does not begin with {");
	s->header = json_loadb(bytes + LENGTH, length, JSON_REJECT_DUPLICATES, &why);
	if (!s->header)
		return refuse(r, NULL, why.text);
	r->data = bytes + LENGTH + length;
	r->data_bytes = s->map_bytes - LENGTH - length;
	return read_header(r, s);
}

/* An empty file cannot be mapped; it is refused as too short. A FIFO must not hold up open(). */
static int map(const struct reader *r, struct safetensors *s)
{
	int fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	int saved;

	if (fd < 0)
		return refuse(r, NULL, strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		return refuse(r, NULL, "it is not a regular file");
	}
	s->map_bytes = (size_t)st.st_size;
	s->map = s->map_bytes ? mmap(NULL, s->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
	saved = errno;
	close(fd);
	if (s->map == MAP_FAILED) {
		s->map = NULL;
		return refuse(r, NULL, strerror(saved));
	}
	return 0;
}

int safetensors_open(const char *path, struct safetensors *out, char *error, size_t error_bytes)
{
	struct reader r = { .path = path, .error = error, .error_bytes = error_bytes };

	memset(out, 0, sizeof(*out));
	if (!map(&r, out) && !parse(&r, out))
		return 0;
	safetensors_close(out);
	return -1;
}

const struct safetensor *safetensors_find(const struct safetensors *s, const char *name)
{
	for (size_t i = 0; i < s->count; i++)
		if (!strcmp(s->tensors[i].name, name))
			return &s->tensors[i];
	return NULL;
}

const char *safetensors_metadata(const struct safetensors *s, const char *key)
{
	return json_string_value(json_object_get(json_object_get(s->header, "__metadata__"), key));
}

void safetensors_close(struct safetensors *s)
{
	if (s->map)
		munmap(s->map, s->map_bytes);
	json_decref(s->header);
	free(s->tensors);
	memset(s, 0, sizeof(*s));
}

/* ---- writing ---- */

static char *header_of(const struct safetensor *tensors, size_t count, const char *const *metadata)
{
	json_t *header = json_object(), *names = metadata ? json_object() : NULL;
	uint64_t at = 0;
	char *text;

	for (; metadata && *metadata; metadata += 2)
		json_object_set_new(names, metadata[0], json_string(metadata[1]));
	if (names)
		json_object_set_new(header, "__metadata__", names);
	for (size_t i = 0; i < count; i++) {
		const struct safetensor *t = &tensors[i];
		json_t *shape = json_array();

		for (uint32_t d = 0; d < t->ndim; d++)
			json_array_append_new(shape, json_integer((json_int_t)t->shape[d]));
		json_object_set_new(header, t->name,
				    json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->dtype, "shape",
					      shape, "data_offsets", (json_int_t)at,
					      (json_int_t)(at + t->bytes)));
		at += t->bytes;
	}
	text = json_dumps(header, JSON_COMPACT);
	json_decref(header);
	return text;
}

int safetensors_write(const char *path, const struct safetensor *tensors, size_t count,
		      const char *const *metadata)
{
	char *header = header_of(tensors, count, metadata);
	uint64_t length = header ? strlen(header) : 0, padded = (length + 7) & ~7ull;
	FILE *f = header ? fopen(path, "we") : NULL;
	int bad = !f;

	if (f) {
		fwrite(&padded, sizeof(padded), 1, f);
		fprintf(f, "%-*s", (int)padded, header); /* spaces, so that data are aligned */
		for (size_t i = 0; i < count; i++)
			fwrite(tensors[i].data, 1, tensors[i].bytes, f);
		bad = ferror(f);
		bad |= fclose(f);
	}
	free(header);
	return bad ? -1 : 0;
}
