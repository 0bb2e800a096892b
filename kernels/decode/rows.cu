/* SPDX-License-Identifier: Apache-2.0 */
/* What moves, adds or compares rows; see rows.c, the twins. */
#include "kernels/decode/decode.cuh"

template <int W>
static __device__ __forceinline__ void add(const uint16_t *x, const uint16_t *y, uint16_t *out,
					   uint64_t first, uint64_t count)
{
	FOR_EACH (i, count / W) {
		uint64_t at = first + i * W;
		float a[W], b[W];

		load_wide<W>(x + at, a);
		load_wide<W>(y + at, b);
		for (int w = 0; w < W; w++)
			a[w] += b[w];
		store_wide<W>(out + at, a);
	}
}

/* out may be x or y: a number is read and written by one thread. */
DECODE_KERNEL decode_add(const uint16_t *x, const uint16_t *y, uint16_t *out, uint64_t count)
{
	uint64_t eights = 0;

	if (wide((uint64_t)x | (uint64_t)y | (uint64_t)out, 0))
		eights = count / 8 * 8;
	add<8>(x, y, out, 0, eights);
	add<1>(x, y, out, eights, count - eights);
}

/* ---- argmax ---- */

#define NOWHERE 0xffffffff

struct candidate {
	float x;
	uint32_t at;
};

/* NaN is larger than all; of equal ones the lower place. */
static __device__ __forceinline__ bool beats(const candidate &a, const candidate &b)
{
	if (a.at == NOWHERE || b.at == NOWHERE)
		return a.at != NOWHERE;
	if (a.x != a.x || b.x != b.x)
		return a.x != a.x && (b.x == b.x || a.at < b.at);
	return a.x > b.x || (a.x == b.x && a.at < b.at);
}

template <typename F>
static __device__ __forceinline__ candidate best_of(uint32_t n, const F &number)
{
	candidate best = { 0, NOWHERE };

	FOR_COLUMNS (i, n) {
		candidate next = { number(i), i };

		if (beats(next, best))
			best = next;
	}
	for (int lanes = 16; lanes > 0; lanes /= 2) {
		candidate other = { __shfl_xor_sync(0xffffffff, best.x, lanes),
				    __shfl_xor_sync(0xffffffff, best.at, lanes) };

		if (beats(other, best))
			best = other;
	}
	return best;
}

DECODE_KERNEL decode_argmax(const void *logits, int64_t *out, uint32_t tokens, uint32_t n,
			    uint32_t flags)
{
	__shared__ candidate part[WARPS];
	const uint16_t *words = (const uint16_t *)logits;
	const float *numbers = (const float *)logits;

	if (n == 0)
		return;
	FOR_ROWS (t, tokens) {
		candidate best;

		if (flags & DECODE_F32)
			best = best_of(n, [=](uint32_t i) { return numbers[t * n + i]; });
		else
			best = best_of(n, [=](uint32_t i) { return from_bf16(words[t * n + i]); });
		if (LANE == 0)
			part[WARP] = best;
		__syncthreads();
		for (int i = 0; i < WARPS && threadIdx.x == 0; i++)
			if (beats(part[i], best))
				best = part[i];
		if (threadIdx.x == 0)
			out[t] = best.at;
		__syncthreads();
	}
}

/* ---- copies ---- */

template <typename T>
static __device__ __forceinline__ void copy_row(T *out, const T *in, uint32_t count)
{
	FOR_COLUMNS (i, count)
		out[i] = in[i];
}

DECODE_KERNEL decode_copy_rows(const uint8_t *in, uint8_t *out, uint32_t rows, uint32_t row_bytes,
			       uint64_t in_stride, uint64_t out_stride)
{
	bool by_16 = ((uint64_t)in | (uint64_t)out | row_bytes | in_stride | out_stride) % 16 == 0;

	FOR_ROWS (r, rows) {
		const uint8_t *from = in + r * in_stride;
		uint8_t *to = out + r * out_stride;

		if (by_16)
			copy_row((uint4 *)to, (const uint4 *)from, row_bytes / 16);
		else
			copy_row(to, from, row_bytes);
	}
}

template <int W>
static __device__ __forceinline__ void embed(const uint16_t *from, uint16_t *to, uint32_t hidden)
{
	const float zeros[W] = { 0 };

	for (uint32_t c = threadIdx.x * W; c < hidden; c += DECODE_THREADS * W) {
		if (from == NULL)
			store_wide<W>(to + c, zeros);
		else if (W == 8)
			*(uint4 *)(to + c) = *(const uint4 *)(from + c);
		else
			to[c] = from[c];
	}
}

DECODE_KERNEL decode_embedding(const int64_t *ids, const uint16_t *table, uint16_t *out,
			       uint32_t tokens, uint32_t hidden, uint32_t first, uint32_t vocab)
{
	bool fast = wide((uint64_t)table | (uint64_t)out, hidden);

	FOR_ROWS (t, tokens) {
		int64_t id = ids[t] - first;
		bool ours = id >= 0 && id < vocab;
		const uint16_t *from = ours ? table + id * hidden : NULL;

		if (fast)
			embed<8>(from, out + t * hidden, hidden);
		else
			embed<1>(from, out + t * hidden, hidden);
	}
}
