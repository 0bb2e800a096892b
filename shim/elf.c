/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds functions by walking the dynamic sections of what is loaded: dlsym and its family in the C
 * library, and what a function of the shim stands before.
 *
 * Asking dlsym() for dlsym would give the shim's own, and every other way (dlvsym with a version,
 * GLIBC_PRIVATE symbols) depends on the C library's age or on what other preloads export. The
 * list of loaded objects and their hash tables depend on neither.
 *
 * Compiled without sanitizers, as it runs before their runtime is up, and for the same reason the
 * path to elf_libc() calls nothing that anybody interposes. Results are words that are the same
 * whoever computes them: threads that race store equal values. Any thread.
 */
#include "shim/elf.h"

#include <elf.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>

/* glibc relocates the pointers of a dynamic section in place, except in read-only ones. */
static const void *at(ElfW(Addr) bias, ElfW(Addr) pointer)
{
	return (const void *)(pointer < bias ? pointer + bias : pointer);
}

static struct elf_object read_dynamic(ElfW(Addr) bias, const ElfW(Dyn) *d)
{
	struct elf_object o = { .bias = bias, .soname = "" };
	ElfW(Xword) name = 0;

	for (; d && d->d_tag != DT_NULL; d++) {
		switch (d->d_tag) {
		case DT_SYMTAB:		o.symbols = at(bias, d->d_un.d_ptr); break;
		case DT_STRTAB:		o.strings = at(bias, d->d_un.d_ptr); break;
		case DT_SONAME:		name = d->d_un.d_val; break;
		case DT_GNU_HASH:	o.gnu_hash = at(bias, d->d_un.d_ptr); break;
		case DT_HASH:		o.sysv_hash = at(bias, d->d_un.d_ptr); break;
		case DT_RELA:		o.rela = at(bias, d->d_un.d_ptr); break;
		case DT_RELASZ:		o.rela_count = d->d_un.d_val / sizeof(*o.rela); break;
		case DT_RELACOUNT:	o.relative_count = d->d_un.d_val; break;
		case DT_JMPREL:		o.jumps = at(bias, d->d_un.d_ptr); break;
		case DT_PLTRELSZ:	o.jumps_count = d->d_un.d_val / sizeof(*o.jumps); break;
		case DT_DEBUG:		o.debug = (const void *)d->d_un.d_ptr; break;
		default:		break;
		}
	}
	if (name && o.strings)
		o.soname = o.strings + name;
	return o;
}

struct elf_object elf_read_phdr(const struct dl_phdr_info *info)
{
	const ElfW(Dyn) *dynamic = NULL;

	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	return read_dynamic(info->dlpi_addr, dynamic);
}

struct elf_object elf_read_map(const struct link_map *map)
{
	return read_dynamic(map->l_addr, map->l_ld);
}

/*
 * The linker left its list in the DT_DEBUG of the program, whose headers the kernel tells. (The
 * symbol _r_debug would be the same, and one more DT_NEEDED; dl_iterate_phdr is interposed by
 * sanitizers, whose own start comes by here before they are ready.)
 */
const struct r_debug_extended *elf_debug(void)
{
	struct dl_phdr_info program = {
		.dlpi_phdr = (const ElfW(Phdr) *)getauxval(AT_PHDR),
		.dlpi_phnum = (ElfW(Half))getauxval(AT_PHNUM),
	};

	for (int i = 0; i < program.dlpi_phnum; i++)
		if (program.dlpi_phdr[i].p_type == PT_PHDR)
			program.dlpi_addr =
				(ElfW(Addr))program.dlpi_phdr - program.dlpi_phdr[i].p_vaddr;
	return elf_read_phdr(&program).debug;
}

/* strcmp is interposed, too. */
static bool same(const char *a, const char *b)
{
	for (; *a && *a == *b; a++)
		b++;
	return *a == *b;
}

static bool is_function(const struct elf_object *o, uint32_t index, const char *name)
{
	const ElfW(Sym) *s = &o->symbols[index];

	return s->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(s->st_info) == STT_FUNC &&
	       same(o->strings + s->st_name, name);
}

static uint32_t find_gnu(const struct elf_object *o, const char *name)
{
	const uint32_t buckets = o->gnu_hash[0], first = o->gnu_hash[1], words = o->gnu_hash[2];
	const uint32_t *bucket = o->gnu_hash + 4 + words * (sizeof(ElfW(Addr)) / 4);
	const uint32_t *chain = bucket + buckets;
	uint32_t hash = 5381, i;

	for (const char *c = name; *c; c++)
		hash = hash * 33 + (unsigned char)*c;
	i = buckets ? bucket[hash % buckets] : 0;
	if (i < first)
		return 0;
	/* The lowest bit of a chain word ends its chain; the others are those of the hash. */
	for (;; i++) {
		if ((chain[i - first] | 1) == (hash | 1) && is_function(o, i, name))
			return i;
		if (chain[i - first] & 1)
			return 0;
	}
}

static uint32_t find_sysv(const struct elf_object *o, const char *name)
{
	const uint32_t buckets = o->sysv_hash[0];
	const uint32_t *bucket = o->sysv_hash + 2, *chain = bucket + buckets;
	uint32_t hash = 0, i;

	for (const char *c = name; *c; c++) {
		hash = (hash << 4) + (unsigned char)*c;
		hash = (hash ^ (hash & 0xf0000000) >> 24) & 0x0fffffff;
	}
	for (i = buckets ? bucket[hash % buckets] : 0; i; i = chain[i])
		if (is_function(o, i, name))
			return i;
	return 0;
}

void *elf_function(const struct elf_object *o, const char *name)
{
	uint32_t i = 0;

	if (!o->symbols || !o->strings)
		return NULL;
	if (o->gnu_hash)
		i = find_gnu(o, name);
	else if (o->sysv_hash)
		i = find_sysv(o, name);
	return i ? (void *)(o->bias + o->symbols[i].st_value) : NULL;
}

const char *elf_basename(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/*
 * Found by soname. The shim NEEDs the C library, so it is in the list, and before all that was
 * opened later: the walk does not meet an object that another thread is closing. Before glibc
 * 2.34, libdl has the family.
 */
static void *libc_function(const char *name)
{
	static const char *const homes[] = { "libc.so.6", "libdl.so.2" };
	const struct r_debug_extended *debug = elf_debug();
	void *p = NULL;

	for (size_t i = 0; debug && i < sizeof(homes) / sizeof(homes[0]) && !p; i++) {
		for (const struct link_map *m = debug->base.r_map; m && !p; m = m->l_next) {
			struct elf_object o = elf_read_map(m);

			if (same(o.soname, homes[i]))
				p = elf_function(&o, name);
		}
	}
	return p;
}

/* What was there at the start comes first in the list, and never goes away. */
void *elf_behind(const char *name)
{
	const struct r_debug_extended *debug = elf_debug();
	const struct link_map *m = debug ? debug->base.r_map : NULL;
	void *p = NULL;

	if (!debug || debug->base.r_state != RT_CONSISTENT)
		return NULL;
	while (m && m->l_ld != _DYNAMIC)
		m = m->l_next;
	for (m = m ? m->l_next : NULL; m && !p; m = m->l_next) {
		struct elf_object o = elf_read_map(m);

		p = elf_function(&o, name);
	}
	return p ? p : libc_function(name);
}

struct dl_functions elf_libc_functions, elf_next_functions;

/* The call below must return into this object: the C library searches after the caller. */
__attribute__((noinline)) static void *next_function(const char *name, void *otherwise)
{
	void *p = load_relaxed(&elf_libc_functions.dlsym)(RTLD_NEXT, name);

	return p ? p : otherwise;
}

#define RESOLVE(name)                                                                         \
	do {                                                                                  \
		void *libc_ = libc_function(#name);                                           \
                                                                                              \
		store_relaxed(&elf_libc_functions.name, libc_);                               \
		store_relaxed(&elf_next_functions.name, next_function(#name, libc_));         \
	} while (0)

__attribute__((cold)) void elf_resolve(void)
{
	int error = errno;

	RESOLVE(dlsym);
	RESOLVE(dlvsym);
	RESOLVE(dlopen);
	RESOLVE(dlmopen);
	/* Pair with the acquires in elf_libc() and elf_next(). */
	store_release(&elf_libc_functions.known, true);
	store_release(&elf_next_functions.known, true);
	errno = error;
}
