/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of hooks.def as data, each checked against the toolkit's own typedef of its ABI: a
 * wrong parameter list, version or suffix does not compile. Constant; any thread.
 */
#include "shim/hooks.h"

#include <cudaTypedefs.h>

#define HOOK(base, suffix, since, stream, family, kind, doc, params, args)                    \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&base##suffix##stream),        \
						    PFN_##base##_v##since##stream),           \
		       #base #suffix #stream " is not what cudaTypedefs.h says");             \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&base##suffix##stream),        \
						    CUresult(*) params),                      \
		       #base #suffix #stream " is not what its row says");
#include "shim/hooks.def"
#undef HOOK

#define HOOK(base_, suffix_, since_, stream_, family_, kind_, doc_, params, args)             \
	[HOOK_##base_##suffix_##stream_] = {                                                  \
		.symbol = #base_ #suffix_ #stream_,                                           \
		.base = #base_,                                                               \
		.doc = doc_,                                                                  \
		.since = since_,                                                              \
		.per_thread = sizeof(#stream_) > 1,                                           \
		.family = FAMILY_##family_,                                                   \
		.kind = KIND_##kind_,                                                         \
		.wrapper = (void *)base_##suffix_##stream_,                                   \
		.seen = &real.seen_##base_##suffix_##stream_,                                 \
	},
const struct hook_row hook_rows[HOOK_COUNT] = {
#include "shim/hooks.def"
};
#undef HOOK
