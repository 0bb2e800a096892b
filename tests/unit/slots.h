/* SPDX-License-Identifier: Apache-2.0 */
/* Slots for tests of the core, on top of world.h. */
#ifndef TESTS_UNIT_SLOTS_H
#define TESTS_UNIT_SLOTS_H

#include "world.h"

#include "arena/binding.h"
#include "arena/registry.h"

static inline struct arena_spec spec_of(uint64_t bytes)
{
	struct arena_spec in = ARENA_SPEC_INIT, out;

	in.bytes = bytes;
	cr_assert_eq(spec_read(&in, &out), 0);
	return out;
}

/* The slot "model/@name", made if it is new. Registry lock held. */
static inline struct slot *slot_of(const char *name, enum arena_kind kind, uint64_t bytes)
{
	struct arena *a = registry_open("model");
	struct arena_spec spec = spec_of(bytes);
	struct slot *s = slot_find(a, name);

	cr_assert_not_null(a);
	if (!s)
		s = slot_add(a, name, kind, &spec);
	cr_assert_not_null(s);
	s->spec = spec;
	return s;
}

/* SLOT() of the cases. */
static inline struct slot *bind_bytes(const char *name, enum arena_kind kind, uint64_t base,
				      uint64_t bytes)
{
	struct slot *s;

	registry_lock();
	s = slot_of(name, kind, bytes);
	binding_set(s, base);
	registry_unlock();
	return s;
}

static inline struct slot *bind(const char *name, uint64_t base)
{
	return bind_bytes(name, ARENA_BOUND, base, MIB);
}

static inline void unbind(const char *name)
{
	registry_lock();
	binding_clear(slot_of(name, ARENA_BOUND, MIB));
	registry_unlock();
}

/* A new object whose factory allocated MIB at each of @bases, 0 ends them. */
static inline struct slot *bind_object(const char *name, uint64_t identity, const uint64_t *bases)
{
	static struct range_mark marks[64][4];
	static unsigned used;
	struct range_mark *ranges = marks[used++];
	struct range_view v;
	struct slot *s;

	registry_lock();
	s = slot_of(name, ARENA_OBJECT, 8);
	s->object = identity;
	s->ranges = ranges;
	for (s->ranges_count = 0; bases[s->ranges_count]; s->ranges_count++) {
		cr_assert(ledger_find(bases[s->ranges_count], &v));
		ranges[s->ranges_count] =
			(struct range_mark){ bases[s->ranges_count], MIB, v.generation };
	}
	binding_set(s, 0xface0000 + identity);
	registry_unlock();
	return s;
}

#define BASES(...)             \
	(const uint64_t[])     \
	{                      \
		__VA_ARGS__, 0 \
	}

#endif
