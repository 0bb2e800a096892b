/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases: memory that allocations under a tag were served, and what becomes of its frees (tag.h).
 *
 * A lease of live storage counts the users that share the place; it is never removed, so that
 * a free too many is known for what it is. A lease of a shadow has one user. When he frees it
 * before the layer commits, the bytes stay until stage.c is done with them; when stage.c is done
 * first, they stay until he frees them. Whoever comes last gives them back to the device.
 *
 * To the application a shadow is an allocation like any other: it is a range of the ledger while
 * the user holds it.
 *
 * Threads: any. Own lock, which may be taken under the registry lock, and before the holders lock.
 */
#include <inttypes.h>
#include <pthread.h>

#include "arena/binding.h"
#include "arena/device.h"
#include "arena/intern.h"
#include "arena/ledger.h"
#include "arena/map.h"
#include "arena/reload.h"
#include "arena/slab.h"
#include "arena/stage.h"
#include "arena/storage.h"
#include "arena/tag.h"

#define NAME_BYTES 256

struct lease {
	struct slot *slot;
	const struct tag_sequence *q; /* that it was served to, the newest */
	uint32_t users;
	bool shadow;	  /* of the slot; else its live storage */
	bool dropped;	  /* a shadow that stage.c is done with */
	uint64_t context; /* the memory's, 0: not known */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The rest, and the leases of slots, are guarded by it. */
static struct slab leases = SLAB_INIT(struct lease);
static struct map by_addr;

/* ---- taking ---- */

static struct lease *lease_new(uint64_t addr, struct slot *s, uint64_t context)
{
	struct lease *l = slab_get(&leases);

	if (l == NULL)
		return NULL;
	*l = (struct lease){ .slot = s, .context = context };
	if (map_put(&by_addr, addr, l) == 0)
		return l;
	slab_put(&leases, l);
	return NULL;
}

/* One more user of the live storage of @s. */
static bool lease_live(struct slot *s, const struct tag_sequence *q)
{
	struct lease *l;

	pthread_mutex_lock(&lock);
	l = map_get(&by_addr, s->base);
	if (l == NULL)
		l = lease_new(s->base, s, ledger_context(s->base));
	if (l != NULL) {
		l->q = q;
		l->users++;
		s->leases++;
	}
	pthread_mutex_unlock(&lock);
	return l != NULL;
}

static bool lease_shadow(struct slot *s, const struct tag_sequence *q, uint64_t addr,
			 uint64_t context)
{
	struct lease *l;

	pthread_mutex_lock(&lock);
	l = lease_new(addr, s, context);
	if (l != NULL) {
		l->shadow = true;
		l->q = q;
		l->users = 1;
		s->leases++;
	}
	pthread_mutex_unlock(&lock);
	return l != NULL;
}

/* @addr is not known any more. Lock held. */
static void lease_end(struct lease *l, uint64_t addr)
{
	map_remove(&by_addr, addr);
	slab_put(&leases, l);
}

/* ---- serving ---- */

struct service {
	struct tag_sequence *q;
	const struct tag_request *want;
	char name[NAME_BYTES];
	struct slot *slot; /* NULL: there is none */
	bool over;	   /* and the first pass had no such call */
	bool anew;	   /* there is one that is to become another */
	uint64_t reload;   /* that is open, and stays so if it is a value; 0: none */
};

/* The call goes to the driver. Registry lock held. */
static bool refuse(const struct service *v, const char *why)
{
	tag_misfit(v->q,
		   &(struct tag_misfit){
			   .name = intern(v->name), .slot = v->slot, .bytes = v->want->bytes },
		   "%" PRIu64 " bytes: %s", v->want->bytes, why);
	return false;
}

static bool refuse_unlocked(const struct service *v, const char *why)
{
	registry_lock();
	refuse(v, why);
	registry_unlock();
	return false;
}

/* One more user of the slot's storage. Registry lock held. @return false: no host memory. */
static bool use_live(const struct service *v, uint64_t *addr)
{
	if (!lease_live(v->slot, v->q))
		return false;
	v->slot->touched |= v->reload != 0;
	*addr = v->slot->base;
	return true;
}

/* The first call with this number, or the first that counts: it gets the live storage. */
static bool serve_first(struct service *v, uint64_t *addr)
{
	const struct tag_request *want = v->want;
	/* Storage is aligned to 256 bytes, as cuMemAlloc() promises. */
	uint64_t bytes = want->bytes + (want->align > 256 ? want->align - 256 : 0), taken;
	const char *why = "no host memory";
	bool used;

	if (storage_take(v->q->arena, want->device, bytes, &taken) != ARENA_OK)
		return refuse_unlocked(v, arena_message());
	registry_lock();
	v->slot = tag_slot_new(v->q, v->name, want->bytes, want->device);
	/* Only now, with the storage at hand: whoever puts it meanwhile has made it what it is. */
	used = v->slot != NULL &&
	       (v->anew ? tag_slot_renew(v->slot, want->bytes, want->device) : v->slot->base == 0);
	if (used) {
		binding_set(v->slot, (taken + want->align - 1) & ~(want->align - 1));
		/* As one that was put at once: its user writes it. */
		v->slot->restored |= v->reload != 0;
		v->slot->lost = false;
		if (use_live(v, addr))
			why = NULL;
	} else if (v->slot != NULL) {
		why = "somebody else made the slot at the same time";
	}
	if (why != NULL)
		refuse(v, why);
	registry_unlock();
	if (!used)
		storage_untake(v->q->arena, taken, bytes);
	return why == NULL;
}

/* A value again, in a reload: fresh memory, which is the slot's shadow from now on. */
static bool serve_fresh(struct service *v, uint64_t *addr)
{
	const struct tag_request *want = v->want;
	const struct device_place at = device_place(want->device);
	uint64_t fresh, old;

	if (device.alloc == NULL || device.alloc(want->bytes, want->device, &fresh) != 0)
		return refuse_unlocked(v, "no device memory for a shadow");
	if (!lease_shadow(v->slot, v->q, fresh, at.context)) {
		device.free(fresh);
		return refuse_unlocked(v, "no host memory");
	}
	ledger_open(&(struct range_desc){ .base = fresh,
					  .size_bytes = want->bytes,
					  .kind = RANGE_DEVICE,
					  .context = at.context });
	registry_lock();
	old = stage_adopt(v->slot, fresh);
	v->slot->touched |= v->reload != 0;
	registry_unlock();
	if (old != 0)
		stage_give_back(v->q->arena, old);
	*addr = fresh;
	return true;
}

/* Why the slot is not what is asked for; NULL: it is. Registry lock held. */
static const char *unlike(const struct service *v)
{
	const struct slot *s = v->slot;

	if (s->kind != v->q->kind)
		return "the slot is of another kind";
	if (s->spec.bytes != v->want->bytes)
		return "the slot has another size";
	if (s->spec.device != v->want->device)
		return "the slot is on another device";
	if ((s->base & (v->want->align - 1)) != 0)
		return "the slot is aligned to less";
	return NULL;
}

/* Count the thread's next call. Registry lock held. */
static void next_call(struct service *v)
{
	uint32_t number;

	v->q = tag_current();
	number = tag_count(v->q, TAG_ALLOC);
	tag_slot_name(v->q, number, v->name, sizeof(v->name));
	v->slot = slot_find(v->q->arena, v->name);
	v->over = (v->slot == NULL || v->slot->tentative) && !tag_fits(v->q, TAG_ALLOC, number);
}

void tag_decline(uint64_t bytes, const char *why)
{
	struct service v = { .want = &(struct tag_request){ .bytes = bytes } };

	registry_lock();
	next_call(&v);
	refuse(&v, why);
	registry_unlock();
}

static bool serve(struct service *v, uint64_t *addr)
{
	const char *why = NULL;
	bool there, fresh, ok = true;

	registry_lock();
	next_call(v);
	if (tag_strays(v->q))
		why = "its pass began on the other side of a reload's begin or end";
	else if (v->over)
		why = "the first pass had fewer calls";
	else if (v->slot != NULL && (why = unlike(v)) != NULL)
		v->anew = tag_slot_in_vain(v->slot);
	if (v->anew)
		why = NULL;
	there = v->slot != NULL && v->slot->base != 0 && !v->anew;
	fresh = there && v->q->kind == ARENA_VALUE && v->reload != 0;
	if (why == NULL && there && !fresh && !use_live(v, addr))
		why = "no host memory";
	if (why != NULL)
		ok = refuse(v, why);
	registry_unlock();
	if (!ok || (there && !fresh))
		return ok;
	return fresh ? serve_fresh(v, addr) : serve_first(v, addr);
}

/* The call has its number, and nothing else: the reload is ending. */
static bool pass_over(struct service *v)
{
	registry_lock();
	next_call(v);
	registry_unlock();
	return false;
}

bool tag_serve(const struct tag_request *want, uint64_t *addr)
{
	struct service v = { .want = want };
	bool served;

	if (tag_current()->kind != ARENA_VALUE) {
		v.reload = reload_open() ? reload_id() : 0;
		return serve(&v, addr);
	}
	if (reload_enter_put(&v.reload) != 0)
		return pass_over(&v);
	served = serve(&v, addr);
	reload_leave_put();
	return served;
}

/* ---- giving back ---- */

/* Is @addr the start of a chunk, which the driver would free if it were asked? */
static bool is_storage(uint64_t addr)
{
	struct range_view v;
	bool is;

	if (!ledger_find(addr, &v) || v.base != addr || !ledger_pin(&v))
		return false;
	is = v.owner->scope == STORAGE_SCOPE;
	ledger_unpin(v.owner);
	return is;
}

enum tag_free tag_absorb(uint64_t addr)
{
	enum tag_free answer = TAG_FOREIGN;
	struct range *shadow = NULL;
	bool give = false;
	struct lease *l;

	pthread_mutex_lock(&lock);
	l = map_get(&by_addr, addr);
	if (l != NULL)
		answer = l->users != 0 ? TAG_ABSORBED : TAG_REFUSED;
	if (answer == TAG_ABSORBED) {
		l->users--;
		l->slot->leases--;
		/* Under the lock: whoever finds no user gives the memory back, and then its address
		 * may be another allocation's. */
		if (l->shadow)
			shadow = ledger_close_begin(addr, 0);
		give = l->shadow && l->dropped;
		if (give)
			lease_end(l, addr);
	}
	pthread_mutex_unlock(&lock);
	if (give)
		device.free(addr);
	ledger_close_end(shadow, true);
	return answer == TAG_FOREIGN && is_storage(addr) ? TAG_REFUSED : answer;
}

bool tag_keeps_shadow(uint64_t addr)
{
	struct lease *l;
	bool keeps;

	pthread_mutex_lock(&lock);
	l = map_get(&by_addr, addr);
	keeps = l != NULL && l->users != 0;
	if (keeps)
		l->dropped = true;
	else if (l != NULL)
		lease_end(l, addr);
	pthread_mutex_unlock(&lock);
	return keeps;
}

int tag_check_put(const struct slot *s)
{
	bool first = s->tentative && reload_open() && s->first_reload == reload_id();
	uint64_t served = first ? s->base : s->shadow;
	const struct tag_sequence *q = NULL;
	const struct lease *l;

	pthread_mutex_lock(&lock);
	l = served != 0 ? map_get(&by_addr, served) : NULL;
	if (l != NULL)
		q = l->q;
	pthread_mutex_unlock(&lock);
	if (q == NULL)
		return ARENA_OK;
	if (q->thread != 0)
		return arena_fail(ARENA_E_BUSY,
				  "slot %s of %s: it is being filled by tag %s of thread %" PRIu32
				  "; pop the tag and commit the layer first",
				  interned(s->name), interned(s->arena->path), interned(q->name),
				  q->thread);
	return arena_fail(ARENA_E_BUSY,
			  "slot %s of %s: it is staged by tag %s; commit the layer first",
			  interned(s->name), interned(s->arena->path), interned(q->name));
}

/* ---- contexts that are gone ---- */

/* Both locks held. */
static void lease_died(struct lease *l, uint64_t addr)
{
	l->slot->leases -= l->users;
	if (l->shadow && l->slot->shadow == addr)
		stage_lost(l->slot);
	lease_end(l, addr);
}

void tag_context_gone(uint64_t context)
{
	registry_lock();
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; context != 0 && i < by_addr.cap;) {
		struct lease *l = by_addr.slots[i].value;

		/* A removal fills the place: look at it again. */
		if (by_addr.slots[i].key != 0 && l->context == context)
			lease_died(l, by_addr.slots[i].key);
		else
			i++;
	}
	pthread_mutex_unlock(&lock);
	registry_unlock();
}
