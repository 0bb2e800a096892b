/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: what decode.def says of the kernels of a decode graph, as data. Threads: any; constant.
 */
#include <string.h>

#include "kernels/decode/decode.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* What a row reads and writes. */
#define RANGE(field, size, reads, writes)                     \
	out[n++] = (struct decode_range){                     \
		.name = #field,                               \
		.address = a->field,                          \
		.bytes = (size),                              \
		.offset = (uint16_t)offsetof(args_of, field), \
		.read = (reads),                              \
		.written = (writes),                          \
	};
#define S(field, size) RANGE(field, size, true, false)
#define R(field, size) RANGE(field, size, false, true)
#define U(field, size) RANGE(field, size, true, true)
#define DECODE(name, doc, params, ranges)                                         \
	static uint32_t name##_ranges(const void *args, struct decode_range *out) \
	{                                                                         \
		typedef struct name##_args args_of;                               \
		const args_of *a = args;                                          \
		uint32_t n = 0;                                                   \
                                                                                  \
		ranges;                                                           \
		return n;                                                         \
	}
#include "kernels/decode/decode.def"
#undef S
#undef R
#undef U
#undef RANGE
#undef DECODE

/* A row itself; in a function, where the type of its parameters has a name that P can use. */
#define P(type, field) { #field, (uint16_t)offsetof(args_of, field), sizeof(type) },
#define DECODE(row, text, parameters, ranges_)                                        \
	static const struct decode *row##_row(void)                                   \
	{                                                                             \
		typedef struct row##_args args_of;                                    \
		enum { count = ARRAY_SIZE(((struct decode_param[]){ parameters })) }; \
		static const struct decode d = { .name = #row,                        \
						 .doc = text,                         \
						 .params_count = count,               \
						 .args_bytes = sizeof(args_of),       \
						 .params = { parameters },            \
						 .ranges = row##_ranges };            \
		return &d;                                                            \
	}
#include "kernels/decode/decode.def"
#undef P
#undef DECODE

static const struct {
	const struct decode *(*row)(void);
	decode_twin_fn twin;
} rows[] = {
#define DECODE(name, doc, params, ranges) { name##_row, name##_twin },
#include "kernels/decode/decode.def"
#undef DECODE
};

const struct decode *decode_at(size_t i)
{
	return i < ARRAY_SIZE(rows) ? rows[i].row() : NULL;
}

/* Of the row with this name; count of the rows: there is none. */
static size_t place(const char *name)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(rows) && strcmp(rows[i].row()->name, name) != 0)
		i++;
	return i;
}

const struct decode *decode_find(const char *name)
{
	return decode_at(place(name));
}

decode_twin_fn decode_twin(const char *name)
{
	size_t i = place(name);

	return i < ARRAY_SIZE(rows) ? rows[i].twin : NULL;
}
