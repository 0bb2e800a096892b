/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads names by libdw. One thread: the child of symbolise.c, which may crash here.
 *
 * Each module is opened once, on its own, at an address that libdw chooses (@bias). The symbol
 * table names the function; debug information, where there is any, says file, line, and what was
 * inlined. A name from the symbol table counts only inside the size of the symbol: what merely lies
 * behind the last function of a stripped library is not that function.
 */
#include "symbol_reader.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "symbol_file.h"

struct module {
	struct module *next;
	char *path, *build_id;
	struct symbol_answer opened; /* state and why, without frames */
	Dwfl *dwfl;
	Dwfl_Module *file; /* NULL: see opened */
	GElf_Addr bias;
};

static struct module *modules;
static const char *folders;

/* Where libdwfl looks for the other half of a stripped file; "+": as said by the file, too. */
static char debug_path[SYMBOL_TEXT_MAX];
static char *debug_path_pointer = debug_path;
static const Dwfl_Callbacks callbacks = {
	.find_debuginfo = dwfl_standard_find_debuginfo,
	.section_address = dwfl_offline_section_address,
	.debuginfo_path = &debug_path_pointer,
};

void symbol_reader_init(const char *folders_or_null)
{
	elf_version(EV_CURRENT);
	folders = folders_or_null;
	snprintf(debug_path, sizeof(debug_path), "+%.3900s%s.debug:/usr/lib/debug",
		 folders ? folders : "", folders ? ":" : "");
}

/* ---- modules ---- */

static void open_module(struct module *m, const struct symbol_ref *ref)
{
	struct symbol_answer *a = &m->opened;
	char path[SYMBOL_TEXT_MAX];
	int fd = symbol_file_open(ref, folders, a, path);

	if (fd < 0)
		return;
	m->dwfl = dwfl_begin(&callbacks);
	m->file = m->dwfl ? dwfl_report_offline(m->dwfl, "module", path, fd) : NULL;
	if (m->file)
		dwfl_report_end(m->dwfl, NULL, NULL);
	else
		close(fd);
	if (m->file && dwfl_module_getelf(m->file, &m->bias))
		return;
	m->file = NULL;
	a->state = SYMBOL_UNREADABLE;
	snprintf(a->why, sizeof(a->why), "%.3000s cannot be read: %s", path, dwfl_errmsg(-1));
}

static struct module *module_of(const struct symbol_ref *ref)
{
	const char *id = ref->build_id ? ref->build_id : "";
	struct module *m;

	for (m = modules; m; m = m->next)
		if (strcmp(m->path, ref->path) == 0 && strcmp(m->build_id, id) == 0)
			return m;
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	m->path = strdup(ref->path);
	m->build_id = strdup(id);
	if (!m->path || !m->build_id) {
		free(m->path);
		free(m->build_id);
		free(m);
		return NULL;
	}
	m->next = modules;
	modules = m;
	open_module(m, ref);
	return m;
}

/* ---- frames of an answer ---- */

static void add_frame(struct symbol_answer *a, const char *name, bool is_inlined)
{
	char *readable;

	if (!name || a->count == SYMBOL_FRAMES_MAX)
		return;
	readable = symbol_demangle(name);
	a->at[a->count].function = readable ? readable : strdup(name);
	a->at[a->count].is_inlined = is_inlined;
	a->count++;
}

/* Where frame number @at stands; nothing if there is no such frame. */
static void set_place(struct symbol_answer *a, size_t at, const char *file, int line)
{
	if (at >= a->count || !file || a->at[at].file)
		return;
	a->at[at].file = strdup(file);
	a->at[at].line = line > 0 ? (unsigned)line : 0;
}

/* The name by which the linker knows it, since that can be demangled; else the plain one. */
static const char *die_name(Dwarf_Die *die)
{
	static const unsigned names[] = { DW_AT_linkage_name, DW_AT_MIPS_linkage_name };
	Dwarf_Attribute attribute;

	for (size_t i = 0; i < 2; i++) {
		Dwarf_Attribute *found = dwarf_attr_integrate(die, names[i], &attribute);
		const char *name = found ? dwarf_formstring(found) : NULL;

		if (name)
			return name;
	}
	return dwarf_diename(die);
}

static int number_of(Dwarf_Die *die, unsigned name)
{
	Dwarf_Attribute attribute;
	Dwarf_Word value;

	if (dwarf_formudata(dwarf_attr(die, name, &attribute), &value) != 0 || value > 0x7fffffff)
		return 0;
	return (int)value;
}

/* From the innermost scope outwards: each inlined call stands in the next function. */
static void add_scopes(struct symbol_answer *a, Dwarf_Die *unit, Dwarf_Die *scopes, int count)
{
	Dwarf_Files *files = NULL;

	dwarf_getsrcfiles(unit, &files, NULL);
	for (int i = 0; i < count; i++) {
		int tag = dwarf_tag(&scopes[i]), line;
		const char *file;

		if (tag == DW_TAG_subprogram || tag == DW_TAG_entry_point) {
			add_frame(a, die_name(&scopes[i]), false);
			return;
		}
		if (tag != DW_TAG_inlined_subroutine)
			continue;
		add_frame(a, die_name(&scopes[i]), true);
		line = number_of(&scopes[i], DW_AT_call_line);
		file = files ? dwarf_filesrc(files, (size_t)number_of(&scopes[i], DW_AT_call_file),
					     NULL, NULL)
			     : NULL;
		/* The place of the call belongs to the frame that comes next. */
		if (a->count < SYMBOL_FRAMES_MAX && file) {
			a->at[a->count].file = strdup(file);
			a->at[a->count].line = (unsigned)line;
		}
	}
}

/* The unit that has @pc; clang writes no table of addresses, so its units are asked one by one. */
static Dwarf_Die *unit_of(struct module *m, Dwarf_Addr pc, Dwarf_Addr *bias)
{
	Dwarf_Die *unit = dwfl_module_addrdie(m->file, pc, bias);

	if (unit)
		return unit;
	while ((unit = dwfl_module_nextcu(m->file, unit, bias)) != NULL)
		if (dwarf_haspc(unit, pc - *bias) > 0)
			return unit;
	return NULL;
}

/* Scopes as they lie in the code; the first look-up gives those of the inlined function's text. */
static void add_debug_frames(struct symbol_answer *a, struct module *m, Dwarf_Addr pc)
{
	Dwarf_Die *scopes = NULL, *physical = NULL, innermost;
	Dwarf_Addr bias = 0;
	Dwarf_Die *unit = unit_of(m, pc, &bias);
	Dwarf *dwarf = dwfl_module_getdwarf(m->file, &bias);
	int count = unit && dwarf ? dwarf_getscopes(unit, pc - bias, &scopes) : 0;

	if (count > 0 && dwarf_offdie(dwarf, dwarf_dieoffset(&scopes[0]), &innermost)) {
		count = dwarf_getscopes_die(&innermost, &physical);
		if (count > 0)
			add_scopes(a, unit, physical, count);
	}
	free(scopes);
	free(physical);
}

static void add_table_frame(struct symbol_answer *a, struct module *m, Dwarf_Addr pc)
{
	GElf_Off offset;
	GElf_Sym symbol;
	const char *name = dwfl_module_addrinfo(m->file, pc, &offset, &symbol, NULL, NULL, NULL);

	/* Without a size: hand-written code, which ends where it ends; only its very start counts,
	 * but for debug information that says more. */
	if (name && *name && (offset < symbol.st_size || offset == 0))
		add_frame(a, name, false);
}

/* File and line of @pc itself. @return NULL: not known. */
static const char *source_of(struct module *m, Dwarf_Addr pc, int *number)
{
	Dwarf_Addr bias = 0;
	Dwarf_Die *unit = unit_of(m, pc, &bias);
	Dwarf_Line *line = unit ? dwarf_getsrc_die(unit, pc - bias) : NULL;

	if (!line || dwarf_lineno(line, number) != 0)
		return NULL;
	return dwarf_linesrc(line, NULL, NULL);
}

static void add_frames(struct symbol_answer *a, struct module *m, Dwarf_Addr pc)
{
	int number = 0;
	const char *file = source_of(m, pc, &number);

	add_debug_frames(a, m, pc);
	if (a->count == 0 || a->at[a->count - 1].is_inlined) {
		/* Inlined into a function without a name? Then the table has one. */
		add_table_frame(a, m, pc);
	}
	set_place(a, 0, file, number);
}

void symbol_reader_find(const struct symbol_ref *ref, struct symbol_answer *a)
{
	struct module *m = module_of(ref);

	if (!m) {
		a->state = SYMBOL_UNREADABLE;
		snprintf(a->why, sizeof(a->why), "no memory");
		return;
	}
	a->state = m->opened.state;
	a->is_unverified = m->opened.is_unverified;
	strcpy(a->why, m->opened.why);
	if (!m->file)
		return;
	/* A frame is where its call returns to: the call itself is just before it. */
	add_frames(a, m, m->bias + ref->offset - (ref->offset ? 1 : 0));
	if (a->count)
		return;
	a->state = SYMBOL_NO_NAME;
	snprintf(a->why, sizeof(a->why),
		 "%.3000s does not name the address: install its debug information", ref->path);
}
