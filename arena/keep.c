/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept of virtual memory under a scratch tag (keep.h): reservations and physical memory.
 *
 * Invariants (kept.h): what is in the lists is really there in the driver. "Held" is what the
 * application believes: it has reserved, created, mapped and not given back.
 *
 * Threads: any. Everything is guarded by the registry lock; nothing calls the driver.
 */
#include <inttypes.h>

#include "arena/intern.h"
#include "arena/kept.h"
#include "arena/slab.h"

_Atomic uint32_t keep_count;
struct reservation *kept_reservations;
static struct physical *created;
static struct slab mappings = SLAB_INIT(struct mapping);
static struct slab reservations = SLAB_INIT(struct reservation);
static struct slab physicals = SLAB_INIT(struct physical);

/* ---- look ---- */

struct reservation *kept_reservation(uint64_t addr)
{
	struct reservation *r = kept_reservations;

	while (r != NULL && addr - r->base >= r->bytes)
		r = r->next;
	return r;
}

struct physical *kept_physical(uint64_t handle)
{
	struct physical *p = created;

	while (p != NULL && p->handle != handle)
		p = p->next;
	return p;
}

/* Is a mapping of @handle there; with @held only such that the application knows of? */
static bool is_mapped(uint64_t handle, bool held)
{
	for (const struct reservation *r = kept_reservations; r != NULL; r = r->next)
		for (const struct mapping *k = r->mappings; k != NULL; k = k->next)
			if (k->m.handle == handle && (k->held || !held))
				return true;
	return false;
}

static bool same_physical(const struct keep_physical *a, const struct keep_physical *b)
{
	return a->bytes == b->bytes && a->flags == b->flags && a->type == b->type &&
	       a->location == b->location && a->location_id == b->location_id &&
	       a->handle_types == b->handle_types && a->usage == b->usage;
}

struct mapping *kept_mapping_new(void)
{
	return slab_get(&mappings);
}

void kept_mapping_drop(struct mapping *k)
{
	slab_put(&mappings, k);
}

void kept_mapping_end(struct reservation *r, struct mapping *k)
{
	struct mapping **at = &r->mappings;

	while (*at != k)
		at = &(*at)->next;
	*at = k->next;
	slab_put(&mappings, k);
}

uint64_t kept_physical_end(uint64_t handle)
{
	struct physical **at = &created, *p = kept_physical(handle);

	if (p == NULL || p->held || is_mapped(handle, false))
		return 0;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	slab_put(&physicals, p);
	add_relaxed(&keep_count, (uint32_t)-1);
	return handle;
}

/* ---- reserve and create ---- */

/* The call goes to the driver, and is kept if it is the first with its number. */
static enum keep_answer pass_on(struct tag_sequence *q, struct keep_ticket *t, const char *why,
				uint64_t bytes)
{
	t->keep = why == NULL;
	if (why != NULL)
		tag_misfit(q, &(struct tag_misfit){ .name = q->name, .bytes = bytes },
			   "%" PRIu64 " bytes: %s", bytes, why);
	return KEEP_FORWARD;
}

/* The sequence of the call, and its number; NULL under a value tag. */
static struct tag_sequence *count_call(enum tag_call call, struct keep_ticket *t)
{
	struct tag_sequence *q = tag_current();

	*t = (struct keep_ticket){ .sequence = q };
	if (q->kind != ARENA_SCRATCH)
		return NULL;
	t->number = tag_count(q, call);
	return q;
}

static enum keep_answer reserve(uint64_t bytes, uint64_t align, uint64_t *out,
				struct keep_ticket *t)
{
	struct tag_sequence *q = count_call(TAG_RESERVE, t);
	struct reservation *r = kept_reservations;

	if (q == NULL)
		return pass_on(tag_current(), t, "virtual memory under a value tag is not staged",
			       bytes);
	while (r != NULL && (r->q != q || r->number != t->number))
		r = r->next;
	if (r == NULL)
		return pass_on(q, t,
			       tag_fits(q, TAG_RESERVE, t->number)
				       ? NULL
				       : "the first pass reserved less often",
			       bytes);
	if (r->held)
		return pass_on(q, t, "its old owner still has the reservation", bytes);
	if (r->bytes != bytes || (align != 0 && r->base % align != 0))
		return pass_on(q, t, "the first pass reserved another size", bytes);
	r->held = true;
	*out = r->base;
	return KEEP_ABSORBED;
}

enum keep_answer keep_reserve(uint64_t bytes, uint64_t align, uint64_t *out, struct keep_ticket *t)
{
	enum keep_answer answer;

	registry_lock();
	answer = reserve(bytes, align, out, t);
	registry_unlock();
	return answer;
}

void keep_reserved(const struct keep_ticket *t, uint64_t base, uint64_t bytes)
{
	struct reservation *r = t->keep ? slab_get(&reservations) : NULL;

	/* Without memory it is the application's alone, and its next pass is not served. */
	if (r == NULL)
		return;
	*r = (struct reservation){
		.q = t->sequence,
		.number = t->number,
		.held = true,
		.base = base,
		.bytes = bytes,
	};
	registry_lock();
	r->next = kept_reservations;
	kept_reservations = r;
	add_relaxed(&keep_count, 1);
	registry_unlock();
}

static enum keep_answer create(const struct keep_physical *p, uint64_t *out, struct keep_ticket *t)
{
	struct tag_sequence *q = count_call(TAG_CREATE, t);
	struct physical *k = created;

	/* Its reservation is a finding already. */
	if (q == NULL)
		return KEEP_FORWARD;
	while (k != NULL && (k->q != q || k->number != t->number))
		k = k->next;
	if (k == NULL)
		return pass_on(q, t,
			       tag_fits(q, TAG_CREATE, t->number)
				       ? NULL
				       : "the first pass created less often",
			       p->bytes);
	if (k->held || k->retained != 0 || is_mapped(k->handle, true))
		return pass_on(q, t, "its old owner still has the physical memory", p->bytes);
	if (!same_physical(&k->p, p))
		return pass_on(q, t, "the first pass created other physical memory", p->bytes);
	k->held = true;
	*out = k->handle;
	return KEEP_ABSORBED;
}

enum keep_answer keep_create(const struct keep_physical *p, uint64_t *out, struct keep_ticket *t)
{
	enum keep_answer answer;

	registry_lock();
	answer = create(p, out, t);
	registry_unlock();
	return answer;
}

void keep_created(const struct keep_ticket *t, const struct keep_physical *p, uint64_t handle)
{
	struct physical *k = t->keep ? slab_get(&physicals) : NULL;

	if (k == NULL)
		return;
	*k = (struct physical){
		.q = t->sequence,
		.number = t->number,
		.held = true,
		.handle = handle,
		.p = *p,
	};
	registry_lock();
	k->next = created;
	created = k;
	add_relaxed(&keep_count, 1);
	registry_unlock();
}

/* ---- let go ---- */

static enum keep_answer address_free(uint64_t base, uint64_t bytes)
{
	struct reservation *r = kept_reservation(base);

	if (r == NULL || r->base != base || r->bytes != bytes)
		return KEEP_FORWARD;
	if (!r->held)
		return KEEP_REFUSED;
	/* The driver refuses while something is mapped. */
	for (const struct mapping *k = r->mappings; k != NULL; k = k->next)
		if (k->held)
			return KEEP_FORWARD;
	r->held = false;
	return KEEP_ABSORBED;
}

enum keep_answer keep_address_free(uint64_t base, uint64_t bytes)
{
	enum keep_answer answer;

	registry_lock();
	answer = address_free(base, bytes);
	registry_unlock();
	return answer;
}

void keep_address_freed(uint64_t base)
{
	struct reservation **at = &kept_reservations, *r;

	registry_lock();
	while (*at != NULL && (*at)->base != base)
		at = &(*at)->next;
	r = *at;
	if (r != NULL) {
		while (r->mappings != NULL)
			kept_mapping_end(r, r->mappings);
		*at = r->next;
		slab_put(&reservations, r);
		add_relaxed(&keep_count, (uint32_t)-1);
	}
	registry_unlock();
}

enum keep_answer keep_release(uint64_t handle)
{
	enum keep_answer answer = KEEP_FORWARD;
	struct physical *p;

	registry_lock();
	p = kept_physical(handle);
	if (p != NULL && p->retained != 0) {
		p->retained--;
	} else if (p != NULL) {
		answer = p->held ? KEEP_ABSORBED : KEEP_REFUSED;
		p->held = false;
	}
	registry_unlock();
	return answer;
}

void keep_retained(uint64_t handle)
{
	struct physical *p;

	registry_lock();
	p = kept_physical(handle);
	if (p != NULL)
		p->retained++;
	registry_unlock();
}
