/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options from the environment (options.def). Before options_init() every option has its default;
 * options_init() reads the environment once, then they are constant. Any thread.
 */
#ifndef SHIM_OPTIONS_H
#define SHIM_OPTIONS_H

#include <stddef.h>
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

enum blocks { BLOCKS_OFF, BLOCKS_CUDA, BLOCKS_ALL };
enum gate { GATE_OFF, GATE_WARN, GATE_STRICT, GATE_ABORT };
enum stacks { STACKS_OFF, STACKS_FINDINGS, STACKS_ALL };
enum unproven { UNPROVEN_PASS, UNPROVEN_FAIL };

/* Longest value of a text option, with its NUL. */
#define OPTION_TEXT_BYTES 4096

/*
 * @brief Read the environment. Unknown ARENA_ names and bad values are said once, with the
 * nearest valid one, and ignored. @param env as environ; nothing of it is kept.
 */
void options_init(char *const *env);
uint64_t option_value(enum option_id id);	/* enum and uint options */
const char *option_text(enum option_id id);	/* text options; lives for ever */
/* @brief Name without ARENA_, and the value in effect as the environment would spell it. */
const char *option_name(enum option_id id);
size_t option_print(enum option_id id, char *buf, size_t buf_bytes);

#endif
