/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: what programs ask about them, versions, error texts. Under sim_lock. */
#include "tests/sim/sim.h"

#include <stdio.h>
#include <string.h>

static const uint64_t total_bytes = 80ull << 30;

static bool bad(CUdevice dev)
{
	return dev < 0 || dev >= DEVICES;
}

CUresult do_cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = (int)sim_version;
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetCount(int *n)
{
	*n = DEVICES;
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGet(CUdevice *out, int ordinal)
{
	if (bad(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*out = ordinal;
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetName(char *name, int size, CUdevice dev)
{
	if (bad(dev) || size <= 0)
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(name, size, "Simulated H200");
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	if (bad(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	memcpy(uuid->bytes, "simulated GPU 00", 16);
	uuid->bytes[15] = (char)('0' + dev);
	return CUDA_SUCCESS;
}
SAME_ABI(do_cuDeviceGetUuid, do_cuDeviceGetUuid_v2);

CUresult do_cuDeviceGetPCIBusId(char *id, int size, CUdevice dev)
{
	if (bad(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(id, size, "0000:%02X:00.0", dev + 1);
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	if (bad(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = total_bytes;
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
	*major = 9;
	*minor = 0;
	return bad(dev) ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult do_cuDeviceGetByPCIBusId(CUdevice *dev, const char *id)
{
	unsigned bus;

	if (sscanf(id, "%*x:%x", &bus) != 1 || bad((CUdevice)bus - 1))
		return CUDA_ERROR_INVALID_DEVICE;
	*dev = (CUdevice)bus - 1;
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice dev,
				    CUdevice peer)
{
	*value = attribute != CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
	return bad(dev) || bad(peer) ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult do_cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
	*can = dev != peer;
	return bad(dev) || bad(peer) ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

/* What an H200 answers; an attribute that is not listed is a feature bit: there. */
static const struct {
	CUdevice_attribute attribute;
	int value;
} attributes[] = {
	{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64 },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647 },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535 },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535 },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152 },
	{ CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32 },
	{ CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000 },
	{ CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512 },
	{ CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132 },
	{ CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0 },
	{ CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, 0 },
	{ CU_DEVICE_ATTRIBUTE_INTEGRATED, 0 },
	{ CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0 },
	{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9 },
	{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0 },
	{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048 },
	{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448 },
};

CUresult do_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
	if (bad(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*value = 1;
	for (size_t i = 0; i < ARRAY_SIZE(attributes); i++)
		if (attributes[i].attribute == attribute)
			*value = attributes[i].value;
	return CUDA_SUCCESS;
}

CUresult do_cuMemGetInfo_v2(size_t *unused, size_t *total)
{
	uint64_t used = 0;

	for (struct range *r = range_next(0); r; r = range_next(r->base + r->size))
		used += r->host == (char *)(uintptr_t)r->base ? 0 : r->size;
	*unused = total_bytes - MIN(used, total_bytes);
	*total = total_bytes;
	return CUDA_SUCCESS;
}

static const struct {
	CUresult code;
	const char *name, *text;
} errors[] = {
#define ERROR(code, text) { code, #code, text }
	ERROR(CUDA_SUCCESS, "no error"),
	ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
	ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
	ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
	ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
	ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
	ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
	ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
	ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
	ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
	ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
	ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
	ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
	ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
	ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
	ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the memory is registered"),
	ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer is not a registered range"),
	ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
	ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
	      "operation not permitted when stream is capturing"),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
	      "operation failed due to a previous error during capture"),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE,
	      "operation would result in a merge of separate captures"),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
	      "capture was not ended in the same stream as it began"),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency crosses the capture boundary"),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
	      "operation would make the legacy stream depend on a capturing blocking stream"),
	ERROR(CUDA_ERROR_CAPTURED_EVENT,
	      "operation not permitted on an event last recorded in a capturing stream"),
	ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
	      "attempt to end a thread-local capture from another thread"),
	ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the graph update was not performed"),
	ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
#undef ERROR
};

CUresult do_cuGetErrorName(CUresult error, const char **text)
{
	*text = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++)
		if (errors[i].code == error)
			*text = errors[i].name;
	return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuGetErrorString(CUresult error, const char **text)
{
	*text = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++)
		if (errors[i].code == error)
			*text = errors[i].text;
	return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The runtime's private tables are never faked (pitfall 33): the runtime then gives up politely. */
CUresult do_cuGetExportTable(const void **table, const CUuuid *id)
{
	*table = NULL;
	return CUDA_ERROR_NOT_FOUND;
}

CUresult do_cuProfilerStart(void)
{
	return CUDA_SUCCESS;
}
SAME_ABI(do_cuProfilerStop, do_cuProfilerStart);
