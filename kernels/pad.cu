/* SPDX-License-Identifier: Apache-2.0 */
/* A matrix in a larger one; see pad.c. In the widest unit that rows and addresses allow. */
#include "kernels/derive.cuh"

template <typename T>
static __device__ __forceinline__ void pad(uint64_t in, uint64_t out, uint32_t batch, uint2 shape,
					   uint2 out_shape)
{
	uint32_t width = shape.y / sizeof(T), out_width = out_shape.y / sizeof(T);

	FOR_ROWS (row, (uint64_t)batch * out_shape.x) {
		uint64_t b = row / out_shape.x, r = row % out_shape.x;
		const T *from = (const T *)in + (b * shape.x + r) * width;
		T *to = (T *)out + row * out_width;

		FOR_COLUMNS (c, out_width) {
			T value = {};

			if (r < shape.x && c < width)
				value = from[c];
			to[c] = value;
		}
	}
}

DERIVE_KERNEL arena_pad(uint64_t in, uint64_t out, uint32_t batch, uint32_t rows, uint32_t width,
			uint32_t out_rows, uint32_t out_width)
{
	uint2 shape = make_uint2(rows, width), out_shape = make_uint2(out_rows, out_width);
	uint64_t all = in | out | width | out_width;

	if (all % 16 == 0)
		pad<uint4>(in, out, batch, shape, out_shape);
	else if (all % 4 == 0)
		pad<uint32_t>(in, out, batch, shape, out_shape);
	else
		pad<uint8_t>(in, out, batch, shape, out_shape);
}
