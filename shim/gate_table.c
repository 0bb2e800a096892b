/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and driver addresses -> rows of hooks.def.
 *
 * Two open hash tables of names (symbols, base names) and one of addresses. Each is filled at
 * first use, in the order of the rows, with values that every filler computes alike: a thread
 * that fills while another does finds or stores exactly the same entries, so there is no lock,
 * and nothing that a fork could leave half done. Readers wait for the flag. Any thread.
 *
 * The address table has two keys a row: the export of the driver, and what its cuGetProcAddress
 * answers for (base, since). Exports come first and are never overruled: they are exact.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "arena/arena.h"
#include "shim/coverage.h"
#include "shim/elf.h"
#include "shim/gate.h"
#include "shim/hooks.h"

#define NAME_SLOTS	1024	/* >= 2 * HOOK_COUNT, power of two */
#define ADDRESS_SLOTS	2048	/* >= 4 * HOOK_COUNT, power of two */
_Static_assert(HOOK_COUNT * 2 <= NAME_SLOTS && HOOK_COUNT * 4 <= ADDRESS_SLOTS,
	       "hash tables are too small for the rows");

/* Row number + 1; 0 is an empty slot. */
static _Atomic uint16_t symbol_slots[NAME_SLOTS], base_slots[NAME_SLOTS];
static _Atomic bool names_ready;

static struct {
	_Atomic uintptr_t address;	/* 0: empty */
	_Atomic uint16_t row;		/* written before the address, constant */
} address_slots[ADDRESS_SLOTS];
static _Atomic bool addresses_ready;

static uint32_t hash_name(const char *name)
{
	uint32_t h = 2166136261u;	/* FNV-1a */

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 16777619u;
	return h ^ h >> 15;
}

static uint32_t hash_address(uintptr_t address)
{
	return (uint32_t)((address >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 40);
}

static const char *name_of(const struct hook_row *row, bool base)
{
	return base ? row->base : row->symbol;
}

/* @return the slot that holds @name, or the empty one where it would be. */
static _Atomic uint16_t *name_slot(const char *name, bool base)
{
	_Atomic uint16_t *slots = base ? base_slots : symbol_slots;
	uint32_t at = hash_name(name);
	uint16_t row;

	/* Pairs with the release of names_fill(): an entry is seen after those before it. */
	while ((row = load_acquire(&slots[at % NAME_SLOTS])) != 0 &&
	       strcmp(name_of(&hook_rows[row - 1], base), name) != 0)
		at++;
	return &slots[at % NAME_SLOTS];
}

__attribute__((cold, noinline)) static void names_fill(void)
{
	for (uint16_t i = 0; i < HOOK_COUNT; i++) {
		_Atomic uint16_t *slot = name_slot(hook_rows[i].base, true);

		/* Pair with the acquire in name_slot(). */
		store_release(name_slot(hook_rows[i].symbol, false), i + 1);
		if (load_relaxed(slot) == 0)
			store_release(slot, i + 1);
	}
	store_release(&names_ready, true);	/* pairs with the acquire in row_named() */
}

static const struct hook_row *row_named(const char *name, bool base)
{
	uint16_t row;

	if (__builtin_expect(!load_acquire(&names_ready), 0))
		names_fill();
	row = load_relaxed(name_slot(name, base));
	return row ? &hook_rows[row - 1] : NULL;
}

int gate_row(const char *symbol)
{
	const struct hook_row *row = NULL;

	if (symbol[0] == 'c' && symbol[1] == 'u')
		row = row_named(symbol, false);
	return row ? (int)(row - hook_rows) : -1;
}

static void address_enter(void *address, uint16_t row, bool exact)
{
	uintptr_t key = (uintptr_t)address, seen;
	uint32_t at = hash_address(key);

	/* Two rows may share one function: each has its entry. Pairs with the release below. */
	while ((seen = load_acquire(&address_slots[at % ADDRESS_SLOTS].address)) != 0) {
		if (seen == key &&
		    (!exact || load_relaxed(&address_slots[at % ADDRESS_SLOTS].row) == row))
			return;
		at++;
	}
	store_relaxed(&address_slots[at % ADDRESS_SLOTS].row, row);
	store_release(&address_slots[at % ADDRESS_SLOTS].address, key);
}

/* What the driver's own look-up answers for a row, by whichever generation of it there is. */
static void *ask_driver(const struct hook_row *row)
{
	cuuint64_t flags = row->per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM :
					     CU_GET_PROC_ADDRESS_LEGACY_STREAM;
	CUdriverProcAddressQueryResult status;
	void *p = NULL;
	CUresult rc;

	if (real_loaded_symbol("cuGetProcAddress_v2"))
		rc = REAL(cuGetProcAddress_v2)(row->base, &p, (int)row->since, flags, &status);
	else
		rc = REAL(cuGetProcAddress)(row->base, &p, (int)row->since, flags);
	return rc == CUDA_SUCCESS ? p : NULL;
}

__attribute__((cold, noinline)) static void addresses_fill(void)
{
	for (uint16_t i = 0; i < HOOK_COUNT; i++) {
		void *export = real_loaded_symbol(hook_rows[i].symbol);

		if (export)
			address_enter(export, i, true);
	}
	for (uint16_t i = 0; i < HOOK_COUNT; i++) {
		void *answer = ask_driver(&hook_rows[i]);

		/* A row that the driver does not export has no real function to forward to. */
		if (answer && real_loaded_symbol(hook_rows[i].symbol))
			address_enter(answer, i, false);
	}
	store_release(&addresses_ready, true);	/* pairs with the acquire in row_at() */
}

/*
 * The row of @base whose real function is at @address. Functions of other names that a linker
 * folded into the same code do not count: their wrappers would read other parameters.
 */
static const struct hook_row *row_at(const char *base, void *address)
{
	const struct hook_row *row;
	uint32_t at = hash_address((uintptr_t)address);
	uintptr_t seen;

	if (__builtin_expect(!load_acquire(&addresses_ready), 0))
		addresses_fill();
	for (; (seen = load_relaxed(&address_slots[at % ADDRESS_SLOTS].address)) != 0; at++) {
		row = &hook_rows[load_relaxed(&address_slots[at % ADDRESS_SLOTS].row)];
		if (seen == (uintptr_t)address && strcmp(row->base, base) == 0)
			return row;
	}
	return NULL;
}

void *gate_from_driver(const char *base, void *address)
{
	const struct hook_row *row;

	if (!gate_first())
		return address;
	row = row_at(base, address);
	if (row)
		return row->wrapper;
	if (row_named(base, true))
		coverage_note(COVERAGE_UNHOOKED_VARIANT, base);
	return address;
}

/* Is it a driver of its own, from a namespace that the shim is not in? */
static bool other_driver(void *address)
{
	static const char stem[] = "libcuda.so";
	Dl_info info;

	return dladdr(address, &info) && info.dli_fname &&
	       strncmp(elf_basename(info.dli_fname), stem, sizeof(stem) - 1) == 0;
}

void *gate_from_symbol(int row, void *address)
{
	if (!gate_first())
		return address;
	if (address == real_loaded_symbol(hook_rows[row].symbol))
		return hook_rows[row].wrapper;
	if (other_driver(address))
		coverage_note(COVERAGE_OTHER_NAMESPACE, hook_rows[row].symbol);
	return address;
}

__attribute__((cold, noinline)) static bool is_first(void)
{
	int error = errno;
	void *first = load_relaxed(&elf_libc()->dlsym)(RTLD_DEFAULT, "arena_abi");

	if (!first)	/* opened by dlopen(): nobody finds its wrappers */
		dlerror();
	errno = error;
	/* Linked with -Bsymbolic-functions: the address here is this copy's own. */
	return first == (void *)arena_abi;
}

bool gate_first(void)
{
	enum { UNKNOWN, FIRST, LATER };
	static _Atomic uint8_t place;
	uint8_t p = load_relaxed(&place);

	if (__builtin_expect(p == UNKNOWN, 0)) {
		p = is_first() ? FIRST : LATER;
		store_relaxed(&place, p);
	}
	return p == FIRST;
}
