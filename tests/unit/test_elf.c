/* SPDX-License-Identifier: Apache-2.0 */
/* elf.c against the dynamic linker: both kinds of hash tables, names that are and are not there. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/elf.h"

/* Found by search, so that the test does not depend on order. */
static bool object_named(const char *soname, struct elf_object *out)
{
	const struct r_debug_extended *debug = elf_debug();

	cr_assert(debug, "no list of objects");
	for (const struct link_map *m = debug->base.r_map; m; m = m->l_next) {
		*out = elf_read_map(m);
		if (strcmp(out->soname, soname) == 0)
			return true;
	}
	return false;
}

Test(elf, functions_of_libc)
{
	static const char *const names[] = { "malloc", "free",	 "qsort", "dlsym",  "dlopen",
					     "printf", "strtol", "fork",  "getenv", "bsearch" };
	void *libc = dlopen("libc.so.6", RTLD_LAZY);
	struct elf_object o;

	cr_assert(object_named("libc.so.6", &o));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		cr_expect_eq(elf_function(&o, names[i]), dlsym(libc, names[i]), "%s", names[i]);
}

Test(elf, names_that_are_not_there)
{
	static const char *const names[] = { "", "mallocx", "malloc ", "cuInit", "environ" };
	struct elf_object o;

	cr_assert(object_named("libc.so.6", &o));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		cr_expect_null(elf_function(&o, names[i]), "%s", names[i]);
}

/* The library has the old kind of table only (tests/unit/meson.build). */
Test(elf, sysv_hash)
{
	void *lib = dlopen(getenv("SYSV_LIBRARY"), RTLD_NOW);
	struct elf_object o;
	char name[16];

	cr_assert(lib, "%s", dlerror());
	cr_assert(object_named("libsysv.so", &o));
	cr_assert(o.sysv_hash && !o.gnu_hash);
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "sysv_%d", i);
		cr_expect(dlsym(lib, name) && elf_function(&o, name) == dlsym(lib, name), "%s",
			  name);
	}
	cr_expect_null(elf_function(&o, "sysv_4"));
	cr_expect_null(elf_function(&o, "malloc"), "it is not defined there");
}

Test(elf, own_functions_of_libc)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY);

	cr_expect_eq((void *)load_relaxed(&elf_libc()->dlsym), dlsym(libc, "dlsym"));
	cr_expect_eq((void *)load_relaxed(&elf_libc()->dlvsym), dlsym(libc, "dlvsym"));
	cr_expect_eq((void *)load_relaxed(&elf_libc()->dlopen), dlsym(libc, "dlopen"));
	cr_expect_eq((void *)load_relaxed(&elf_libc()->dlmopen), dlsym(libc, "dlmopen"));
}

Test(elf, basename)
{
	cr_expect_str_eq(elf_basename("/a/b/libc.so.6"), "libc.so.6");
	cr_expect_str_eq(elf_basename("libc.so.6"), "libc.so.6");
	cr_expect_str_eq(elf_basename("a/"), "");
}
