/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: read the table of offsets at the begin of _PyRuntime.
 *
 * It is a row of 64-bit numbers, which each minor version has in an order of its own. So it is
 * believed only if what is known of every version comes out: the heads of objects and strings, and
 * that each field lies in its struct. Nothing else of the interpreter is read.
 *
 * Any thread; no state.
 */
#include "shim/python_image.h"

#include <stddef.h>
#include <string.h>

#define COOKIE "xdebugpy"
/* PY_VERSION_HEX: from the first release candidate of a version on, its table is settled. */
#define HEX_MINOR(v)	((v) >> 16)
#define HEX_LEVEL(v)	((v) >> 4 & 15)
#define LEVEL_CANDIDATE 12

enum { AT_COOKIE, AT_VERSION, AT_FREE_THREADED };

/* Numbers in the table, by the order of the fields in pycore_runtime.h of 3.13 and
 * pycore_debug_offsets.h of 3.14. 0: there is none. */
static const struct places {
	int minor;
	uint8_t thread_bytes, thread_frame;
	uint8_t frame_bytes, previous, executable, instruction, owner, copy;
	uint8_t code_bytes, file, name, start, copies;
	uint8_t object_bytes, object_type;
	uint8_t string_bytes, string_state, string_length, ascii_bytes;
} all_places[] = {
	{ 13, 19, 23, 28, 29, 30, 31, 33, 0, 34, 35, 36, 43, 0, 44, 45, 67, 68, 69, 70 },
	{ 14, 22, 26, 31, 32, 33, 34, 36, 38, 39, 40, 41, 48, 49, 50, 51, 77, 78, 79, 80 },
};

/* One table that is being read. */
struct table {
	const uint64_t *numbers;
	bool wrong;
};

/* A field of @bytes at number @at, in the struct whose size is number @within. */
static uint16_t field(struct table *t, unsigned at, unsigned within, uint64_t bytes)
{
	uint64_t offset = t->numbers[at], size = t->numbers[within];

	if (size > PYTHON_NONE || offset >= size || bytes > size - offset || offset % bytes != 0) {
		t->wrong = true;
		return PYTHON_NONE;
	}
	return (uint16_t)offset;
}

/* Where there is a GIL, a head is a count and a type; else it is twice as large. */
static bool fits(const struct python_layout *l, bool free_threaded)
{
	uint16_t head = free_threaded ? 32 : 16;

	return l->object_bytes == head && l->object_type == head - 8 && l->string_length == head &&
	       l->string_state == head + 16 && l->ascii_bytes >= head + 24 &&
	       l->ascii_bytes <= head + 32 && l->frame_code != l->frame_previous &&
	       l->frame_at != l->frame_code && l->code_file != l->code_name;
}

static const struct places *places_of(int minor)
{
	for (size_t i = 0; i < sizeof(all_places) / sizeof(all_places[0]); i++)
		if (all_places[i].minor == minor)
			return &all_places[i];
	return NULL;
}

static bool is_of(const uint64_t *numbers, int minor)
{
	uint64_t version = numbers[AT_VERSION];

	return memcmp(&numbers[AT_COOKIE], COOKIE, sizeof(*numbers)) == 0 &&
	       HEX_MINOR(version) == (uint64_t)(3 << 8 | minor) &&
	       HEX_LEVEL(version) >= LEVEL_CANDIDATE && numbers[AT_FREE_THREADED] <= 1;
}

bool python_image_read(const void *runtime, int minor, struct python_layout *out)
{
	const struct places *p = places_of(minor);
	struct table t = { .numbers = runtime };
	const uint64_t *n = runtime;
	bool free_threaded;

	if (!p || !n || (uintptr_t)n % sizeof(*n) != 0 || !is_of(n, minor))
		return false;
	free_threaded = n[AT_FREE_THREADED] != 0;
	*out = (struct python_layout){
		.minor = minor,
		.object_bytes = (uint16_t)n[p->object_bytes],
		.object_type = field(&t, p->object_type, p->object_bytes, 8),
		.string_length = field(&t, p->string_length, p->string_bytes, 8),
		.string_state = field(&t, p->string_state, p->string_bytes, 4),
		.state_frame = field(&t, p->thread_frame, p->thread_bytes, 8),
		.holder_frame = PYTHON_NONE,
		.frame_previous = field(&t, p->previous, p->frame_bytes, 8),
		.frame_code = field(&t, p->executable, p->frame_bytes, 8),
		.frame_owner = field(&t, p->owner, p->frame_bytes, 1),
		.frame_at = field(&t, p->instruction, p->frame_bytes, 8),
		.frame_copy = PYTHON_NONE,
		.code_start = field(&t, p->start, p->code_bytes, 2),
		.code_copies = PYTHON_NONE,
		.code_file = field(&t, p->file, p->code_bytes, 8),
		.code_name = field(&t, p->name, p->code_bytes, 8),
		.ascii_bytes = (uint16_t)n[p->ascii_bytes],
		.compact_bytes = (uint16_t)(n[p->ascii_bytes] + 16),
	};
	if (free_threaded && p->copies != 0) {
		out->frame_copy = field(&t, p->copy, p->frame_bytes, 4);
		out->code_copies = field(&t, p->copies, p->code_bytes, 8);
	}
	return !t.wrong && n[p->ascii_bytes] < PYTHON_NONE && fits(out, free_threaded);
}
