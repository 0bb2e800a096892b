/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of the library as one array. Constant; any thread. */
#include "entries.h"

#define KIND_PASS false
#define KIND_BODY true

const struct entry entries[] = {
#define HOOK(base, suffix, since, stream, family, kind, doc, params, args) \
	{ #base #suffix #stream, #family, doc, since, KIND_##kind },
#include "shim/hooks.def"
#undef HOOK
#define UNHOOKED(symbol, reason) { #symbol, NULL, reason, 0, false },
#include "shim/unhooked.def"
#undef UNHOOKED
};
const size_t entry_count = sizeof(entries) / sizeof(entries[0]);
