/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmark and its driver have to agree on. */
#ifndef BENCH_DRIVER_H
#define BENCH_DRIVER_H

#define BENCH_MEMORY	   0x700000000000ull /* first address of the first thread */
#define BENCH_RANGE_BYTES  (2ull << 20)
#define BENCH_RANGES	   4096u	/* that are open */
#define BENCH_SEGMENTS	   256u		/* of them, that nodes point into: a caching allocator */
#define BENCH_THREAD_BYTES (1ull << 36) /* between the memories of two threads */

#define BENCH_PARAMS   6u
#define BENCH_POINTERS 4u
#define BENCH_KERNELS  16u /* distinct functions */

/* A graph handle: its number of nodes, and above it the place of its first node. */
#define BENCH_NODES_BITS	  16
#define BENCH_NODES_MASK	  0xffffu
#define BENCH_SPREAD		  (1ull << 30) /* nodes from here on point into all ranges */
#define BENCH_GRAPH(first, nodes) ((CUgraph)((uint64_t)(first) << BENCH_NODES_BITS | (nodes)))

#endif
