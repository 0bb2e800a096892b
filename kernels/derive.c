/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: what kernels.def says of the derivations, as data. Threads: any; constant.
 */
#include <string.h>

#include "kernels/derive.h"
#include "kernels/image.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* What a row reads and writes. */
#define KERNEL(name, doc, params)
#define L(field, condition, text)
#define RANGE(field, size, written)                           \
	out[n++] = (struct derive_range){                     \
		.name = #field,                               \
		.address = a->field,                          \
		.bytes = (size),                              \
		.offset = (uint16_t)offsetof(args_of, field), \
		.result = (written),                          \
	};
#define S(field, size) RANGE(field, size, false)
#define R(field, size) RANGE(field, size, true)
#define DERIVE(name, doc, params, ranges)                                         \
	static uint32_t name##_ranges(const void *args, struct derive_range *out) \
	{                                                                         \
		typedef struct name##_args args_of;                               \
		const args_of *a = args;                                          \
		uint32_t n = 0;                                                   \
                                                                                  \
		ranges;                                                           \
		return n;                                                         \
	}
#include "kernels/kernels.def"
#undef S
#undef R
#undef L
#undef RANGE

/* Which numbers it takes. */
#define S(field, size)
#define R(field, size)
#define L(field, condition, text)                                           \
	if (!(condition)) {                                                 \
		*refused = (struct derive_limit){ #field, text, a->field }; \
		return false;                                               \
	}
#define DERIVE(name, doc, params, ranges)                                        \
	static bool name##_takes(const void *args, struct derive_limit *refused) \
	{                                                                        \
		const struct name##_args *a = args;                              \
                                                                                 \
		(void)a;                                                         \
		(void)refused;                                                   \
		ranges;                                                          \
		return true;                                                     \
	}
#include "kernels/kernels.def"
#undef S
#undef R
#undef L

/* A row itself; in a function, where the type of its parameters has a name that P can use. */
#define P(type, field) { #field, (uint16_t)offsetof(args_of, field), sizeof(type) },
#define DERIVE(row, text, parameters, ranges_)                                        \
	static const struct derive *row##_row(void)                                   \
	{                                                                             \
		typedef struct row##_args args_of;                                    \
		enum { count = ARRAY_SIZE(((struct derive_param[]){ parameters })) }; \
		static const struct derive d = { .name = #row,                        \
						 .doc = text,                         \
						 .params_count = count,               \
						 .args_bytes = sizeof(args_of),       \
						 .params = { parameters },            \
						 .ranges = row##_ranges,              \
						 .takes = row##_takes };              \
		return &d;                                                            \
	}
#include "kernels/kernels.def"
#undef P

static const struct derive *(*const rows[])(void) = {
#define DERIVE(name, doc, params, ranges) name##_row,
#include "kernels/kernels.def"
};
#undef KERNEL

const struct derive *derive_at(size_t i)
{
	return i < ARRAY_SIZE(rows) ? rows[i]() : NULL;
}

const struct derive *derive_find(const char *name)
{
	const struct derive *d = NULL;

	for (size_t i = 0; (d = derive_at(i)) != NULL; i++)
		if (!strcmp(d->name, name))
			break;
	return d;
}
