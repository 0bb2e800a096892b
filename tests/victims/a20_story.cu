/* SPDX-License-Identifier: Apache-2.0 */
/* A20 over the runtime API; built twice, with the static and with the shared runtime. It runs on
 * a real driver only: the runtime wants private tables that the simulation does not have. */
#include <cstdio>
#include <cuda_runtime.h>

#define CK(x)                                                                                 \
	do {                                                                                  \
		cudaError_t r_ = (x);                                                         \
		if (r_ != cudaSuccess) {                                                      \
			fprintf(stderr, "%s: %s\n", #x, cudaGetErrorName(r_));                \
			return 1;                                                             \
		}                                                                             \
	} while (0)

static const size_t story_bytes = 48u << 20;

__global__ void k_acc(int *d, const int *s, size_t n)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x)
		d[i] += s[i];
}

int main()
{
	cudaStream_t s;
	cudaGraph_t g;
	cudaGraphExec_t e;
	int *out, *p;

	CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CK(cudaMalloc(&out, 4u << 20));
	CK(cudaMalloc(&p, story_bytes));
	CK(cudaMemset(p, 0, 4096));
	k_acc<<<4, 256, 0, s>>>(out, p, 1024);	/* loads the kernel before the capture */
	CK(cudaStreamSynchronize(s));
	CK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
	k_acc<<<4, 256, 0, s>>>(out, p, 1024);
	CK(cudaStreamEndCapture(s, &g));
	CK(cudaGraphInstantiate(&e, g, 0));
	CK(cudaGraphDestroy(g));
	CK(cudaGraphLaunch(e, s));
	CK(cudaStreamSynchronize(s));
	CK(cudaFree(p));
	printf("launch E %d\n", (int)cudaGraphLaunch(e, s));
	CK(cudaStreamSynchronize(s));
	return 0;
}
