/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that faces the outside, put together for init.c: options, stacks, report.
 *
 *   outside_start()	in shim_start(), once, after the real driver can be called
 *   outside_exit()	in the destructor exit line, verdict on stderr
 *   outside_abort()	the same, then _exit(86): what ARENA_GATE=abort asks for
 *   outside_forget()	in the child of a fork
 *
 * options_init() is not part of it: the gate must be known before anything starts.
 */
#ifndef SHIM_OUTSIDE_H
#define SHIM_OUTSIDE_H

void outside_start(void);
void outside_exit(void);
_Noreturn void outside_abort(void);
void outside_forget(void);

#endif
