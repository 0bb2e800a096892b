/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device for tests of reloads: its memory is the host's, its streams are always done, and any
 * call can be made to fail. Slots over it, in the way the API makes them. Any thread.
 */
#ifndef TESTS_UNIT_FAKE_DEVICE_H
#define TESTS_UNIT_FAKE_DEVICE_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "arena/binding.h"
#include "arena/device.h"
#include "arena/intern.h"
#include "arena/ledger.h"
#include "arena/reload.h"
#include "arena/stage.h"
#include "arena/storage.h"
#include "arena/tag.h"

#define FAKE_STREAM 0x77u

static struct {
	_Atomic uint64_t calls;	  /* that can fail */
	_Atomic uint64_t fail_at; /* number of the call that fails; 0: none */
	_Atomic bool half;	  /* a failing copy has executed its first part */
	_Atomic uint64_t bytes_live;
} fake;

static inline bool fake_fails(void)
{
	return add_relaxed(&fake.calls, 1) + 1 == load_relaxed(&fake.fail_at);
}

/* The @nth call from now on fails; 0: none does. */
static inline void fake_fail(uint64_t nth)
{
	store_relaxed(&fake.fail_at, nth ? load_relaxed(&fake.calls) + nth : 0);
}

#define FAKE_PAGE 4096u /* in front of each block, with its size */

/* From mmap(): large blocks of which little is used, and zero. */
static inline int fake_alloc(uint64_t bytes, int32_t ordinal, uint64_t *addr)
{
	char *page;

	if (fake_fails())
		return -EIO;
	page = mmap(NULL, FAKE_PAGE + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		    -1, 0);
	if (page == MAP_FAILED)
		return -ENOMEM;
	*(uint64_t *)page = bytes;
	*addr = (uint64_t)(uintptr_t)page + FAKE_PAGE;
	add_relaxed(&fake.bytes_live, bytes);
	return 0;
}

/* Whoever still uses it is killed. */
static inline void fake_free(uint64_t addr)
{
	char *page = (char *)(uintptr_t)(addr - FAKE_PAGE);
	uint64_t bytes = *(uint64_t *)page;

	add_relaxed(&fake.bytes_live, -bytes);
	munmap(page, FAKE_PAGE + bytes);
}

static inline void fake_move(uint64_t dst, uint64_t src, uint64_t bytes)
{
	memcpy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, bytes);
}

static inline int fake_copy(const struct device_copy *ops, uint32_t count, uint64_t stream)
{
	bool fails = fake_fails(), half = fails && load_relaxed(&fake.half);
	uint32_t until = half ? (count + 1) / 2 : fails ? 0 : count;

	for (uint32_t i = 0; i < until; i++)
		fake_move(ops[i].dst, ops[i].src, ops[i].bytes);
	return half ? -EREMOTEIO : fails ? -EIO : 0;
}

static inline int fake_put(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t stream)
{
	if (fake_fails())
		return -EIO;
	fake_move(dst, src, bytes);
	return 0;
}

static inline int fake_zero(const struct device_span *spans, uint32_t count, uint64_t stream)
{
	if (fake_fails())
		return -EIO;
	for (uint32_t i = 0; i < count; i++)
		memset((void *)(uintptr_t)spans[i].addr, 0, spans[i].bytes);
	return 0;
}

static inline int fake_fence(uint64_t stream, uint64_t *fence)
{
	*fence = 1;
	return fake_fails() ? -EIO : 0;
}

static inline int fake_wait(uint64_t fence, uint64_t stream)
{
	return fake_fails() ? -EIO : 0;
}

static inline bool fake_fence_done(uint64_t fence)
{
	return true;
}

static inline void fake_fence_free(uint64_t fence)
{
}

static inline int fake_synchronise(uint64_t stream)
{
	return fake_fails() ? -EIO : 0;
}

static inline void fake_start(void)
{
	if (ledger_init() != 0)
		abort();
	device.alloc = fake_alloc;
	device.free = fake_free;
	device.copy = fake_copy;
	device.put = fake_put;
	device.zero = fake_zero;
	device.fence = fake_fence;
	device.fence_context = fake_fence;
	device.wait = fake_wait;
	device.fence_done = fake_fence_done;
	device.fence_free = fake_fence_free;
	device.synchronise = fake_synchronise;
}

/* ---- slots ---- */

static inline struct arena *fake_arena(const char *path)
{
	struct arena *a;

	registry_lock();
	a = registry_open(path);
	registry_unlock();
	return a;
}

static inline struct arena_spec fake_spec(uint64_t bytes)
{
	struct arena_spec spec = ARENA_SPEC_INIT;

	spec.bytes = bytes;
	return spec;
}

static inline struct slot *fake_find(struct arena *a, const char *name)
{
	struct slot *s;

	registry_lock();
	s = slot_find(a, name);
	registry_unlock();
	return s;
}

/* A new slot at @base. @return NULL: no memory. */
static inline struct slot *fake_add(struct arena *a, const char *name, enum arena_kind kind,
				    uint64_t bytes, uint64_t base)
{
	struct arena_spec spec = fake_spec(bytes);
	struct slot *s;

	registry_lock();
	s = slot_add(a, name, kind, &spec);
	if (s)
		binding_set(s, base);
	registry_unlock();
	return s;
}

/* Get or allocate. @return NULL when the device or the host has no memory. */
static inline struct slot *fake_slot(struct arena *a, const char *name, enum arena_kind kind,
				     uint64_t bytes)
{
	struct slot *s = fake_find(a, name);
	struct arena_spec spec = fake_spec(bytes);
	uint64_t base;
	bool fresh;

	if (s != NULL || storage_take(a, 0, bytes, &base) != 0)
		return s;
	registry_lock();
	s = slot_find(a, name); /* another thread may have been faster */
	fresh = s == NULL;
	if (fresh && (s = slot_add(a, name, kind, &spec)) != NULL)
		binding_set(s, base);
	registry_unlock();
	if (!fresh || s == NULL)
		storage_untake(a, base, bytes);
	return s;
}

/* @return where it is. */
static inline uint64_t fake_touch(struct slot *s)
{
	uint64_t base;

	registry_lock();
	s->touched = reload_open();
	base = s->base;
	registry_unlock();
	return base;
}

/* Stage @value in all bytes of a value slot. @return 0 or an error. */
static inline int fake_stage(struct arena *a, const char *name, uint64_t bytes, int value)
{
	struct slot *s = fake_slot(a, name, ARENA_VALUE, bytes);
	char source[4096];

	if (s == NULL || bytes > sizeof(source))
		return ARENA_E_NOMEM;
	memset(source, value, bytes);
	fake_touch(s);
	return stage_put(s, (uint64_t)(uintptr_t)source, bytes, FAKE_STREAM);
}

/* The same as arena_put() does it. */
static inline int fake_give(struct arena *a, const char *name, uint64_t bytes, int value,
			    bool direct)
{
	char source[4096];
	struct slot *s;
	uint64_t id, base;
	int err = bytes <= sizeof(source) ? reload_enter_put(&id) : ARENA_E_NOMEM;

	if (err)
		return err;
	memset(source, value, sizeof(source));
	s = fake_slot(a, name, ARENA_VALUE, bytes);
	err = ARENA_E_NOMEM;
	if (s != NULL) {
		base = fake_touch(s);
		err = reload_put(s, base, (uint64_t)(uintptr_t)source, direct, FAKE_STREAM);
	}
	reload_leave_put();
	return err;
}

static inline void fake_bind(struct slot *s, uint64_t base)
{
	registry_lock();
	s->touched = reload_open();
	binding_set(s, base);
	registry_unlock();
}

/* The live value, or -1 when the bytes of the slot differ. */
static inline int fake_value(const struct slot *s)
{
	const unsigned char *p = (const unsigned char *)(uintptr_t)s->base;

	for (uint64_t i = 1; i < s->spec.bytes; i++)
		if (p[i] != p[0])
			return -1;
	return p[0];
}

/* Does a list name this kind, for this slot or source (NULL: any)? */
static inline bool fake_lists(const struct slot_findings *f, enum finding_kind kind,
			      const char *name)
{
	for (uint32_t i = 0; i < f->count; i++)
		if (f->list[i].kind == kind &&
		    (name == NULL || strcmp(interned(f->list[i].name), name) == 0))
			return true;
	return false;
}

#endif
