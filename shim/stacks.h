/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call stacks, stored once and known by a small number: native frames as module + offset +
 * build-id, never symbolised here, and the Python frames of the same thread by name.
 * Any thread.
 */
#ifndef SHIM_STACKS_H
#define SHIM_STACKS_H

#include <stddef.h>
#include <stdint.h>

#include "arena/stack.h"

/* What the stack is for; ARENA_STACKS=off|findings|all decides what is taken. */
enum stack_use {
	STACK_SEGMENT,	/* allocation or free at driver level: rare, in full */
	STACK_FREQUENT, /* stream-ordered allocation: frame pointers only unless "all" */
	STACK_BLOCK,	/* block of a framework in a reload: the same, and Python frames */
	STACK_FINDING,	/* a finding is made: in full */
};

/* @brief The caller's stack without the shim's own frames. @return id, 0: none taken. */
uint32_t stack_here(enum stack_use use);

/* @brief Frames of a stack, innermost first. @return their number, 0 for an unknown id. */
size_t stack_frames(uint32_t id, struct stack_frame *out, size_t max);
/* @brief The same of its Python frames; 0 where there are none. */
size_t stack_python(uint32_t id, struct python_frame *out, size_t max);
/* @brief The place that it was taken at: a hash of its innermost Python frames, else of its
 * innermost native ones. @return 0 for an unknown id. */
uint64_t stack_site(uint32_t id);
/* @return NULL for a number that was never given out. */
const struct stack_module *stack_module(uint32_t number);
/* @brief In a forked child: a lock that another thread held is free. */
void stacks_forget(void);

/* Which unwinder is in use: "libunwind", "frame-pointer". */
const char *stack_unwinder(void);

#endif
