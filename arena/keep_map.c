/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept of virtual memory under a scratch tag (keep.h): mappings, and their slots.
 *
 * Threads: any. Everything is guarded by the registry lock; nothing calls the driver.
 */
#include <inttypes.h>

#include "arena/binding.h"
#include "arena/intern.h"
#include "arena/kept.h"
#include "arena/reload.h"

#define NAME_BYTES 256

static bool overlap(const struct keep_mapping *m, uint64_t base, uint64_t bytes)
{
	return m->base < base + bytes && base < m->base + m->bytes;
}

static bool same_mapping(const struct keep_mapping *a, const struct keep_mapping *b)
{
	return a->base == b->base && a->bytes == b->bytes && a->offset == b->offset &&
	       a->handle == b->handle;
}

/* ---- map ---- */

/* A mapping under a tag is the next call of its sequence. @return its slot, if it fits. */
static struct slot *slot_of(const struct keep_mapping *m, bool kept)
{
	struct tag_sequence *q = tag_depth != 0 ? tag_current() : NULL;
	char name[NAME_BYTES];
	struct slot *s;
	uint32_t number;
	const char *why = NULL;
	const struct physical *p = kept_physical(m->handle);

	if (q == NULL || q->kind != ARENA_SCRATCH)
		return NULL;
	number = tag_count(q, TAG_ALLOC);
	tag_slot_name(q, number, name, sizeof(name));
	s = slot_find(q->arena, name);
	if (!kept)
		why = "mapped where nothing was reserved under the tag";
	else if (s == NULL && !tag_fits(q, TAG_ALLOC, number))
		why = "the first pass had fewer calls";
	else if (s != NULL && (s->kind != ARENA_SCRATCH || s->spec.bytes != m->bytes))
		why = "the slot has another kind or size";
	else if (s != NULL && s->base != 0 && s->base != m->base)
		why = "the slot is mapped elsewhere";
	if (why == NULL && s == NULL)
		s = tag_slot_new(q, name, m->bytes, p ? p->p.location_id : 0);
	if (why == NULL && s == NULL)
		why = "no host memory";
	if (why == NULL) {
		if (s->base == 0)
			binding_set(s, m->base);
		s->touched |= reload_open();
		return s;
	}
	tag_misfit(q, &(struct tag_misfit){ .name = intern(name), .slot = s, .bytes = m->bytes },
		   "%" PRIu64 " bytes: %s", m->bytes, why);
	return NULL;
}

static enum keep_answer map(const struct keep_mapping *m)
{
	struct reservation *r = kept_reservation(m->base);
	const struct physical *p = kept_physical(m->handle);
	enum keep_answer answer = KEEP_FORWARD;

	if (r == NULL)
		return KEEP_FORWARD;
	if (p != NULL && !p->held && p->retained == 0)
		return KEEP_REFUSED;
	for (struct mapping *k = r->mappings; k != NULL; k = k->next) {
		if (!overlap(&k->m, m->base, m->bytes))
			continue;
		/* The driver refuses, for this one is really there. */
		if (k->held)
			return KEEP_FORWARD;
		if (same_mapping(&k->m, m)) {
			k->held = true;
			slot_of(m, true);
			return KEEP_ABSORBED;
		}
		answer = KEEP_GIVE_WAY;
	}
	return answer;
}

enum keep_answer keep_map(const struct keep_mapping *m)
{
	enum keep_answer answer;

	registry_lock();
	answer = map(m);
	registry_unlock();
	return answer;
}

void keep_mapped(const struct keep_mapping *m)
{
	struct mapping *k = kept_mapping_new();
	struct reservation *r;
	struct slot *s;

	registry_lock();
	r = kept_reservation(m->base);
	s = slot_of(m, r != NULL && k != NULL);
	if (r != NULL && k != NULL) {
		*k = (struct mapping){ r->mappings, *m, s, true };
		r->mappings = k;
	} else if (k != NULL) {
		kept_mapping_drop(k);
	}
	registry_unlock();
}

bool keep_give_way(const struct keep_mapping *m, struct keep_mapping *gone)
{
	struct reservation *r;
	struct mapping *k = NULL;

	registry_lock();
	r = kept_reservation(m->base);
	if (r != NULL)
		k = r->mappings;
	while (k != NULL && (k->held || !overlap(&k->m, m->base, m->bytes)))
		k = k->next;
	if (k != NULL) {
		*gone = k->m;
		kept_mapping_end(r, k);
		gone->handle = kept_physical_end(gone->handle);
	}
	registry_unlock();
	return k != NULL;
}

/* ---- unmap ---- */

static enum keep_answer unmap(uint64_t base, uint64_t bytes)
{
	struct reservation *r = kept_reservation(base);
	uint64_t covered = 0;

	for (const struct mapping *k = r ? r->mappings : NULL; k != NULL; k = k->next) {
		if (!overlap(&k->m, base, bytes))
			continue;
		if (!k->held)
			return KEEP_REFUSED;
		/* The driver refuses a part of a mapping. */
		if (k->m.base < base || k->m.base + k->m.bytes > base + bytes)
			return KEEP_FORWARD;
		covered += k->m.bytes;
	}
	if (covered == 0 || covered != bytes)
		return KEEP_FORWARD;
	for (struct mapping *k = r->mappings; k != NULL; k = k->next)
		if (overlap(&k->m, base, bytes))
			k->held = false;
	return KEEP_ABSORBED;
}

enum keep_answer keep_unmap(uint64_t base, uint64_t bytes)
{
	enum keep_answer answer;

	registry_lock();
	answer = unmap(base, bytes);
	registry_unlock();
	return answer;
}

void keep_unmapped(uint64_t base, uint64_t bytes)
{
	struct mapping *next;

	registry_lock();
	for (struct reservation *r = kept_reservations; r != NULL; r = r->next)
		for (struct mapping *k = r->mappings; k != NULL; k = next) {
			next = k->next;
			if (overlap(&k->m, base, bytes))
				kept_mapping_end(r, k);
		}
	registry_unlock();
}
