/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds what is bound past the shim: reads the relocations of every loaded object and compares
 * what their slots hold with the real driver's functions and the C library's dlsym.
 *
 * RTLD_DEEPBIND binds an object to its own dependencies first, so a library that needs libcuda
 * directly calls it unseen. A slot that still waits for lazy binding was never called.
 * Any thread; nothing that takes the loader's locks is called while the list of objects is walked.
 */
#include "shim/bypass.h"

#include <stddef.h>
#include <string.h>

#include "shim/elf.h"
#include "shim/gate.h"
#include "shim/hooks.h"

#define DRIVER	"libcuda.so.1"

struct scan {
	void *real[HOOK_COUNT];			/* NULL: not in this driver */
	bypass_found_fn found;
	void *arg;
	unsigned count;
};

static void report(struct scan *s, const char *object, const char *symbol)
{
	s->count++;
	s->found(s->arg, object, symbol);
}

/* What a slot for @name holds if it goes past the shim; NULL when the name is of no interest. */
static void *past_us(const struct scan *s, const char *name)
{
	int row;

	if (strcmp(name, "dlsym") == 0)
		return (void *)load_relaxed(&elf_libc()->dlsym);
	if (strcmp(name, "dlvsym") == 0)
		return (void *)load_relaxed(&elf_libc()->dlvsym);
	row = gate_row(name);
	return row >= 0 ? s->real[row] : NULL;
}

static void scan_slots(struct scan *s, const char *path, const struct elf_object *o,
		       const ElfW(Rela) *from, const ElfW(Rela) *to)
{
	for (const ElfW(Rela) *r = from; r < to; r++) {
		uint32_t symbol = ELF64_R_SYM(r->r_info);
		const char *name = o->strings + o->symbols[symbol].st_name;
		void *expected = symbol ? past_us(s, name) : NULL;

		if (expected && *(void **)(o->bias + r->r_offset) == expected)
			report(s, path, name);
	}
}

static int scan_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct elf_object o = elf_read_phdr(info);
	struct scan *s = arg;

	if (!o.symbols || !o.strings || strcmp(o.soname, DRIVER) == 0)
		return 0;
	if (o.rela)
		scan_slots(s, info->dlpi_name, &o, o.rela + o.relative_count,
			   o.rela + o.rela_count);
	if (o.jumps)
		scan_slots(s, info->dlpi_name, &o, o.jumps, o.jumps + o.jumps_count);
	return 0;
}

/* Objects of other namespaces are not in the walk above: only the linker's own list has them. */
static void scan_namespaces(struct scan *s)
{
	const struct r_debug_extended *space = elf_debug();

	/* Version 2 has the link to the next namespace; the linker sets it with the second one. */
	if (!space || space->base.r_version < 2)
		return;
	while ((space = space->r_next) != NULL)
		for (const struct link_map *m = space->base.r_map; m; m = m->l_next)
			if (strcmp(elf_read_map(m).soname, DRIVER) == 0)
				report(s, m->l_name, DRIVER);
}

unsigned bypass_scan(bypass_found_fn found, void *arg)
{
	struct scan s = { .found = found, .arg = arg };

	for (int i = 0; i < HOOK_COUNT; i++)
		s.real[i] = real_loaded_symbol(hook_rows[i].symbol);
	dl_iterate_phdr(scan_object, &s);
	scan_namespaces(&s);
	return s.count;
}
