/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints in the safetensors format: 8 bytes of header length, a JSON header, the tensors. The
 * reader maps the file and trusts nothing in it. One thread a file.
 */
#ifndef ENGINE_SAFETENSORS_H
#define ENGINE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#define SAFETENSORS_DIMS_MAX 8

struct safetensor {
	const char *name;
	const char *dtype; /* as the format spells it: "BF16", "F8_E4M3", ... */
	uint32_t ndim;
	uint64_t shape[SAFETENSORS_DIMS_MAX];
	const void *data;
	uint64_t bytes;
};

struct safetensors {
	void *map;
	size_t map_bytes;
	void *header; /* names and dtypes are its */
	struct safetensor *tensors;
	size_t count;
};

/* @brief Bytes of one element. @return 0: no such type, or one that is no whole byte (F4, F6). */
uint32_t safetensors_dtype_bytes(const char *dtype);

/* @brief Map and check a file. @param error out: one line, if it is refused. @return 0 or -1. */
int safetensors_open(const char *path, struct safetensors *out, char *error, size_t error_bytes);
const struct safetensor *safetensors_find(const struct safetensors *s, const char *name);
/* @brief What __metadata__ says under @key. @return NULL: nothing. */
const char *safetensors_metadata(const struct safetensors *s, const char *key);
void safetensors_close(struct safetensors *s);

/* @brief Write @count tensors. @param metadata name, value, name, value, ..., NULL; or NULL.
 * @return 0, or -1 with errno. */
int safetensors_write(const char *path, const struct safetensor *tensors, size_t count,
		      const char *const *metadata);

#endif
