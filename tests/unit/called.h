/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that stay calls, for tests of call stacks. */
#ifndef TESTS_UNIT_CALLED_H
#define TESTS_UNIT_CALLED_H

#ifdef __clang__
#define CALLED __attribute__((noinline, optnone))
#else
#define CALLED __attribute__((noinline, noclone, noipa))
#endif

#endif
