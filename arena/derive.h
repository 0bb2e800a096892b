/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public C API, second part: verification by value. arena.h has the conventions.
 *
 * A slot can have the right address and still the wrong value: post-load processing that has
 * converted a parameter once and does nothing the second time; a scale that is multiplied in place,
 * and once more at each reload. A derivation says how slots of a layer follow from others. The
 * commit then compares what the engine put with what the sources give, before anything is
 * published; or computes it itself.
 *
 * Derivations are the library's own kernels, those that engines use. arena(3), DERIVATIONS, has
 * the list: names, parameters, sources, results. Numbers have to be such that the kernel can run:
 * bits 4 or 8, sizes whole tiles, divisors not 0. What sources hold may be anything: an index that
 * is none counts as 0, so that garbage gives a difference and no access outside of a slot. Sources
 * have to have the bytes that their slots say.
 */
#ifndef ARENA_DERIVE_H
#define ARENA_DERIVE_H

#include "arena.h"

#ifdef __cplusplus
extern "C" {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif

/** What a commit does with a derivation. */
enum arena_derive_mode {
	ARENA_DERIVE_CHECK = 0,	/**< compare: a difference refuses the layer */
	ARENA_DERIVE_COMPUTE = 1,	/**< compute and publish: the engine puts nothing */
	ARENA_DERIVE_OFF = 2,		/**< forget the derivation of the results named */
};

/** One parameter of a derivation; what is not given is 0. */
struct arena_derive_arg {
	const char *name;	/**< of the parameter */
	const char *slot;	/**< the slot whose address it is; NULL: it is a number */
	uint64_t value;		/**< the number */
};

/** How slots of one layer follow from others of it. */
struct arena_derivation {
	uint32_t struct_bytes;		/**< sizeof(struct arena_derivation) */
	uint32_t mode;			/**< enum arena_derive_mode */
	const char *name;		/**< of the kernel: "arena_sinks_f32" */
	const struct arena_derive_arg *args;
	uint32_t args_count;
	uint32_t reserved;		/**< 0 */
};
ARENA_SIZED(arena_derivation)
#define ARENA_DERIVATION_INIT ARENA_SIZED_INIT(arena_derivation)

/**
 * @brief **arena_derive()** says how slots of a layer are derived from others of it. Copied; holds
 * for every later reload, until another one is declared for one of its results.
 *
 * It runs when the layer commits, in reloads that put or bound one of its slots, or received a
 * source of the layer. What it reads is what is staged for a slot, else its live value. A result
 * that differs is a stale-value finding, or accumulated, if it is the old value times one of the
 * other values; the layer is refused. The commit waits for the device then: it costs one pass of
 * the derivation and one over the results, and memory for them.
 *
 * @param a the layer.
 * @param d slots exist, with the bytes that the kernel reads or writes: a result exactly as many.
 * Sources and checked results are value or bound slots, computed results are value slots. A result
 * that is given no slot is computed and dropped.
 * @return 0, ARENA_E_ABSENT, ARENA_E_INVALID (no such parameter, or a number that the kernel does
 * not take: the message says what it takes), ARENA_E_UNKNOWN (no such kernel, slot), ARENA_E_SPEC
 * (kind or bytes of a slot), ARENA_E_BUSY (the layer commits), ARENA_E_NOMEM.
 *
 * Any thread.
 */
ARENA_FN(arena_derive, (struct arena *a, const struct arena_derivation *d), (a, d))

#ifdef __cplusplus
#pragma GCC diagnostic pop
}
#endif

#endif
