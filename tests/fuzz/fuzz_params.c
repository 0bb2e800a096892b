/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scanner of kernel parameters against layouts and buffers of anybody's making.
 *
 * Input: mode, number of parameters, (offset, size) of each as 16-bit numbers, then the bytes.
 * Every parameter lies in a buffer of exactly its size, so that ASan sees a byte read too many;
 * every word that comes out is checked against the bytes it was read from.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/coverage.h"
#include "shim/hooks.h"
#include "shim/params.h"
#include "shim/tensormap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The scanner is not to ask the driver. */
struct real_driver real;
counter_t coverage[COVERAGE_COUNT];

#define PARAMS_MAX  64
#define MAP_ADDRESS UINT64_C(0x7f1234560000)

static union {
	struct layout layout;
	char room[sizeof(struct layout) + PARAMS_MAX * sizeof(struct param)];
} made;
static struct params out;

static void check(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "fuzz_params: %s\n", what);
	abort();
}

/* Takes @count bytes of the input, or as many as there are. */
static size_t take(const uint8_t **data, size_t *size, void *to, size_t count)
{
	if (count > *size)
		count = *size;
	memcpy(to, *data, count);
	*data += count;
	*size -= count;
	return count;
}

static void make_layout(const uint8_t **data, size_t *size)
{
	uint8_t count = 0;

	memset(&made, 0, sizeof(made));
	take(data, size, &count, 1);
	made.layout.count = count % (PARAMS_MAX + 1);
	made.layout.sized = true;
	for (uint16_t i = 0; i < made.layout.count; i++)
		take(data, size, &made.layout.params[i], sizeof(struct param));
}

/* @param from the bytes that @w's offset counts from. */
static void check_word(const struct word *w, const uint8_t *from, size_t from_bytes)
{
	uint64_t value;

	check(w->value >= 0x10000 && w->value >> 57 == 0, "not an address");
	check((size_t)w->offset + 8 <= from_bytes, "offset outside");
	memcpy(&value, from + w->offset, sizeof(value));
	check(value == w->value || w->value == MAP_ADDRESS, "not what is there");
}

static void scan_kernel_params(const uint8_t *data, size_t size)
{
	for (uint16_t i = 0; i < made.layout.count; i++) {
		struct param at = made.layout.params[i];
		uint8_t *bytes = malloc(at.size_bytes ? at.size_bytes : 1);
		uint32_t before = out.count;

		memset(bytes, 0x7f, at.size_bytes);
		memcpy(bytes, data, size < at.size_bytes ? size : at.size_bytes);
		params_scan_one(&out, i, bytes, at);
		check(out.count <= PARAMS_WORDS_MAX, "too many words");
		for (; before < out.count; before++)
			check_word(&out.words[before], bytes, at.size_bytes);
		free(bytes);
	}
}

static void scan_buffer(const uint8_t *data, size_t size, bool split)
{
	uint8_t *bytes = malloc(size ? size : 1);

	memcpy(bytes, data, size);
	if (split)
		params_scan_packed(&out, &made.layout, bytes, size);
	else
		params_scan_raw(&out, bytes, size);
	for (uint32_t i = 0; i < out.count; i++) {
		const struct word *w = &out.words[i];
		size_t offset = split ? made.layout.params[w->param].offset : 0;

		check(split || w->confidence == CONFIDENCE_SUSPECT, "sure without a layout");
		check(offset <= size, "parameter outside");
		check_word(w, bytes + offset, size - offset);
	}
	free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t mode = 0;

	take(&data, &size, &mode, 1);
	make_layout(&data, &size);
	if ((mode & 4) && size >= TENSORMAP_BYTES)
		tensormap_remember(data + size - TENSORMAP_BYTES, MAP_ADDRESS);
	params_reset(&out, 0);
	if (mode & 1)
		scan_buffer(data, size, mode & 2);
	else
		scan_kernel_params(data, size);
	return 0;
}
