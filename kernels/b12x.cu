/* SPDX-License-Identifier: Apache-2.0 */
/* B12x: see b12x.c, the twins. */
#include "kernels/derive.cuh"

DERIVE_KERNEL arena_b12x_scales(const uint8_t *sf, const float *ws, uint8_t *out, uint32_t experts,
				uint32_t per_expert)
{
	FOR_EACH (i, (uint64_t)experts * per_expert)
		out[i] = to_e4m3(__fmul_rn(from_e4m3(sf[i]), ws[i / per_expert]));
}

DERIVE_KERNEL arena_b12x_input_scale(const float *a2_gscale, float *out, uint32_t experts)
{
	FOR_EACH (e, experts)
		out[e] = a2_gscale ? a2_gscale[e] : 1.0f;
}
