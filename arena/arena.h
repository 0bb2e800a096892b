/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public C API of libarena_shim.so: arenas, slots, reloads. arena(3) has a complete program.
 *
 * Nothing has to be linked. The library is preloaded; this header reaches it through weak symbols,
 * so that a program runs unchanged when it is not there: arena_abi() is then 0, and every other
 * call returns ARENA_E_ABSENT and does nothing. The same holds when the library is there but off
 * (ARENA_GATE=off, a forked child before its own cuInit(), a failure that was said): one path.
 *
 * Words
 *   arena   the storage owner of one layer, named by its path ("model.layers.3.self_attn")
 *   slot    a named place in an arena, with a spec: bytes, dtype, shape, strides, device, layout
 *   shadow  where a new value waits until its layer is committed
 *   reload  begin ... end or abort; a layer commit is the publication point of one arena in it
 *   scope   of a thread: the arenas it works for, innermost last; of a reload: what it covers
 *
 * Conventions
 *   absent   then out parameters stay as they were: give them an initial value
 *   errors   0 or a negative enum arena_err; arena_strerror() says it in words, and
 *            arena_last_message() what exactly was wrong, for the calling thread. A call that
 *            returns an error changed nothing, unless its comment says otherwise
 *   strings  UTF-8, not empty, at most ARENA_NAME_MAX bytes; copied
 *   json     what a call returns through "char **json" is one object as in arena-report(5), NUL
 *            terminated, and freed with arena_free(); the pointer may be NULL: not wanted
 *   streams  a CUstream as void *; NULL is the legacy default stream
 *   memory   device addresses as void *; the library owns what it allocated, as long as its context
 *            lives: till then the address of a slot stays good; the caller never frees it
 *   structs  carry their own size in .struct_bytes (ARENA_*_INIT sets it), so that fields can be
 *            added; a caller with an older, smaller struct keeps working
 *   threads  every call may be made from any thread, with a current CUDA context where the device
 *            is needed; only arena_abi() and arena_strerror() from a signal handler
 */
#ifndef ARENA_ARENA_H
#define ARENA_ARENA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
/* Functions and structs of one name, as in stat(2). */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif

/** Longest path, slot, tag, type, source key or cache name, without its NUL. */
#define ARENA_NAME_MAX 255
/** Most dimensions of a spec. */
#define ARENA_MAX_DIMS 8

/*
 * One declaration, two readings. Inside the library (ARENA_BUILD): an exported prototype. Outside:
 * a weak reference to the exported symbol, and an inline function that asks whether it is there.
 *
 * Code that is not position independent would have "not there" burned in by the linker, whatever is
 * preloaded: the reference must go through the global offset table.
 */
#if defined(__x86_64__) && !defined(__PIC__)
#define ARENA_AT(name)                                                                        \
	__extension__({                                                                       \
		__typeof__(&name##_weak) at_;                                                 \
		__asm__(".weak " #name "\n\tmovq " #name "@GOTPCREL(%%rip), %0" : "=r"(at_)); \
		at_;                                                                          \
	})
#else
#define ARENA_AT(name) (&name##_weak)
#endif

#ifdef ARENA_BUILD
#define ARENA_FN_OR(type, absent, name, params, args)                                         \
	__attribute__((visibility("default"))) type name params;
#else
#define ARENA_FN_OR(type, absent, name, params, args)                                         \
	extern type name##_weak params __asm__(#name) __attribute__((weak));                  \
	static inline type name params __asm__(#name "_inline");                              \
	static inline type name params                                                        \
	{                                                                                     \
		__typeof__(&name##_weak) at = ARENA_AT(name);                                 \
                                                                                              \
		return at ? at args : (absent);                                               \
	}
#endif
#define ARENA_FN(name, params, args) ARENA_FN_OR(int, ARENA_E_ABSENT, name, params, args)

/* A struct that knows its size and is otherwise zero. */
#ifdef __cplusplus
#define ARENA_SIZED(type)                                                                     \
	static inline struct type type##_sized(void)                                          \
	{                                                                                     \
		struct type s = {};                                                           \
                                                                                              \
		s.struct_bytes = sizeof(s);                                                   \
		return s;                                                                     \
	}
#define ARENA_SIZED_INIT(type) type##_sized()
#else
#define ARENA_SIZED(type)
#define ARENA_SIZED_INIT(type) { .struct_bytes = sizeof(struct type) }
#endif

/** Errors. The message has the subject, its value and the remedy. */
enum arena_err {
	ARENA_OK = 0,
	ARENA_E_ABSENT = -1,	/**< the library is not loaded, is turned off, or has failed */
	ARENA_E_INVALID = -2,	/**< an argument: NULL, empty, too long, an unknown enum value */
	ARENA_E_NOMEM = -3,	/**< no host memory */
	ARENA_E_DEVICE = -4,	/**< the driver refused (out of device memory, sticky error) */
	ARENA_E_SPEC = -5,	/**< the slot exists with another spec or kind; nothing changed */
	ARENA_E_UNKNOWN = -6,	/**< no such arena, slot, reload or cache */
	ARENA_E_BUSY = -7,	/**< a reload is open, or none is; scopes are not balanced */
	ARENA_E_REFUSED = -8,	/**< findings: nothing was published, live values stay old */
	ARENA_E_UNSAFE = -9,	/**< an earlier reload failed; only a full one that passes helps */
	ARENA_E_SCOPE = -10,	/**< the layer or source is outside of the declared scope */
};

/** What a slot is. */
enum arena_kind {
	ARENA_VALUE = 0,	/**< owned by the arena, has a value that reloads publish */
	ARENA_SCRATCH = 1,	/**< owned by the arena, contents mean nothing between uses */
	ARENA_OBJECT = 2,	/**< an opaque handle, with every range its factory allocated */
	ARENA_BOUND = 3,	/**< memory of somebody else, watched */
};

/** What arena_get_or_alloc() does to the contents. A new slot is zero in any case. */
enum arena_init {
	ARENA_EMPTY = 0,	/**< nothing is promised (today: the same as preserve) */
	ARENA_ZERO = 1,		/**< zeroed on EVERY acquisition, in stream order */
	ARENA_PRESERVE = 2,	/**< kept from the last use */
};

/** How arena_put() publishes. */
enum arena_publish {
	ARENA_STAGED = 0,	/**< into a shadow; published when the layer commits */
	ARENA_DIRECT = 1,	/**< into the live storage at once, in stream order */
};

/** A verdict, in status and reports. */
enum arena_verdict {
	ARENA_PASS = 0,		/**< nothing wrong, and everything that matters was seen */
	ARENA_FAIL = 1,		/**< something is wrong */
	ARENA_UNPROVEN = 2,	/**< nothing wrong was seen, but something that matters was not */
};

/** arena_spec.flags. Another kind of slot refuses them. */
enum arena_spec_flags {
	ARENA_SPEC_SCRATCH = 1,	/**< of bound memory: no value; may move while the old lives */
	ARENA_SPEC_ZERO = 2,	/**< of scratch slots: each commit of the layer zeroes it (locks) */
};

/** What a slot holds. A shape lies in the bytes; what it leaves of them is padding. */
struct arena_spec {
	uint32_t struct_bytes;		/**< sizeof(struct arena_spec) */
	int32_t device;			/**< CUDA device ordinal */
	uint64_t bytes;			/**< extent in bytes, > 0 */
	uint32_t ndim;			/**< 0: the shape is not told */
	uint32_t flags;			/**< 0, or of ARENA_SPEC_* */
	int64_t shape[ARENA_MAX_DIMS];	/**< elements; behind ndim: 0 */
	int64_t strides[ARENA_MAX_DIMS];/**< elements; all 0: contiguous, row major */
	char dtype[16];			/**< as NumPy or PyTorch: "<f4", "bfloat16"; "" untold */
	char layout[32];		/**< free tag: "marlin", "nvfp4-swizzled"; "" none */
};
ARENA_SIZED(arena_spec)
#define ARENA_SPEC_INIT ARENA_SIZED_INIT(arena_spec)

/** What a reload covers: what fits all three. Copied at begin, never changed afterwards. */
struct arena_scope {
	uint32_t struct_bytes;		/**< sizeof(struct arena_scope) */
	uint32_t layers_count;		/**< 0: all layers */
	const char *const *layers;	/**< arena paths; a path covers everything below it */
	uint32_t sources_count;		/**< 0: all sources */
	uint32_t reserved;		/**< 0 */
	const char *const *sources;	/**< source keys as arena_receive() names them */
	const char *role;		/**< NULL: all; else "target", "draft", "mtp" */
};
ARENA_SIZED(arena_scope)
#define ARENA_SCOPE_INIT ARENA_SIZED_INIT(arena_scope)

/** Where the process stands. */
struct arena_status {
	uint32_t struct_bytes;		/**< sizeof(struct arena_status) */
	int32_t verdict;		/**< enum arena_verdict; of the last reload, if any */
	int32_t unsafe;			/**< 1: a reload failed, strict launches no graph */
	int32_t reload_open;		/**< 1 between begin and end or abort */
	uint64_t reload_id;		/**< of the open or the last reload, 0: none yet */
	uint64_t generation;		/**< reloads that passed; dependent caches belong to one */
	uint64_t arenas, slots;		/**< registered now */
	uint64_t storage_bytes;		/**< device memory that arenas hold */
	uint64_t shadow_peak_bytes;	/**< most extra device memory of the open or last reload */
	uint64_t findings_error;	/**< since the process started, as the report counts them */
	uint64_t findings_warn;		/**< the same */
};
ARENA_SIZED(arena_status)
#define ARENA_STATUS_INIT ARENA_SIZED_INIT(arena_status)

struct arena;			/**< opaque; get with arena_open(), lives as long as the process */
struct arena_snapshot;		/**< opaque; free with arena_snapshot_free() */

/**
 * @brief Make an object for arena_object(); called once for a slot, on the calling thread, with no
 * lock of the library held: it may allocate, launch, and call this API.
 * @param ctx as it was given. @param object out: the handle, not NULL.
 * @return 0, or an error code of its own: the slot then stays without an object.
 */
typedef int (*arena_factory_fn)(void *ctx, void **object);

/**
 * @brief Flush a cache that depends on the weights; called at the end of a reload that passes, or
 * that published a layer at least, on the thread that ends it, with no lock of the library held.
 * @param ctx as it was given. @param generation that of the weights from now on.
 * @return 0 when it is flushed; anything else is a stale-cache finding.
 */
typedef int (*arena_flush_fn)(void *ctx, uint64_t generation);

/* ---- the library ---- */

/**
 * @brief **arena_abi()** is the handshake: it proves that the preload took effect.
 *
 * A wrong path in LD_PRELOAD is only a warning of the dynamic linker, and many tools that start
 * processes drop the variable; a gate that nobody asked is no gate.
 *
 * @return the version of this interface, 1; 0 when the library is not loaded, or is the no-op
 * build, which watches nothing.
 *
 * Any thread, at any time, also in a signal handler. Does not start CUDA.
 */
ARENA_FN_OR(int, 0, arena_abi, (void), ())

/**
 * @brief **arena_strerror()** says an error in words.
 * @param err what a call returned.
 * @return a constant string, never NULL; also when the library is not loaded.
 *
 * Any thread, at any time.
 */
ARENA_FN_OR(const char *, "the library is not loaded", arena_strerror, (int err), (err))

/**
 * @brief **arena_last_message()** tells what exactly was wrong with the last call of this thread
 * that returned an error: subject, value, remedy, in one line.
 * @param text out: the message, cut to fit, NUL terminated; "" if no call failed yet. May be NULL
 * when text_bytes is 0.
 * @param text_bytes room in text, in bytes.
 * @return length of the whole message in bytes, as snprintf(); or ARENA_E_ABSENT, ARENA_E_INVALID.
 *
 * Any thread; each has its own message. It stays until the next error.
 */
ARENA_FN(arena_last_message, (char *text, size_t text_bytes), (text, text_bytes))

/**
 * @brief **arena_free()** frees a JSON string.
 * @param p what a call returned through "char **json"; NULL: nothing happens.
 * @return 0, or ARENA_E_ABSENT.
 *
 * Any thread.
 */
ARENA_FN(arena_free, (void *p), (p))

/**
 * @brief **arena_status()** tells where the process stands.
 * @param out its struct_bytes set by the caller (ARENA_STATUS_INIT); that many bytes are written.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID.
 *
 * Any thread, also while a reload is open. The verdict agrees with what arena_reload_end()
 * returned, with the report, and with its exit line.
 */
ARENA_FN(arena_status, (struct arena_status *out), (out))

/* ---- arenas, and which one a thread works for ---- */

/**
 * @brief **arena_open()** gets the arena of a layer, or creates it.
 * @param path of the layer; dots separate levels.
 * @param out the arena; the same pointer for the same path, good for ever, owned by the library.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID, ARENA_E_NOMEM.
 *
 * Any thread. Does not need a CUDA context.
 */
ARENA_FN(arena_open, (const char *path, struct arena **out), (path, out))

/**
 * @brief **arena_enter()** makes an arena the current one of the calling thread.
 *
 * Scopes nest, at most 32 deep, and belong to the thread. To hand one over, pass what
 * arena_current() gave to the other thread and enter it there.
 *
 * @param a the arena.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID, ARENA_E_BUSY (too deep).
 *
 * Any thread, for itself. Undone by arena_leave() on the same thread.
 */
ARENA_FN(arena_enter, (struct arena *a), (a))

/**
 * @brief **arena_leave()** goes back to the arena that was current before.
 * @return 0, ARENA_E_ABSENT, ARENA_E_BUSY (not inside one, or a tag is still pushed).
 *
 * Any thread, for itself.
 */
ARENA_FN(arena_leave, (void), ())

/**
 * @brief **arena_current()** tells the arena that the calling thread works for.
 * @param out the innermost arena that was entered; NULL outside.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID.
 *
 * Any thread, for itself. The pointer may be kept: a lazy user takes it when it is constructed
 * and allocates at its first forward.
 */
ARENA_FN(arena_current, (struct arena **out), (out))

/* ---- slots ---- */

/**
 * @brief **arena_get_or_alloc()** gets the storage of a scratch slot; the first call allocates it.
 *
 * A slot that exists must have this kind and an equal spec: else the call is refused with both
 * specs in the message, and nothing changes.
 *
 * @param a the arena. @param slot its name. @param spec what it holds.
 * @param init what happens to the contents. ARENA_ZERO zeroes in stream order; replays that may
 * still use the storage are the caller's to order before it.
 * @param ptr out: device address, the same at every call.
 * @param stream for ARENA_ZERO.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID, ARENA_E_SPEC, ARENA_E_NOMEM, ARENA_E_DEVICE,
 * ARENA_E_BUSY (ARENA_ZERO while the stream is being captured).
 *
 * Any thread; threads that race for one slot get the same address. Needs a CUDA context.
 */
ARENA_FN(arena_get_or_alloc,
	 (struct arena *a, const char *slot, const struct arena_spec *spec, enum arena_init init,
	  void **ptr, void *stream),
	 (a, slot, spec, init, ptr, stream))

/**
 * @brief **arena_put()** gives a value slot its new value, and returns the LIVE storage.
 *
 * Bind what is returned, not src. Inside a reload, a staged value waits in a shadow, and the live
 * storage keeps the old value until arena_layer_commit(): follow-on values of the same pass are
 * computed from src. Outside of a reload it is published at once. Where the copy fails, a slot that
 * this call made stays, and is zero. A put that fails in a reload drops what was staged, and must
 * be made up for before the layer commits, now or in a later reload.
 *
 * @param a the arena. @param slot its name. @param spec what it holds; must be equal to the slot's.
 * @param src spec->bytes of device or host memory; may be reused when the stream has done the copy.
 * @param how ARENA_STAGED, or ARENA_DIRECT for a slot whose readers may see the new value early
 * (outside of the declared scope that fails the reload: nothing can take it back).
 * @param live out: device address of the slot, the same at every call.
 * @param stream that orders the copy.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID, ARENA_E_SPEC, ARENA_E_NOMEM, ARENA_E_DEVICE,
 * ARENA_E_BUSY (a stream captures, the reload ends, a tag has it), ARENA_E_UNSAFE (half written).
 *
 * Any thread; two threads may stage different layers. Needs a CUDA context.
 */
ARENA_FN(arena_put,
	 (struct arena *a, const char *slot, const struct arena_spec *spec, const void *src,
	  enum arena_publish how, void **live, void *stream),
	 (a, slot, spec, src, how, live, stream))

/**
 * @brief **arena_bind()** watches memory of somebody else under a slot's name, or binds it anew.
 *
 * Graphs that were captured under another binding are stale from here on (slot-moved), unless the
 * slot comes back. A rebinding with another spec is taken, and is a finding (respecified) of the
 * next verify: the memory is not the library's to refuse.
 *
 * @param a the arena. @param slot its name; a bound slot or a new one.
 * @param spec what is there. @param ptr device address; it stays the caller's.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID, ARENA_E_SPEC (another kind of slot), ARENA_E_NOMEM.
 *
 * Any thread.
 */
ARENA_FN(arena_bind,
	 (struct arena *a, const char *slot, const struct arena_spec *spec, void *ptr),
	 (a, slot, spec, ptr))

/**
 * @brief **arena_unbind()** takes the memory of a bound slot away, or the object of an object slot;
 * the slot stays known, and is missing until something is bound, or made, again.
 * @param a the arena. @param slot its name.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID, ARENA_E_UNKNOWN, ARENA_E_SPEC (a slot that the arena
 * owns).
 *
 * Any thread.
 */
ARENA_FN(arena_unbind, (struct arena *a, const char *slot), (a, slot))

/**
 * @brief **arena_object()** gets an object that must keep its identity; the first call makes it.
 *
 * Every range that the factory allocates on the calling thread is watched as part of the object:
 * if it is freed and allocated again inside the object, that is a finding although the handle
 * stays.
 *
 * @param a the arena. @param slot its name.
 * @param type what it is ("flashinfer.BatchDecodeWrapper"); must be equal at every call.
 * @param make called if the slot has no object. @param ctx for it.
 * @param object out: the handle; it stays the caller's, and is never freed by the library.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID, ARENA_E_SPEC (another kind or type), ARENA_E_NOMEM,
 * ARENA_E_BUSY (factories wait for each other), or, negative or not, what the factory returned.
 *
 * Any thread; threads that race for one slot get the same object, and make it once.
 */
ARENA_FN(arena_object,
	 (struct arena *a, const char *slot, const char *type, arena_factory_fn make, void *ctx,
	  void **object),
	 (a, slot, type, make, ctx, object))

/* ---- tags ---- */

/**
 * @brief **arena_tag_push()** routes device allocations of the calling thread into slots.
 *
 * Until the matching pop, its allocations, also those of third-party code and of the runtime API,
 * are served from the slots "name#0", "name#1", ... of the current arena in call order: the first
 * pass makes the slots, each later one is measured against it. The free of what was served is
 * absorbed, by whatever thread and whenever it comes.
 *
 * Under ARENA_SCRATCH an allocation gets the live storage, also while an older object still uses
 * it: a rebuilt object gets its old workspaces back. Virtual memory (reserve, create, map) is
 * handed out again once its old owner let go of it. Under ARENA_VALUE an allocation inside a reload
 * gets fresh, zeroed memory, which the layer's commit publishes into the slot and which stays the
 * caller's until he frees it; write it before the stream of the commit. Outside: the live storage.
 *
 * A call that does not fit - one too many, of another size, of a value on the other side of a begin
 * or end than its pass - goes to the driver and is a finding (tag-sequence), as is a pass that ends
 * early. Until the next snapshot or begin, and after a reload that failed, a longer pass extends
 * the sequence. Never served: managed memory, streams that capture, values while a reload ends.
 * Served memory is part of a larger allocation, which cuMemGetAddressRange() and IPC handles show.
 *
 * @param name of the tag; one name is one sequence of its arena.
 * @param kind ARENA_SCRATCH or ARENA_VALUE.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID, ARENA_E_BUSY (no current arena, too deep, pushed in
 * whatever thread that lives, or a value while its layer commits), ARENA_E_SPEC (it was of the
 * other kind), ARENA_E_NOMEM.
 *
 * Any thread, for itself. Tags nest; the innermost counts.
 */
ARENA_FN(arena_tag_push, (const char *name, enum arena_kind kind), (name, kind))

/**
 * @brief **arena_tag_pop()** ends the innermost tag of the calling thread.
 * @return 0, ARENA_E_ABSENT, ARENA_E_BUSY (none is pushed).
 *
 * Any thread, for itself.
 */
ARENA_FN(arena_tag_pop, (void), ())

/* ---- reloads ---- */

/**
 * @brief **arena_reload_begin()** opens a reload and freezes the identity of every slot.
 * @param scope what it covers; NULL: everything.
 * @param id out: number of the reload, never used twice in a process.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID, ARENA_E_NOMEM, ARENA_E_BUSY (one is open, it is named
 * in the message).
 *
 * Any thread; there is one reload at a time in a process.
 */
ARENA_FN(arena_reload_begin, (const struct arena_scope *scope, uint64_t *id), (scope, id))

/**
 * @brief **arena_receive()** notes that a part of a source has arrived.
 *
 * The receipt belongs to the calling thread's current arena, if any. Receipts are compared with the
 * manifest, projected onto the scope, when the layer commits and at the end; one that is outside is
 * taken down and is a finding.
 *
 * @param key of the source, as the checkpoint names it.
 * @param part which part of it, 0 if it comes in one. @param bytes how much arrived.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID, ARENA_E_BUSY (no reload is open), ARENA_E_NOMEM.
 *
 * Any thread.
 */
ARENA_FN(arena_receive, (const char *key, uint64_t part, uint64_t bytes), (key, part, bytes))

/**
 * @brief **arena_layer_commit()** verifies a layer and publishes its shadows, all or nothing.
 *
 * Identities and receipts are checked first; a finding refuses the layer: its shadows are dropped,
 * live values stay old, but for those put directly, and before the layer can be committed all of it
 * must be put again. The publication comes after replays in flight and before the next.
 *
 * @param a the layer. @param stream of the publication; it waits for the streams of the puts.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID, ARENA_E_SCOPE, ARENA_E_REFUSED; with nothing changed
 * ARENA_E_BUSY (no reload, another commit of the layer, a value tag of it is open, or a stream
 * captures), ARENA_E_NOMEM, ARENA_E_DEVICE, ARENA_E_SPEC (slots on two devices); or ARENA_E_UNSAFE.
 *
 * Any thread; two threads may commit different layers. Needs a CUDA context.
 */
ARENA_FN(arena_layer_commit, (struct arena *a, void *stream), (a, stream))

/**
 * @brief **arena_reload_end()** verifies model-wide, flushes dependent caches, writes the report
 * line, and says whether the process may serve.
 *
 * Under ARENA_GATE=strict a verdict of fail is ARENA_E_REFUSED, and so is unproven unless
 * ARENA_UNPROVEN=pass; a pass that leaves the process unsafe, because the reload was not full, is
 * ARENA_E_UNSAFE. Under warn the call returns 0; arena(3), GATE, has the rest. The reload is closed
 * in each of these cases.
 *
 * @param id of the open reload.
 * @param json out: the report line of the reload, also when it is refused; NULL on other errors.
 * @return 0, ARENA_E_REFUSED, ARENA_E_UNSAFE; and, with the reload left as it was: ARENA_E_ABSENT,
 * ARENA_E_UNKNOWN (another reload is open), ARENA_E_BUSY (none is, or it is being closed).
 *
 * Any thread.
 */
ARENA_FN(arena_reload_end, (uint64_t id, char **json), (id, json))

/**
 * @brief **arena_reload_abort()** ends a reload whose body failed.
 *
 * The same checks run, as a diagnosis; shadows are dropped, no cache is flushed. The process is
 * unsafe until a later full reload passes, and all values of the layers which this one had reached
 * are put by then (what is bound: bound again, or received). The caller's own error is kept.
 *
 * @param id of the open reload. @param why the caller's error in words, for the report; NULL: not
 * told.
 * @param json out: the report line of the reload.
 * @return 0; ARENA_E_ABSENT, ARENA_E_UNKNOWN, ARENA_E_BUSY as arena_reload_end().
 *
 * Any thread. Under ARENA_GATE=abort the process ends here.
 */
ARENA_FN(arena_reload_abort, (uint64_t id, const char *why, char **json), (id, why, json))

/* ---- looking ---- */

/**
 * @brief **arena_snapshot()** freezes the identity of every slot of every arena.
 * @param out the snapshot, the caller's; freed with arena_snapshot_free().
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID, ARENA_E_NOMEM.
 *
 * Any thread; does not need a reload.
 */
ARENA_FN(arena_snapshot, (struct arena_snapshot **out), (out))

/**
 * @brief **arena_verify()** compares all slots with a snapshot.
 * @param s the snapshot; stays as it is. @param json out: the findings, a "verify" line.
 * @return 0: no error among them; ARENA_E_REFUSED: there are errors (whatever the gate says: this
 * is a question, not an act); ARENA_E_ABSENT, ARENA_E_INVALID, ARENA_E_NOMEM.
 *
 * Any thread; one snapshot may be compared by many at a time.
 */
ARENA_FN(arena_verify, (const struct arena_snapshot *s, char **json), (s, json))

/**
 * @brief **arena_snapshot_free()** frees a snapshot.
 * @param s what arena_snapshot() gave; NULL: nothing happens.
 * @return 0, or ARENA_E_ABSENT.
 *
 * Any thread, when no other uses the snapshot.
 */
ARENA_FN(arena_snapshot_free, (struct arena_snapshot *s), (s))

/* ---- caches that depend on the weights ---- */

/**
 * @brief **arena_cache_register()** announces a cache (prefix KV, encoder, mm) that a reload makes
 * stale. Registering a name again replaces its callback.
 * @param name of the cache.
 * @param flush called at the end of a reload; NULL: flushed from outside, acknowledged by
 * arena_cache_flushed(). @param ctx for it; must live as long as the process.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID, ARENA_E_NOMEM.
 *
 * Any thread.
 */
ARENA_FN(arena_cache_register, (const char *name, arena_flush_fn flush, void *ctx),
	 (name, flush, ctx))

/**
 * @brief **arena_cache_flushed()** acknowledges, for the open reload, that a cache without a
 * callback holds nothing of the old weights. Else its end has a stale-cache finding.
 * @param name of the cache.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID, ARENA_E_UNKNOWN.
 *
 * Any thread.
 */
ARENA_FN(arena_cache_flushed, (const char *name), (name))

/* ---- what must arrive ---- */

/**
 * @brief **arena_manifest_load()** reads what must arrive from a JSON file (arena(3), MANIFEST) in
 * place of learning it from the first full load. Replaces the manifest that was there.
 * @param path of the file.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID (the message has file, place and reason), ARENA_E_BUSY
 * (a reload is open), ARENA_E_NOMEM.
 *
 * Any thread. ARENA_MANIFEST=FILE does the same at the start of the process.
 */
ARENA_FN(arena_manifest_load, (const char *path), (path))

#ifdef __cplusplus
#pragma GCC diagnostic pop
}
#endif

#endif
