/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages to stderr: "arena[pid/tid]: warn: subject value, setting: remedy". At most
 * LOG_LIMIT a site, the last one says that further ones are not shown. Never stdout, never from a
 * hot path. errno is kept. Works at any moment, also before options_init().
 */
#ifndef SHIM_LOG_H
#define SHIM_LOG_H

#include "arena/atomics.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

#define LOG_LIMIT 8

void log_write(enum log_level level, counter_t *site, const char *format, ...)
	__attribute__((format(printf, 3, 4), cold));

#define log_at(level, ...)                                                                    \
	do {                                                                                  \
		static counter_t site_;                                                       \
		log_write((level), &site_, __VA_ARGS__);                                      \
	} while (0)
#define log_error(...)	log_at(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)	log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...)	log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...)	log_at(LOG_DEBUG, __VA_ARGS__)

#endif
