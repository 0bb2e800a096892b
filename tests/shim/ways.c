/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways past the shim that the dynamic linker leaves open, and one that is none. What is checked
 * here is that the program works; the runner checks that the report says what was not seen.
 *
 *	ways deepbind LIB	lib_user.so binds itself to the driver
 *	ways plain LIB		the same library, opened as usual: its constructor is seen
 *	ways namespace		a second driver in a namespace of its own
 *	ways runpath LIB NAME	no way past: LIB opens NAME, which only its own run path finds
 */
#include "check.h"

static void start_cuda(void *driver)
{
	int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;

	CHECK(init && init(0) == 0, "cuInit");
}

static void open_user(const char *path, int mode)
{
	void *lib = dlopen(path, RTLD_NOW | mode);
	void *(*mem_alloc)(void) = lib ? (void *(*)(void))dlsym(lib, "lib_user_mem_alloc") : NULL;
	int *init = lib ? dlsym(lib, "lib_user_init") : NULL;

	CHECK(lib, "%s", dlerror());
	CHECK(init && *init == 0, "the constructor's cuInit");
	if (mem_alloc)
		CHECK(in_shim(mem_alloc()) == !(mode & RTLD_DEEPBIND), "bound to %s",
		      object_of(mem_alloc()));
}

static void open_namespace(void)
{
	void *other = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
	void *p = other ? dlsym(other, "cuMemAlloc_v2") : NULL;

	CHECK(p && !in_shim(p), "the other driver's function is %s", object_of(p));
	CHECK(p == raw_symbol(other, "cuMemAlloc_v2"), "it is not the driver's own");
}

static void open_by_runpath(const char *path, const char *name)
{
	void *lib = dlopen(path, RTLD_NOW);
	void *(*open)(const char *) =
		lib ? (void *(*)(const char *))dlsym(lib, "lib_next_open") : NULL;

	CHECK(!dlopen(name, RTLD_NOW), "%s is found without a run path", name);
	CHECK(open && open(name), "%s", dlerror());
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "";

	if (strcmp(way, "plain") == 0 && argc > 2) {
		open_user(argv[2], 0);
		return check_result();
	}
	if (strcmp(way, "runpath") == 0 && argc > 3) {
		open_by_runpath(argv[2], argv[3]);
		return check_result();
	}
	start_cuda(dlopen("libcuda.so.1", RTLD_NOW));
	if (strcmp(way, "deepbind") == 0 && argc > 2)
		open_user(argv[2], RTLD_DEEPBIND);
	else if (strcmp(way, "namespace") == 0)
		open_namespace();
	else
		return EXIT_FAILURE;
	return check_result();
}
