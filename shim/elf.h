/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaded objects, read from their dynamic sections; and with that, the C library's own
 * dynamic-linker functions, found without asking anybody who could be interposed.
 *
 * Threads: any, at any time after relocation, also before constructors ran. No lock of ours.
 */
#ifndef SHIM_ELF_H
#define SHIM_ELF_H

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>

#include "arena/atomics.h"

/* What a dynamic section says. Pointers are NULL for what it lacks. */
struct elf_object {
	ElfW(Addr) bias;
	const ElfW(Sym) *symbols;
	const char *strings;
	const char *soname;			/* "" when it has none */
	const uint32_t *gnu_hash, *sysv_hash;
	const ElfW(Rela) *rela, *jumps;
	size_t rela_count, jumps_count;
	size_t relative_count;			/* rela[] begins with these; they name no symbol */
	const struct r_debug_extended *debug;	/* in the program only */
};

/* @brief Read one object, as dl_iterate_phdr() or a link map shows it. */
struct elf_object elf_read_phdr(const struct dl_phdr_info *info);
struct elf_object elf_read_map(const struct link_map *map);

/* @brief The linker's list of namespaces and their objects. @return NULL: there is none.
 * Not locked: an object that another thread closes may go away under the reader. */
const struct r_debug_extended *elf_debug(void);

/* @brief Address of the function @name that the object defines, or NULL. */
void *elf_function(const struct elf_object *o, const char *name);

/*
 * @brief The function @name that the program would have without the shim: of the object that is
 * next in search order, another interposer or the C library. Takes no lock and calls nothing, so
 * that it may be asked from inside malloc.
 * @return NULL: the linker is at work; ask again.
 */
void *elf_behind(const char *name);

/* @brief The last part of a path. */
const char *elf_basename(const char *path);

struct dl_functions {
	void *(*_Atomic dlsym)(void *handle, const char *name);
	void *(*_Atomic dlvsym)(void *handle, const char *name, const char *version);
	void *(*_Atomic dlopen)(const char *file, int mode);
	void *(*_Atomic dlmopen)(Lmid_t lmid, const char *file, int mode);
	_Atomic bool known;	/* the pointers above are set */
};

/* Behind elf_libc() and elf_next(). */
extern struct dl_functions elf_libc_functions, elf_next_functions;
void elf_resolve(void);

/* @brief The C library's own, whatever preloads export: for what the shim itself looks up. */
static inline const struct dl_functions *elf_libc(void)
{
	/* Pairs with the release in elf_resolve(). */
	if (__builtin_expect(!load_acquire(&elf_libc_functions.known), 0))
		elf_resolve();
	return &elf_libc_functions;
}

/* @brief The next in search order after the shim: another interposer, else the C library. */
static inline const struct dl_functions *elf_next(void)
{
	/* Pairs with the release in elf_resolve(). */
	if (__builtin_expect(!load_acquire(&elf_next_functions.known), 0))
		elf_resolve();
	return &elf_next_functions;
}

#endif
