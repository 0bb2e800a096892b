/* SPDX-License-Identifier: Apache-2.0 */
/* What a call stack is made of: shim/stacks.c takes it, reports/ writes it. Data only. */
#ifndef ARENA_STACK_H
#define ARENA_STACK_H

#include <stdint.h>

/* Frames kept of one stack, stacks and modules kept by a process; 0 is never a valid number. */
#define STACK_DEPTH_MAX		64
#define STACK_PYTHON_MAX	64
#define STACK_COUNT_MAX		32768
#define STACK_MODULE_MAX	4096

struct stack_frame {
	uint32_t module;	/* number of a module, 0: not in any */
	uint64_t offset;	/* from the module's load bias; the address itself if module is 0 */
};

/* Of the interpreter, where the native frames show only its evaluation loop. */
struct python_frame {
	uint32_t file, function;	/* interned, UTF-8 */
	int line;			/* 0 or less: not known */
};

struct stack_module {
	const char *path;
	const char *build_id;	/* hex, "" if it has none */
};

#endif
