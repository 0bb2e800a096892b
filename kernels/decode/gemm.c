/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twins of gemm.cu. Sums are f64, so that only the kernel's error counts. Threads: any;
 * pure.
 */
#include "kernels/decode/decode.h"
#include "kernels/number.h"

/* Numbers of @w lie @stride apart. */
static double dot(const uint16_t *x, const uint16_t *w, uint32_t k, uint64_t stride)
{
	double sum = 0;

	for (uint32_t i = 0; i < k; i++)
		sum += (double)number_from_bf16(x[i]) * number_from_bf16(w[i * stride]);
	return sum;
}

void decode_gemm_twin(const void *args)
{
	const struct decode_gemm_args *a = args;
	const uint16_t *bias = DERIVE_IN(uint16_t, a->bias);

	for (uint64_t t = 0; t < a->tokens; t++)
		for (uint64_t n = 0; n < a->n; n++) {
			uint64_t at = t * a->n + n;
			double sum = dot(DERIVE_IN(uint16_t, a->x) + t * a->x_stride,
					 DERIVE_IN(uint16_t, a->w) + n * a->k, a->k, 1);

			if (bias != NULL)
				sum += number_from_bf16(bias[n]);
			if (a->flags & DECODE_F32)
				DERIVE_OUT(float, a->out)[at] = (float)sum;
			else
				DERIVE_OUT(uint16_t, a->out)[at] = number_to_bf16((float)sum);
		}
}

void decode_bmm_twin(const void *args)
{
	const struct decode_bmm_args *a = args;
	uint16_t *out = DERIVE_OUT(uint16_t, a->out);

	for (uint64_t t = 0; t < a->tokens; t++)
		for (uint64_t h = 0; h < a->heads; h++) {
			const uint16_t *x =
				DERIVE_IN(uint16_t, a->x) + t * a->x_stride + h * a->x_head;
			const uint16_t *w = DERIVE_IN(uint16_t, a->w) + h * a->k * a->n;

			for (uint32_t n = 0; n < a->n; n++)
				*out++ = number_to_bf16((float)dot(x, w + n, a->k, a->n));
		}
}
