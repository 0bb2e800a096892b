/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver does not have: the whole of it, or single functions. Not linked against it.
 *
 *	absent driver		a program looks whether there is one, and finds the shim's cuInit
 *	absent function NAME	the wrapper of a function that this driver lacks says so
 */
#include "check.h"

#include <errno.h>

#define NOT_FOUND	500	/* CUDA_ERROR_NOT_FOUND */
#define NO_DEVICE	100	/* CUDA_ERROR_NO_DEVICE */

static int no_driver(void)
{
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(RTLD_DEFAULT, "cuInit");

	if (dlopen("libcuda.so.1", RTLD_LAZY))
		return EXIT_SKIP;
	dlerror();
	errno = ERANGE;
	for (int i = 0; i < 3; i++)
		CHECK(init && init(0) == NO_DEVICE, "cuInit without a driver");
	CHECK(errno == ERANGE, "errno became %d", errno);
	CHECK(dlerror() == NULL, "an error of the shim's own look-up is left for the program");
	return check_result();
}

static int no_function(const char *name)
{
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
	int (*call)(void *, void *, void *, void *, void *);

	if (!driver) {
		fprintf(stderr, "no driver\n");
		return EXIT_FAILURE;
	}
	call = (int (*)(void *, void *, void *, void *, void *))wrapper_of(name);
	CHECK(!raw_symbol(driver, name), "%s is in this driver", name);
	CHECK(!dlsym(driver, name), "%s is found in this driver", name);
	dlerror();
	for (int i = 0; i < 3; i++)
		CHECK(call(NULL, NULL, NULL, NULL, NULL) == NOT_FOUND, "%s", name);
	CHECK(dlerror() == NULL, "an error of the shim's own look-up is left for the program");
	return check_result();
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "driver") == 0)
		return no_driver();
	return argc > 2 ? no_function(argv[2]) : EXIT_FAILURE;
}
