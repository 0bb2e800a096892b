/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the twin of pad.cu: a matrix in a larger one, the rest zero, each time: memory that is
 * handed out again is not zero. Marlin's padding (marlin_pad()) and the padded copy of B12x.
 * Threads: any; pure.
 */
#include <string.h>

#include "kernels/twins.h"

void arena_pad_twin(const void *args)
{
	const struct arena_pad_args *a = args;
	const char *in = DERIVE_IN(char, a->in);
	char *out = DERIVE_OUT(char, a->out);

	memset(out, 0, (size_t)a->batch * a->out_rows * a->out_width);
	for (uint32_t b = 0; b < a->batch; b++, out += (size_t)a->out_rows * a->out_width)
		for (uint32_t r = 0; r < a->rows; r++, in += a->width)
			memcpy(out + (size_t)r * a->out_width, in, a->width);
}
