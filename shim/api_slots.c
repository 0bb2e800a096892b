/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots of the public API. What exists is never changed by a request that does not fit: it is
 * compared first, under the registry lock. Storage is asked for without the lock; who loses the
 * race for a new slot gives it back.
 *
 * Any thread.
 */
#include <inttypes.h>

#include "arena/binding.h"
#include "arena/intern.h"
#include "arena/object.h"
#include "arena/reload.h"
#include "arena/stage.h"
#include "arena/storage.h"
#include "shim/api.h"

/* What is asked for. */
struct request {
	const char *call;
	struct arena *arena;
	const char *name;
	enum arena_kind kind;
	struct arena_spec spec;
};

/* What was found or made. */
struct grant {
	struct slot *slot;
	uint64_t base;
	bool fresh;
};

static const char *kind_name(enum arena_kind kind)
{
	static const char *const names[] = { "value", "scratch", "object", "bound" };

	return names[kind];
}

/* A flag that its kind of slot does not have would be ignored. */
static int read_spec(struct request *q, const struct arena_spec *spec)
{
	int err = spec_read(spec, &q->spec);
	uint32_t known = 0;

	if (q->kind == ARENA_BOUND)
		known = ARENA_SPEC_SCRATCH;
	else if (q->kind == ARENA_SCRATCH)
		known = ARENA_SPEC_ZERO;
	if (err || !(q->spec.flags & ~known))
		return err;
	return arena_fail(ARENA_E_INVALID,
			  "%s: spec.flags: %#x, for a %s slot; ARENA_SPEC_SCRATCH (1) is for bound "
			  "slots, ARENA_SPEC_ZERO (2) for scratch slots",
			  q->call, (unsigned)q->spec.flags, kind_name(q->kind));
}

static int request_read(struct request *q, const struct arena_spec *spec)
{
	int err = api_slot(q->call, q->arena, q->name);

	return err ? err : read_spec(q, spec);
}

/* Registry lock held. */
static int check_kind(const struct request *q, const struct slot *s)
{
	if (s->kind == q->kind)
		return ARENA_OK;
	return arena_fail(ARENA_E_SPEC, "slot %s of %s: it is a %s slot, asked for as %s; use "
					"another name",
			  q->name, interned(s->arena->path), kind_name(s->kind),
			  kind_name(q->kind));
}

/* Registry lock held. */
static int check_fit(const struct request *q, const struct slot *s)
{
	char is[176], wanted[176];
	int err = check_kind(q, s);

	if (err || spec_equal(&s->spec, &q->spec))
		return err;
	spec_text(&s->spec, is, sizeof(is));
	spec_text(&q->spec, wanted, sizeof(wanted));
	return arena_fail(ARENA_E_SPEC, "slot %s of %s: it has %s, asked for with %s; ask for what "
					"it has, or use another name",
			  q->name, interned(s->arena->path), is, wanted);
}

/* Registry lock held. @return NULL: no memory, with a message. */
static struct slot *add(const struct request *q)
{
	struct slot *s = slot_add(q->arena, q->name, q->kind, &q->spec);

	if (s == NULL)
		arena_fail(ARENA_E_NOMEM, "slot %s of %s: no host memory", q->name,
			   interned(q->arena->path));
	else
		s->first_reload = reload_open() ? reload_id() : 0;
	return s;
}

/* Does it exist, and fit? Registry lock held. */
static int look(const struct request *q, struct grant *g)
{
	int err;

	g->slot = slot_find(q->arena, q->name);
	if (g->slot == NULL)
		return ARENA_OK;
	err = check_fit(q, g->slot);
	if (!err) {
		g->base = g->slot->base;
		g->slot->touched |= reload_open();
	}
	return err;
}

/* Give the storage at @addr to the slot, unless another thread was faster. A slot without any lost
 * it with the context that it lay in. */
static int enter(const struct request *q, struct grant *g, uint64_t addr)
{
	int err;

	registry_lock();
	err = look(q, g);
	if (!err && g->slot == NULL) {
		g->slot = add(q);
		err = g->slot != NULL ? ARENA_OK : ARENA_E_NOMEM;
	}
	g->fresh = !err && g->base == 0;
	if (g->fresh) {
		g->base = addr;
		g->slot->touched = reload_open();
		binding_set(g->slot, addr);
	}
	registry_unlock();
	if (!g->fresh)
		storage_untake(q->arena, addr, q->spec.bytes);
	return err;
}

static int acquire(const struct request *q, struct grant *g)
{
	uint64_t addr;
	int err;

	*g = (struct grant){ .slot = NULL };
	registry_lock();
	err = look(q, g);
	registry_unlock();
	if (err || g->base != 0)
		return err;
	err = storage_take(q->arena, q->spec.device, q->spec.bytes, &addr);
	return err ? err : enter(q, g, addr);
}

int arena_get_or_alloc(struct arena *a, const char *slot, const struct arena_spec *spec,
		       enum arena_init init, void **ptr, void *stream)
{
	struct request q = { "arena_get_or_alloc", a, slot, .kind = ARENA_SCRATCH };
	struct grant g;
	int err = request_read(&q, spec);

	err = err ? err : api_pointer(q.call, "ptr", ptr);
	if (!err && (unsigned)init > ARENA_PRESERVE)
		err = arena_fail(ARENA_E_INVALID, "%s: init is %d: pass ARENA_EMPTY, ARENA_ZERO or "
						  "ARENA_PRESERVE", q.call, (int)init);
	err = err ? err : acquire(&q, &g);
	if (!err && init == ARENA_ZERO && !g.fresh)
		err = stage_zero(g.slot, (uintptr_t)stream);
	if (!err)
		*ptr = (void *)(uintptr_t)g.base;
	return err;
}

static int check_put(struct request *q, const struct arena_spec *spec, const void *src,
		     enum arena_publish how, void **live)
{
	int err = read_spec(q, spec);

	err = err ? err : api_pointer(q->call, "src", src);
	err = err ? err : api_pointer(q->call, "live", live);
	if (!err && (unsigned)how > ARENA_DIRECT)
		err = arena_fail(ARENA_E_INVALID, "%s: how is %d: pass ARENA_STAGED or "
						  "ARENA_DIRECT", q->call, (int)how);
	return err;
}

int arena_put(struct arena *a, const char *slot, const struct arena_spec *spec, const void *src,
	      enum arena_publish how, void **live, void *stream)
{
	struct request q = { "arena_put", a, slot, .kind = ARENA_VALUE };
	struct grant g;
	uint64_t reload;
	int err = api_slot(q.call, a, slot);

	err = err ? err : reload_enter_put(&reload);
	if (err)
		return err;
	err = check_put(&q, spec, src, how, live);
	err = err ? err : acquire(&q, &g);
	if (err)
		reload_put_failed(a, slot);
	else
		err = reload_put(g.slot, g.base, (uintptr_t)src, how == ARENA_DIRECT,
				 (uintptr_t)stream);
	reload_leave_put();
	if (!err)
		*live = (void *)(uintptr_t)g.base;
	return err;
}

int arena_bind(struct arena *a, const char *slot, const struct arena_spec *spec, void *ptr)
{
	struct request q = { "arena_bind", a, slot, .kind = ARENA_BOUND };
	struct slot *s;
	int err = request_read(&q, spec);

	err = err ? err : api_pointer(q.call, "ptr", ptr);
	if (err)
		return err;
	registry_lock();
	s = slot_find(a, slot);
	if (s != NULL)
		err = check_kind(&q, s);
	else if ((s = add(&q)) == NULL)
		err = ARENA_E_NOMEM;
	if (!err) {
		s->spec = q.spec;
		s->touched |= reload_open();
		binding_set(s, (uintptr_t)ptr);
	}
	registry_unlock();
	return err;
}

int arena_unbind(struct arena *a, const char *slot)
{
	struct request q = { "arena_unbind", a, slot, .kind = ARENA_BOUND };
	struct slot *s;
	int err = api_slot(q.call, a, slot);

	if (err)
		return err;
	registry_lock();
	s = slot_find(a, slot);
	if (s == NULL)
		err = arena_fail(ARENA_E_UNKNOWN, "%s: %s has no slot %s: bind it first", q.call,
				 interned(a->path), slot);
	else if (s->kind != ARENA_OBJECT)
		err = check_kind(&q, s);
	if (!err)
		binding_clear(s);
	registry_unlock();
	return err;
}

int arena_object(struct arena *a, const char *slot, const char *type, arena_factory_fn make,
		 void *ctx, void **object)
{
	const struct object_request q = { a, slot, type, make, ctx };
	const char *call = "arena_object";
	int err = api_slot(call, a, slot);

	err = err ? err : api_name(call, "type", type);
	err = err ? err : api_pointer(call, "object", object);
	if (!err && make == NULL)
		err = arena_fail(ARENA_E_INVALID, "%s: the factory is NULL: pass one", call);
	return err ? err : object_get(&q, object);
}
