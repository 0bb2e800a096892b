/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel launches in all forms, also those with parameters set beforehand. Under sim_lock. */
#include "tests/sim/sim.h"

#include <string.h>

CUresult do_cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
			   unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
			   CUstream s, void **params, void **extra)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_KERNEL };

	p.kernel = (CUDA_KERNEL_NODE_PARAMS_v3){
		.func = f, .gridDimX = gx, .gridDimY = gy, .gridDimZ = gz, .blockDimX = bx,
		.blockDimY = by, .blockDimZ = bz, .sharedMemBytes = shared,
		.kernelParams = params, .extra = extra,
	};
	return stream_launch(s, &p);
}

CUresult do_cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	return do_cuLaunchKernel(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX,
				 c->blockDimY, c->blockDimZ, c->sharedMemBytes, c->hStream, params,
				 extra);
}

CUresult do_cuLaunchCooperativeKernel(CUfunction f, unsigned int gx, unsigned int gy,
				      unsigned int gz, unsigned int bx, unsigned int by,
				      unsigned int bz, unsigned int shared, CUstream s,
				      void **params)
{
	return do_cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, params, NULL);
}

CUresult do_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int n,
						 unsigned int flags)
{
	CUresult rc = n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

	for (unsigned i = 0; i < n && !rc; i++)
		rc = do_cuLaunchKernel(list[i].function, list[i].gridDimX, list[i].gridDimY,
				       list[i].gridDimZ, list[i].blockDimX, list[i].blockDimY,
				       list[i].blockDimZ, list[i].sharedMemBytes, list[i].hStream,
				       list[i].kernelParams, NULL);
	return rc;
}

/* ---- legacy: the function holds block shape and parameters ---- */

CUresult do_cuFuncSetBlockShape(CUfunction h, int x, int y, int z)
{
	struct function *f = obj_get(h, OBJ_FUNCTION);

	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	f->block[0] = x;
	f->block[1] = y;
	f->block[2] = z;
	return CUDA_SUCCESS;
}

CUresult do_cuFuncSetSharedSize(CUfunction h, unsigned int bytes)
{
	return obj_get(h, OBJ_FUNCTION) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuParamSetSize(CUfunction h, unsigned int bytes)
{
	struct function *f = obj_get(h, OBJ_FUNCTION);

	if (!f || bytes > sizeof(f->args))
		return f ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	f->args_size = bytes;
	return CUDA_SUCCESS;
}

CUresult do_cuParamSetv(CUfunction h, int offset, void *from, unsigned int n)
{
	struct function *f = obj_get(h, OBJ_FUNCTION);

	if (!f || offset < 0 || (size_t)offset + n > sizeof(f->args))
		return f ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	memcpy(f->args + offset, from, n);
	return CUDA_SUCCESS;
}

CUresult do_cuParamSeti(CUfunction h, int offset, unsigned int value)
{
	return do_cuParamSetv(h, offset, &value, sizeof(value));
}

CUresult do_cuParamSetf(CUfunction h, int offset, float value)
{
	return do_cuParamSetv(h, offset, &value, sizeof(value));
}

CUresult do_cuLaunchGridAsync(CUfunction h, int width, int height, CUstream s)
{
	struct function *f = obj_get(h, OBJ_FUNCTION);
	void *extra[5];

	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
	extra[1] = f->args;
	extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
	extra[3] = &f->args_size;
	extra[4] = CU_LAUNCH_PARAM_END;
	return do_cuLaunchKernel(h, (unsigned)width, (unsigned)height, 1, (unsigned)f->block[0],
				 (unsigned)f->block[1], (unsigned)f->block[2], 0, s, NULL, extra);
}

CUresult do_cuLaunchGrid(CUfunction f, int width, int height)
{
	return do_cuLaunchGridAsync(f, width, height, NULL);
}

CUresult do_cuLaunch(CUfunction f)
{
	return do_cuLaunchGridAsync(f, 1, 1, NULL);
}
