/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A conservative scan of what a graph's parameters point to: is there a word that points on? A
 * kernel that reads through a table of pointers refers to memory that no parameter names. What is
 * found is a suspect (suspect.h), never a ref.
 *
 * Looked at are SCAN_SPAN_BYTES from each address that a kernel parameter holds exactly, in device
 * memory only, once each; no more than SCAN_EXEC_BYTES and SCAN_HITS_MAX words of one exec.
 *
 * Threads: any, without locks. Slow: the device is waited for.
 */
#ifndef ARENA_SCAN_H
#define ARENA_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#define SCAN_SPAN_BYTES (64u << 10)
#define SCAN_EXEC_BYTES (16u << 20)
#define SCAN_SPANS_MAX	4096u
#define SCAN_RANGES_MAX 4096u
#define SCAN_HITS_MAX	4096u

extern bool scan_wanted; /* ARENA_SCAN; set once at start */

struct scan_result {
	uint32_t kept; /* suspects */
	bool skipped;  /* nothing was looked at, though there was something */
	bool cut;      /* not everything was looked at, or kept */
};
/* @brief Scan behind the parameters of the exec with this handle, which was just made, or changed
 * as a whole. */
struct scan_result scan_exec(uint64_t handle);

#endif
