/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of NVTX that drive reloads, layers and tags (arena-shim(7), section NVTX). nvtx.c is the
 * grammar, nvtx_ranges.c knows which are open, nvtx_inject.c gets them. Any thread; errors are said
 * in the log, once a text and problem.
 */
#ifndef SHIM_NVTX_H
#define SHIM_NVTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

enum nvtx_kind { NVTX_NOTHING, NVTX_RELOAD, NVTX_LAYER, NVTX_TAG, NVTX_CAPTURE };

/* What a range opened, to be closed at its end. */
struct nvtx_open {
	uint8_t kind; /* enum nvtx_kind */
	uint64_t reload;
	uint64_t serial; /* of a layer or tag, in its thread */
	struct arena *layer;
};

/* @brief Does a range of this name mean us? NULL: no. */
bool nvtx_ours(const char *text);
/* Room for a text that is longer than what nvtx_begin() takes, so that it says so. */
#define NVTX_TEXT_BYTES 8200
/*
 * @brief A wide text as UTF-8, if it means us. What is no character becomes U+FFFD, of what does
 * not fit the end is missing.
 * @return @buf, or NULL: it does not mean us.
 */
const char *nvtx_narrow(const wchar_t *wide, char *buf, size_t buf_bytes);
/* @brief Begin what @text says. @return kind NVTX_NOTHING if that failed. */
struct nvtx_open nvtx_begin(const char *text);
void nvtx_end(const struct nvtx_open *open);
/* @brief Say @problem of the range @text, unless that was said. */
void nvtx_say(const char *text, const char *problem);

/* ---- which are open ---- */

/* @brief A range was pushed; @text may be NULL. @return its depth, from 0, or NVTX_NOT_TRACKED. */
int nvtx_pushed(const void *domain, const char *text);
/* @brief The newest range of @domain was popped. @return as nvtx_pushed(). */
int nvtx_popped(const void *domain);
/* @param id what the tool gave; 0: there is no tool. @return the id for the program. */
uint64_t nvtx_started(uint64_t id, const char *text);
void nvtx_ended(uint64_t id);
/* @brief The text that was registered as @handle, if it is ours; else NULL. */
const char *nvtx_string(const void *handle);
void nvtx_keep_string(const void *handle, const char *text);

void nvtx_forget_ranges(void);
/* @brief In a forked child: locks that another thread held are free. */
void nvtx_forget(void);

#endif
