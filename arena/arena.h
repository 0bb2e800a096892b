/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public C API of libarena_shim.so.
 *
 * Nothing has to be linked: the library is preloaded, and the symbols here are weak, so that a
 * program runs unchanged, and finds out, when it is not there:
 *
 *	if (arena_abi && arena_abi() >= 1)
 *		...the process is watched
 */
#ifndef ARENA_ARENA_H
#define ARENA_ARENA_H

#ifdef __cplusplus
extern "C" {
#endif

#ifdef ARENA_BUILD
#define ARENA_API __attribute__((visibility("default")))
#else
#define ARENA_API __attribute__((weak))
#endif

/**
 * @brief **arena_abi()** is the handshake: it proves that the preload took effect.
 *
 * A wrong path in LD_PRELOAD is only a warning of the dynamic linker, and many tools that start
 * processes drop the variable; a gate that nobody asked is no gate.
 *
 * @return the version of this interface, 1; 0 from the no-op build, which watches nothing. The
 * symbol itself is NULL when no such library is loaded.
 *
 * Any thread, at any time, also in a signal handler. Does not start CUDA.
 */
ARENA_API int arena_abi(void);

#ifdef __cplusplus
}
#endif

#endif
