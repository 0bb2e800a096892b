/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameter bytes of a kernel -> words that may be addresses.
 *
 * The layout of a kernel's parameters (offset and size of each, never the type) comes from the
 * driver once per handle. Only words of 8 bytes at 8-byte offsets are looked at, and only values
 * that could be an address at all become candidates; whether memory lived there is for the core.
 *
 * Threads: any function from any thread; what was cached is found without a lock. The functions
 * that ask the driver are called with shim_inside raised.
 */
#ifndef SHIM_PARAMS_H
#define SHIM_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena/exec.h"

/* The parameter space of a kernel: 32,764 bytes since CUDA 12.1 on sm_70, 4 KiB before. */
#define PARAMS_BYTES_MAX 32768
#define PARAMS_WORDS_MAX (PARAMS_BYTES_MAX / 8)
/* Kernels with more parameters than this count as unsized. */
#define PARAMS_COUNT_MAX 1024

struct param {
	uint16_t offset, size_bytes;
};

/* Constant once published; never freed. */
struct layout {
	uint32_t name; /* interned kernel name */
	uint16_t count;
	bool sized; /* false: the driver does not tell; count is 0 */
	struct param params[];
};

/* What was read. About 64 KiB: on nobody's stack. */
struct params {
	uint32_t name;
	uint32_t count;
	uint64_t hash;	/* of all that was read, 0: the words say it all */
	uint16_t blind;	/* sides of a copy that are arrays */
	bool forgotten; /* may hold a TMA descriptor that is not remembered any more */
	bool cut;	/* touches more pieces of memory than are followed */
	struct word words[PARAMS_WORDS_MAX];
};

enum params_status {
	PARAMS_READ,
	PARAMS_RAW,	/* a packed buffer without a layout: every aligned word, suspect */
	PARAMS_UNSIZED, /* nothing read: sizes are not known, and guessing would over-read */
};

/*
 * @brief Read the parameters of a call that the driver accepted (so its pointers are good).
 * @param function CUfunction or CUkernel, in either's clothes; 0: nothing is read.
 * @param kernel_params, extra as for cuLaunchKernel; either or both may be NULL.
 */
enum params_status params_read(struct params *out, uint64_t function, void *const *kernel_params,
			       void *const *extra);

/* @brief Forget every layout: a module, library or context is about to go away, and its handles may
 * come back with another meaning. Called before the driver is. */
void params_forget_all(void);

/* ---- the scanner, without the driver ---- */

/* @brief Start over with @layout's name. */
void params_reset(struct params *out, uint32_t name);
/* @brief Into the hash. */
void params_mix(struct params *out, uint64_t value);
/* @brief One parameter of @size_bytes at @bytes, which lies at @offset of the parameter space. */
void params_scan_one(struct params *out, uint16_t index, const void *bytes, struct param at);
/* @brief A packed buffer, split by @layout; parameters beyond its end are left out. */
void params_scan_packed(struct params *out, const struct layout *layout, const void *buffer,
			size_t size_bytes);
/* @brief A packed buffer that nobody can split. */
void params_scan_raw(struct params *out, const void *buffer, size_t size_bytes);

#endif
