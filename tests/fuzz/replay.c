/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target over the files of a folder: kept inputs as an ordinary test, with any
 * compiler. Each input is followed by all its prefixes, which finds what a cut input does.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_MAX 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void run(const uint8_t *data, size_t size)
{
	uint8_t *exact = malloc(size ? size : 1); /* so that ASan sees its end */

	memcpy(exact, data, size);
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
}

static int replay(const char *folder, const char *name)
{
	static uint8_t input[INPUT_MAX];
	char path[4096];
	size_t size;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "rb");
	if (f == NULL) {
		perror(path);
		return 1;
	}
	size = fread(input, 1, sizeof(input), f);
	fclose(f);
	for (size_t n = 0; n < size && n < 1024; n++)
		run(input, n);
	run(input, size);
	return 0;
}

int main(int argc, char **argv)
{
	DIR *d = argc == 2 ? opendir(argv[1]) : NULL;
	struct dirent *e;
	int failed = 0, count = 0;

	if (d == NULL) {
		fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
		return 1;
	}
	while ((e = readdir(d)) != NULL) {
		if (e->d_name[0] == '.')
			continue;
		failed |= replay(argv[1], e->d_name);
		count++;
	}
	closedir(d);
	printf("%d inputs\n", count);
	return failed || count == 0;
}
