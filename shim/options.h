/* SPDX-License-Identifier: Apache-2.0 */
/* Options from the environment (options.def). Read once by options_init(), then constant. */
#ifndef SHIM_OPTIONS_H
#define SHIM_OPTIONS_H

#include <stdint.h>

enum option_id {
#define OPTION_ENUM(name, def, words, doc) OPTION_##name,
#define OPTION_UINT(name, def, unit, min, max, doc) OPTION_##name,
#define OPTION_TEXT(name, def, doc) OPTION_##name,
#include "shim/options.def"
#undef OPTION_ENUM
#undef OPTION_UINT
#undef OPTION_TEXT
	OPTION_COUNT
};

enum gate { GATE_OFF, GATE_WARN, GATE_STRICT, GATE_ABORT };
enum stacks { STACKS_OFF, STACKS_FINDINGS, STACKS_ALL };
enum unproven { UNPROVEN_PASS, UNPROVEN_FAIL };

/*
 * @brief Read the environment. Unknown ARENA_ names and bad values are said once, with the
 * nearest valid one, and ignored. @param env as environ.
 */
void options_init(char *const *env);
uint64_t option_value(enum option_id id);	/* enum and uint options */
const char *option_text(enum option_id id);	/* text options */

#endif
