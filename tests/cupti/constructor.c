/* SPDX-License-Identifier: Apache-2.0 */
/* A library whose constructor does what the program (guest.c) says, with the linker's lock held. */
#include <dlfcn.h>

static __attribute__((constructor)) void construct(void)
{
	void (*act)(void) = (__typeof__(act))dlsym(RTLD_DEFAULT, "in_constructor");

	if (act)
		act();
}
