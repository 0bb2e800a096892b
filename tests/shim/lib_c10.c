/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two libraries of PyTorch that matter here, as small as can be. Built as libc10.so (-DC10):
 * the reporting function, which notes what it was told. Built as libc10_cuda.so: an allocator that
 * reports to it by the name that REPORT says, which may be one that nobody knows yet.
 */
#include <stddef.h>
#include <stdint.h>

struct c10_device {
	int8_t type, index;
};

#define NAME "_ZN3c1027reportMemoryUsageToProfilerEPv"
#define DECLARE(function, types)                                                   \
	void function(void *ptr, int64_t bytes, size_t allocated, size_t reserved, \
		      struct c10_device where) __asm__(NAME types)

DECLARE(report_2, "lmmNS_6DeviceE");
DECLARE(report_1, "lllNS_6DeviceE");
DECLARE(report_later, "lmmNS_6DeviceEj");
int64_t c10_told(void);
void c10_cuda_tell(void *ptr, int64_t bytes);

#ifdef C10
static int64_t told;

int64_t c10_told(void)
{
	return told;
}

#define DEFINE(function)                                                           \
	void function(void *ptr, int64_t bytes, size_t allocated, size_t reserved, \
		      struct c10_device where)                                     \
	{                                                                          \
		if (allocated == 11 && reserved == 22 && where.type == 1)          \
			told += bytes;                                             \
	}
DEFINE(report_2)
DEFINE(report_1)
DEFINE(report_later)
#else
void c10_cuda_tell(void *ptr, int64_t bytes)
{
	REPORT(ptr, bytes, 11, 22, (struct c10_device){ 1, 0 });
}
#endif
