/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: memory of other processes and other APIs: IPC handles and buffers of external memory.
 *
 * Opening one IPC handle again gives the same address; the driver unmaps it at the last close.
 * So opens are counted here, and only the last close is told to the ledger. A buffer of external
 * memory may not be used once its object is destroyed, though its address lives until
 * cuMemFree: it closes with the object.
 *
 * Threads: any; the count is guarded by a mutex that is held across no driver call.
 */
#include <pthread.h>

#include "arena/slab.h"
#include "shim/record.h"

struct ipc_open {
	uint64_t base;
	uint64_t opens;
};

static pthread_mutex_t ipc_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ipc_open *ipc_opens; /* guarded by ipc_lock, as the two below */
static uint32_t ipc_count, ipc_cap;

/* The entry of @base, or NULL. ipc_lock held. */
static struct ipc_open *ipc_find(uint64_t base)
{
	for (uint32_t i = 0; i < ipc_count; i++)
		if (ipc_opens[i].base == base)
			return &ipc_opens[i];
	return NULL;
}

/* Was this the first of several opens? Without memory for the count each open counts as one. */
static bool ipc_count_open(uint64_t base)
{
	struct ipc_open *o;
	bool first = true;

	pthread_mutex_lock(&ipc_lock);
	o = ipc_find(base);
	if (o != NULL) {
		o->opens++;
		first = false;
	} else if (pages_grow(&ipc_opens, &ipc_cap, ipc_count + 1, sizeof(*o)) == 0) {
		ipc_opens[ipc_count++] = (struct ipc_open){ .base = base, .opens = 1 };
	}
	pthread_mutex_unlock(&ipc_lock);
	return first;
}

/* One close of @base begins (@step -1) or was refused (+1). Was, or is, it the last? */
static bool ipc_count_close(uint64_t base, int step)
{
	struct ipc_open *o;
	bool last;

	pthread_mutex_lock(&ipc_lock);
	o = ipc_find(base);
	if (o != NULL)
		o->opens += (uint64_t)(int64_t)step;
	last = o == NULL || o->opens == 0;
	pthread_mutex_unlock(&ipc_lock);
	return last;
}

/* The last close succeeded. */
static void ipc_count_drop(uint64_t base)
{
	struct ipc_open *o;

	pthread_mutex_lock(&ipc_lock);
	o = ipc_find(base);
	if (o != NULL && o->opens == 0)
		*o = ipc_opens[--ipc_count];
	pthread_mutex_unlock(&ipc_lock);
}

static void ipc_opened(CUdeviceptr ptr)
{
	if (ipc_count_open(ptr))
		record_open_imported(ptr);
}

CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	bool on = record_on(cuIpcOpenMemHandle);
	CUresult rc = REAL(cuIpcOpenMemHandle)(pdptr, handle, Flags);

	if (on && rc == CUDA_SUCCESS)
		ipc_opened(*pdptr);
	return rc;
}

CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle,
				       unsigned int Flags)
{
	bool on = record_on(cuIpcOpenMemHandle_v2);
	CUresult rc = REAL(cuIpcOpenMemHandle_v2)(pdptr, handle, Flags);

	if (on && rc == CUDA_SUCCESS)
		ipc_opened(*pdptr);
	return rc;
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	bool on = record_on(cuIpcCloseMemHandle);
	struct range *r = NULL;
	CUresult rc;

	if (on && ipc_count_close(dptr, -1))
		r = record_close(dptr, STACK_SEGMENT);
	rc = REAL(cuIpcCloseMemHandle)(dptr);
	record_closed(r, rc);
	if (on && rc == CUDA_SUCCESS)
		ipc_count_drop(dptr);
	else if (on)
		ipc_count_close(dptr, +1);
	return rc;
}

CUresult CUDAAPI cuExternalMemoryGetMappedBuffer(CUdeviceptr *devPtr, CUexternalMemory extMem,
						 const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc)
{
	bool on = record_on(cuExternalMemoryGetMappedBuffer);
	CUresult rc = REAL(cuExternalMemoryGetMappedBuffer)(devPtr, extMem, bufferDesc);

	if (on && rc == CUDA_SUCCESS)
		record_open(RANGE_IPC, *devPtr, bufferDesc->size, (uint64_t)(uintptr_t)extMem);
	return rc;
}

CUresult CUDAAPI cuDestroyExternalMemory(CUexternalMemory extMem)
{
	bool on = record_on(cuDestroyExternalMemory);
	struct unmap_batch b = { 0 };
	CUresult rc;

	if (on)
		b = record_close_scope(RANGE_IPC, (uint64_t)(uintptr_t)extMem);
	rc = REAL(cuDestroyExternalMemory)(extMem);
	if (on)
		record_closed_scope(&b, rc);
	return rc;
}
