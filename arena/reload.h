/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reload as a transaction: begin (scope, snapshot) - receive, stage, commit per layer - end or
 * abort. States: closed, open; and, on the side, safe or unsafe (design section 5, rule 9).
 *
 * Threads: any. Lock order: the reload lock is taken first and only for bookkeeping; snapshots,
 * publications and callbacks run without it. Different layers commit at the same time; end and
 * abort wait for commits that run.
 */
#ifndef ARENA_RELOAD_H
#define ARENA_RELOAD_H

#include "arena/atomics.h"
#include "arena/manifest.h"

enum reload_verdict { RELOAD_PASS, RELOAD_FAIL, RELOAD_UNPROVEN };

/* ARENA_UNPROVEN=pass: a reload that is unproven counts as passed. Set once at start. */
extern bool reload_accepts_unproven;

/* @brief Open a reload. @param scope NULL: everything; copied. @return 0, ARENA_E_BUSY (the
 * message names the open one), ARENA_E_INVALID, ARENA_E_NOMEM. */
int reload_begin(const struct arena_scope *scope, uint64_t *id);
/* Both lock-free, also under the registry lock. reload_id(): of the open or the last reload, 0
 * when there was none. */
bool reload_open(void);
uint64_t reload_id(void);

/* @brief A receipt for the thread's current arena. ARENA_E_BUSY when no reload is open. */
int reload_receive(const char *key, uint64_t part, uint64_t bytes);
/* @brief The open reload is unproven at best. ARENA_E_BUSY when none is open. */
int reload_doubt(const char *why);
/* @brief The open reload wrote there, by whatever means. ARENA_E_BUSY when none is open. */
int reload_wrote(uint64_t addr, uint64_t size_bytes);

/*
 * @brief A value is about to be staged, served to a value tag, or written at once: begin, end and
 * abort wait until reload_leave_put(), so that it belongs to one reload as a whole, or to none.
 * @param id out: the open reload, whose commit publishes what is staged; 0: none is open, there is
 * only the live storage.
 * @return 0; ARENA_E_BUSY: the reload is ending, and nothing is claimed. One that is just being
 * opened is waited for. Claims do not nest, and are short. Not under the registry lock.
 */
int reload_enter_put(uint64_t *id);
void reload_leave_put(void);
/* @brief Inside a claim: the value of @s, which the caller found at @base, from @src, into a
 * shadow, or at once: if it is @direct, or no reload is open. @return as stage.h, also
 * ARENA_E_BUSY: a tag fills it, or has made it anew elsewhere; after ARENA_E_UNSAFE the process
 * is. */
int reload_put(struct slot *s, uint64_t base, uint64_t src, bool direct, uint64_t stream);
/* @brief Inside a claim: a put failed before it had a slot @name of @a that fits. In a reload its
 * value is lost, as that of a put which fails later. */
void reload_put_failed(struct arena *a, const char *name);

/*
 * @brief Verify @a, publish what is staged in it, verify again.
 * @return 0; ARENA_E_REFUSED: a finding, nothing was published and what was staged is dropped; all
 * of it must be put again before the layer is published in this reload;
 * ARENA_E_SCOPE; ARENA_E_BUSY: no reload is open, this layer is being committed, or as
 * stage_publish(); ARENA_E_NOMEM, ARENA_E_DEVICE, ARENA_E_SPEC: nothing changed, try again.
 * When it has failed half way the process is unsafe: ARENA_E_UNSAFE, or _REFUSED and _NOMEM from
 * the second verification. No lock held; asks the device.
 */
int reload_commit(struct arena *a, uint64_t stream);

/* Why nothing that ends now can be proven, a constant string; NULL: no reason, or nobody asks. Set
 * once at start, called without locks. */
extern const char *(*reload_gap)(void);

/* How a reload ended. All of it is the caller's; release with reload_outcome_free(). */
struct reload_outcome {
	uint64_t id, generation;
	enum reload_verdict verdict;
	bool aborted, unsafe;			/* unsafe: the process, from now on */
	bool changed;				/* live values may be new */
	const char *why;			/* of an abort or unproven, never freed; "" */
	struct slot_findings findings;		/* model-wide, with the layers' own */
	struct slot_findings only_layers, only_model;	/* what one of the two sets lacks */
	uint32_t layers_committed, layers_refused, layers_open;
	uint64_t shadow_peak_bytes, published_bytes, begin_ns, end_ns;
	struct arena_scope *scope;		/* as it was declared; NULL: everything */
	struct receipt_counts receipts;
};
/* @brief Where unproven counts as it is set to count. */
static inline bool reload_outcome_fails(const struct reload_outcome *o)
{
	return o->verdict == RELOAD_FAIL ||
	       (o->verdict == RELOAD_UNPROVEN && !reload_accepts_unproven);
}

/*
 * @brief Close the reload with this verdict: 0 whatever it is (the gate is the caller's). Flush
 * callbacks run in this thread, without locks. ARENA_E_BUSY: none is open or it is being closed;
 * ARENA_E_UNKNOWN: another one is. Then nothing changed and *out is not written.
 */
int reload_end(uint64_t id, struct reload_outcome *out);
/* @brief The same checks as a diagnosis; nothing is flushed, but where values have changed, caches
 * that nobody acknowledged are named as stale. The process is unsafe.
 * @param why the caller's own error, kept as it is; may be NULL. */
int reload_abort(uint64_t id, const char *why, struct reload_outcome *out);
void reload_outcome_free(struct reload_outcome *o);

/* A reload failed half way or was aborted, and no full one has passed since. Lock-free. */
bool reload_unsafe(void);
uint64_t reload_generation(void);		/* reloads that passed; lock-free */
/* @brief Verdict of the last reload that was closed. @return false when there was none. */
bool reload_last(enum reload_verdict *verdict);

/* Caches that depend on the weights (cache.c). @flush NULL: acknowledged by cache_flushed(). */
int cache_register(const char *name, arena_flush_fn flush, void *ctx);
/* @brief This cache is flushed for the open reload. ARENA_E_UNKNOWN: not registered. */
int cache_flushed(const char *name);
/* @brief Each cache: is it flushed for the open or the last reload? Its lock is held meanwhile. */
void caches_tell(void (*tell)(void *to, const char *name, bool flushed), void *to);
/* For reload.c: forget the acknowledgements; flush all, and tell who was not; only tell. */
void caches_begin(void);
int caches_flush(uint64_t generation, struct slot_findings *out);
int caches_stale(struct slot_findings *out);

#endif
