/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaded objects by number. An object is looked at once, when the first stack with a frame in it
 * is stored: its path and build-id are copied, because it may be unloaded before anybody reads the
 * report. Any thread; the lock is held for a scan of the table and never while calling out.
 *
 * The loader is asked in two ways. _dl_find_object() (glibc 2.35) takes no lock and says which
 * object an address lies in; dl_iterate_phdr() takes the loader's lock and shows the program
 * headers, where the build-id is. The second is needed only for an object that is new.
 */
#include "shim/modules.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "arena/atomics.h"
#include "arena/intern.h"

#define PATH_BYTES 4096
#define BUILD_ID_BYTES 64	/* SHA-1 has 20, a UUID 16 */

extern __typeof(_dl_find_object) _dl_find_object __attribute__((weak));

struct known {
	uintptr_t bias;		/* load bias, and the loader's name for it (interned): */
	uint32_t name;		/* together they tell one object from another */
	struct stack_module module;
};

static struct spinlock lock = SPINLOCK_INIT;
/* Entries below the count are constant; it grows under the lock. 0 is not a number. */
static struct known known[STACK_MODULE_MAX];
static _Atomic uint32_t known_count = 1;

/* What is found out about the object of one address. */
struct found {
	uintptr_t pc;
	uintptr_t bias;
	char name[PATH_BYTES];	/* "" for the program itself */
	char build_id[2 * BUILD_ID_BYTES + 1];
};

/* ---- asking the loader ---- */

static void copy_build_id(struct found *f, const unsigned char *id, size_t bytes)
{
	bytes = bytes < BUILD_ID_BYTES ? bytes : BUILD_ID_BYTES;
	for (size_t i = 0; i < bytes; i++)
		snprintf(f->build_id + 2 * i, 3, "%02x", id[i]);
}

/* One PT_NOTE segment: notes of name, descriptor, each padded to 4 bytes. */
static void read_notes(struct found *f, const char *at, size_t bytes)
{
	const char *end = at + bytes;

	while ((size_t)(end - at) >= sizeof(ElfW(Nhdr))) {
		const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)at;
		size_t name_bytes = (note->n_namesz + 3u) & ~(size_t)3;
		size_t desc_bytes = (note->n_descsz + 3u) & ~(size_t)3;
		const char *name = at + sizeof(*note);

		if ((size_t)(end - name) < name_bytes ||
		    (size_t)(end - name) - name_bytes < desc_bytes)
			return;
		if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == sizeof("GNU") &&
		    memcmp(name, "GNU", sizeof("GNU")) == 0) {
			copy_build_id(f, (const unsigned char *)name + name_bytes, note->n_descsz);
			return;
		}
		at = name + name_bytes + desc_bytes;
	}
}

/* dl_iterate_phdr() callback: 1 when @info is the object that f->pc lies in. */
static int match_object(struct dl_phdr_info *info, size_t size, void *data)
{
	struct found *f = data;
	bool inside = false;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		inside |= p->p_type == PT_LOAD &&
			  f->pc - (info->dlpi_addr + p->p_vaddr) < p->p_memsz;
	}
	if (!inside)
		return 0;
	f->bias = info->dlpi_addr;
	snprintf(f->name, sizeof(f->name), "%s", info->dlpi_name);
	for (int i = 0; i < info->dlpi_phnum && !f->build_id[0]; i++)
		if (info->dlpi_phdr[i].p_type == PT_NOTE)
			read_notes(f, (const char *)info->dlpi_addr + info->dlpi_phdr[i].p_vaddr,
				   info->dlpi_phdr[i].p_memsz);
	return 1;
}

/* ---- the table ---- */

static uint32_t match_known(uintptr_t bias, uint32_t name)
{
	/* Pairs with the release store in enter(). */
	uint32_t count = load_acquire(&known_count);

	for (uint32_t i = 1; i < count; i++)
		if (known[i].bias == bias && known[i].name == name)
			return i;
	return 0;
}

static const char *path_of(struct found *f)
{
	static const char self[] = "/proc/self/exe";
	ssize_t n;

	if (f->name[0])
		return f->name;
	n = readlink(self, f->name, sizeof(f->name) - 1);
	if (n <= 0)
		return self;
	f->name[n] = '\0';
	return f->name;
}

static uint32_t enter(struct found *f)
{
	uint32_t name = intern(f->name);
	struct known k = { .bias = f->bias, .name = name };
	uint32_t number;

	k.module.path = interned(intern(path_of(f)));
	k.module.build_id = interned(intern(f->build_id));
	spin_lock(&lock);
	number = match_known(k.bias, name);
	if (number == 0 && load_relaxed(&known_count) < STACK_MODULE_MAX) {
		number = load_relaxed(&known_count);
		known[number] = k;
		/* Pairs with the acquire loads in match_known() and modules_get(). */
		store_release(&known_count, number + 1);
	}
	spin_unlock(&lock);
	return number;
}

/* ---- what others call ---- */

struct stack_frame modules_frame(uintptr_t pc)
{
	struct found f = { .pc = pc };
	struct dl_find_object at;
	uint32_t number = 0;

	if (_dl_find_object && _dl_find_object((void *)pc, &at) == 0) {
		f.bias = at.dlfo_link_map->l_addr;
		snprintf(f.name, sizeof(f.name), "%s", at.dlfo_link_map->l_name);
		number = match_known(f.bias, intern(f.name));
	}
	/* An object of another link namespace is not shown to dl_iterate_phdr(): no build-id. */
	if (number == 0 && (dl_iterate_phdr(match_object, &f) || f.bias))
		number = enter(&f);
	return (struct stack_frame){ .module = number, .offset = number ? pc - f.bias : pc };
}

const struct stack_module *modules_get(uint32_t number)
{
	/* Pairs with the release store in enter(). */
	return number && number < load_acquire(&known_count) ? &known[number].module : NULL;
}

bool modules_own(uintptr_t pc)
{
	/* Set by the linker at both ends of this very object. */
	extern const char __ehdr_start[] __attribute__((visibility("hidden")));
	extern const char _end[] __attribute__((visibility("hidden")));

	return pc >= (uintptr_t)__ehdr_start && pc < (uintptr_t)_end;
}

bool modules_cover(uintptr_t pc)
{
	struct dl_find_object at;

	return !_dl_find_object || _dl_find_object((void *)pc, &at) == 0;
}

void modules_forget(void)
{
	lock = (struct spinlock)SPINLOCK_INIT;
}
