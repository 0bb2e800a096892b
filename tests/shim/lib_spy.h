/* SPDX-License-Identifier: Apache-2.0 */
/* What lib_spy.c noted; the program finds it by dlsym(RTLD_DEFAULT, "spy_calls"). One thread. */
#ifndef TESTS_SHIM_LIB_SPY_H
#define TESTS_SHIM_LIB_SPY_H

#include <stdbool.h>

#define SPY_CALLS_MAX	4096

struct spy_call {
	char symbol[64];
	int version, rc;
	unsigned long flags;
	bool has_status;
	void *answer;
};

#endif
