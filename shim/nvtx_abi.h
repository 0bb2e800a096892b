/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an NVTX 3 injection has to know of NVTX: numbers and layouts of nvtxDetail/nvtxTypes.h and
 * nvToolsExt.h, which are fixed for version 3. Declared here because not every toolkit has them;
 * tests/shim/nvtx.c compares. Data only.
 */
#ifndef SHIM_NVTX_ABI_H
#define SHIM_NVTX_ABI_H

#include <stddef.h>
#include <stdint.h>

/* nvtxGetExportTable() */
#define NVTX_TABLE_CALLBACKS 1

/* Where the pointers to the functions of an instance of NVTX are, by module and number. */
typedef void (*nvtx_function)(void);
struct nvtx_callbacks {
	size_t struct_bytes;
	int (*get_table)(int module, nvtx_function ***table, unsigned int *size);
};
enum { NVTX_MODULE_CORE = 1, NVTX_MODULE_CORE2 = 5 };

/* module, number, name */
#define NVTX_FUNCTIONS(X)                \
	X(CORE, 4, start_ex)             \
	X(CORE, 5, start)                \
	X(CORE, 6, start_wide)           \
	X(CORE, 7, end)                  \
	X(CORE, 8, push_ex)              \
	X(CORE, 9, push)                 \
	X(CORE, 10, push_wide)           \
	X(CORE, 11, pop)                 \
	X(CORE2, 2, domain_start)        \
	X(CORE2, 3, domain_end)          \
	X(CORE2, 4, domain_push)         \
	X(CORE2, 5, domain_pop)          \
	X(CORE2, 10, domain_string)      \
	X(CORE2, 11, domain_string_wide) \
	X(CORE2, 12, domain_create)      \
	X(CORE2, 13, domain_create_wide)

/* Depth of a push or pop that nobody counts. */
#define NVTX_NOT_TRACKED (-2)

enum { NVTX_MESSAGE_ASCII = 1, NVTX_MESSAGE_WIDE = 2, NVTX_MESSAGE_REGISTERED = 3 };

/* nvtxEventAttributes_t, version 2 */
struct nvtx_attributes {
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	uint64_t payload;
	int32_t message_type;
	const void *message; /* by its type: char *, wchar_t *, or what domain_string() returned */
};

#endif
