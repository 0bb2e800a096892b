/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver that answers what it is told to, for tests of single wrappers: every entry point counts
 * its calls, sets errno, and returns script.rc; those that hand something out hand out what is
 * written below. No rule of CUDA is simulated (tests/sim does that), so every ABI of a call can be
 * tried alike, also the ones that no real machine offers any more.
 */
#ifndef TESTS_SCRIPT_DRIVER_H
#define TESTS_SCRIPT_DRIVER_H

#include "shim/hooks.h"

struct script {
	CUresult rc;		   /* of everything but what the shim itself asks */
	int set_errno;		   /* 0: left alone */
	uint64_t address;	   /* the next allocation, import, global ... */
	uint64_t size_bytes;	   /* of a global, of an imported range; pitch */
	uint64_t context;	   /* current, and primary of every device */
	int primary_active;	   /* as cuDevicePrimaryCtxGetState tells */
	CUresult state_rc;	   /* of cuDevicePrimaryCtxGetState */
	CUresult extent_rc;	   /* of cuMemGetAddressRange */
	CUresult stream_query;	   /* of cuStreamQuery; CUDA_SUCCESS: script.rc */
	CUresult event_query;	   /* the same of cuEventQuery */
	uint64_t capture_id;	   /* of the capture that every stream takes part in; 0: none */
	CUgraphNodeType node_type; /* of the one node of every graph */
	uint64_t words[2];	   /* of that node: two pointers, or source and destination */
};

/* What is captured into, and the one node of every graph. */
#define SCRIPT_GRAPH ((CUgraph)0x8000)
#define SCRIPT_NODE  ((CUgraphNode)0x9000)

__attribute__((visibility("default"))) extern struct script script;
__attribute__((visibility("default"))) extern unsigned script_calls[HOOK_COUNT];
/* How often the layout of a kernel was asked for. */
__attribute__((visibility("default"))) extern unsigned script_layouts;

#endif
