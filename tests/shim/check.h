/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the route tests share: assertions, the rows of hooks.def, and the truth about the driver,
 * asked past the shim with the C library's own dlsym.
 */
#ifndef TESTS_SHIM_CHECK_H
#define TESTS_SHIM_CHECK_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_SKIP	77

static unsigned check_failures;

/* Go on after a failure, so that one run names all of them. */
#define CHECK(condition, ...)                                                                 \
	do {                                                                                  \
		if (!(condition)) {                                                           \
			check_failures++;                                                     \
			fprintf(stderr, "%s:%d: failed: %s: ", __FILE__, __LINE__,            \
				#condition);                                                  \
			fprintf(stderr, __VA_ARGS__);                                         \
			fputc('\n', stderr);                                                  \
		}                                                                             \
	} while (0)

static inline int check_result(void)
{
	if (check_failures)
		fprintf(stderr, "%u checks failed\n", check_failures);
	return check_failures ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* ---- rows ---- */

struct row {
	const char *symbol, *base;
	unsigned since;
	bool per_thread;
};

static const struct row rows[] = {
#define HOOK(base_, suffix, since_, stream, family, kind, doc, params, args)                  \
	{ #base_ #suffix #stream, #base_, since_, sizeof(#stream) > 1 },
#include "shim/hooks.def"
#undef HOOK
};
#define ROWS	(sizeof(rows) / sizeof(rows[0]))

static inline const struct row *row_of_symbol(const char *symbol)
{
	for (size_t i = 0; i < ROWS; i++)
		if (strcmp(rows[i].symbol, symbol) == 0)
			return &rows[i];
	return NULL;
}

static inline bool is_base(const char *name)
{
	for (size_t i = 0; i < ROWS; i++)
		if (strcmp(rows[i].base, name) == 0)
			return true;
	return false;
}

/* ---- the shim and the driver ---- */

/* cuda.h would rename half of what is tested here. */
typedef int (*gpa_v1_fn)(const char *symbol, void **pfn, int version, unsigned long flags);
typedef int (*gpa_v2_fn)(const char *symbol, void **pfn, int version, unsigned long flags,
			 int *status);
enum { FLAGS_DEFAULT, FLAGS_LEGACY, FLAGS_PER_THREAD };

/* Name of the object that @p lies in, without folders. */
static inline const char *object_of(void *p)
{
	Dl_info info;
	const char *slash;

	if (!p || !dladdr(p, &info) || !info.dli_fname)
		return "nowhere";
	slash = strrchr(info.dli_fname, '/');
	return slash ? slash + 1 : info.dli_fname;
}

static inline bool in_shim(void *p)
{
	return strncmp(object_of(p), "libarena_shim", 13) == 0;
}

/* The wrapper of a symbol: what the shim itself exports. */
static inline void *wrapper_of(const char *symbol)
{
	static void *shim;
	Dl_info info;
	void *abi;

	if (!shim) {
		abi = dlsym(RTLD_DEFAULT, "arena_abi");
		if (abi && dladdr(abi, &info))
			shim = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	}
	if (!shim) {
		fprintf(stderr, "the shim is not preloaded\n");
		exit(EXIT_FAILURE);
	}
	return dlsym(shim, symbol);
}

/* The C library's dlsym: asked for on its own handle, it is left alone by the shim. */
static inline void *raw_symbol(void *handle, const char *symbol)
{
	static void *(*raw)(void *, const char *);

	if (!raw)
		raw = (void *(*)(void *, const char *))dlsym(dlopen("libc.so.6", RTLD_LAZY),
							     "dlsym");
	return raw(handle, symbol);
}

/* What the application must see for the driver's own @raw answer, asked for by name. */
static inline void *expected_for(void *driver, const char *base, void *raw)
{
	for (size_t i = 0; raw && i < ROWS; i++)
		if (strcmp(rows[i].base, base) == 0 && raw_symbol(driver, rows[i].symbol) == raw)
			return wrapper_of(rows[i].symbol);
	return raw;
}

#endif
