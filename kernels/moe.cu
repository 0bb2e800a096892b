/* SPDX-License-Identifier: Apache-2.0 */
/* MoE routing as derivations; see moe.cuh. */
#include "kernels/moe.cuh"

DERIVE_KERNEL arena_moe_align(const int32_t *ids, const int32_t *map, int32_t *sorted,
			      int32_t *blocks, int32_t *total, uint32_t count, uint32_t experts,
			      uint32_t block, uint32_t capacity, int32_t tail)
{
	moe_align(ids, map, sorted, blocks, total, count, experts, block, capacity, tail);
}

DERIVE_KERNEL arena_moe_permute_index(const int32_t *ids, const int32_t *map, int32_t *sorted,
				      int32_t *inverse, int64_t *offsets, uint32_t count,
				      uint32_t experts, uint32_t local)
{
	moe_permute_index(ids, map, sorted, inverse, offsets, count, experts, local);
}

DERIVE_KERNEL arena_moe_permute_rows(const void *x, const int32_t *sorted, const int64_t *offsets,
				     void *out, uint32_t count, uint32_t topk, uint32_t row_bytes,
				     uint32_t local)
{
	moe_permute_rows(x, sorted, offsets, out, count, topk, row_bytes, local);
}

DERIVE_KERNEL arena_moe_unpermute(const uint16_t *rows, const int32_t *inverse,
				  const float *weights, const int64_t *offsets, uint16_t *out,
				  uint32_t tokens, uint32_t topk, uint32_t hidden, uint32_t local,
				  uint32_t type)
{
	moe_unpermute(rows, inverse, weights, offsets, out, tokens, topk, hidden, local, type);
}
