/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Derivations that were declared for the slots of an arena, and their run in the middle of a
 * publication: after everything that is staged was taken, before any of it is published. What is
 * computed joins what is published; what is checked, and is wrong, refuses the layer.
 *
 * What a derivation does is device.derive's business: here it is a name, parameters, and which of
 * them are addresses of which slots.
 *
 * Threads: any. Declared derivations are guarded by the registry lock; a run belongs to the thread
 * that commits the layer, and asks the device without the lock.
 */
#ifndef ARENA_DERIVED_H
#define ARENA_DERIVED_H

#include "arena/derive.h"
#include "arena/registry.h"
#include "arena/snapshot.h"

#define DERIVED_VALUES_MAX 12
#define DERIVED_ARGS_BYTES 96

/* One parameter that is an address. */
struct derived_value {
	struct slot *slot; /* NULL: a result that nobody wants */
	uint64_t bytes;
	uint16_t offset; /* of the parameter */
	bool result;

	/* Of a checked result: its newest right value had this fingerprint; and was this, where it
	 * may be overwritten in place and is small: on the host, NULL: not kept. */
	bool known;
	uint64_t fingerprint;
	void *kept;

	/* Of one run: the newest value, where it is staged or else the live one; the live one;
	 * and where the result of the derivation went. */
	uint64_t given, live, derived;
};

struct derivation {
	const char *name; /* of the kernel; constant */
	enum arena_derive_mode mode;
	uint32_t count;
	int32_t device; /* of its slots */
	bool skipped; /* in this run: a value of it is nowhere */
	struct derived_value values[DERIVED_VALUES_MAX];
	struct derivation *origin; /* of a run's copy; stays while the layer commits */
	_Alignas(8) uint8_t args[DERIVED_ARGS_BYTES]; /* without the addresses */
	struct derivation *next;
};

struct batch;

/* @brief From now on @d holds for its results, in place of what was declared for one of them; with
 * ARENA_DERIVE_OFF nothing does. Copied. Registry lock held.
 * @return 0, ARENA_E_NOMEM, ARENA_E_BUSY (the layer commits), with a message. */
int derived_declare(struct arena *a, const struct derivation *d);

/* @brief Is there one in @a that the open reload concerns? No lock held. */
bool derived_due(const struct arena *a);
/*
 * @brief Run them on @stream, behind which everything is that writes a source. Waits if something
 * is compared.
 * @return 0; ARENA_E_REFUSED: @out has an error more; or ARENA_E_NOMEM, _DEVICE, _BUSY, _SPEC
 * with a message. Then nothing may be published.
 */
int derived_run(struct batch *b, uint64_t stream, struct slot_findings *out);

#endif
