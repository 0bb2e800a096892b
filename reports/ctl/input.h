/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a file: plain, or gzip where zlib is there (input.c), else plain only
 * (input-fallback.c). One thread. */
#ifndef CTL_INPUT_H
#define CTL_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct input {
	void *handle;
	int fd;
	uint64_t size; /* of the file, 0: not known */
};

/* Most that is told of a failure. */
#define INPUT_WHY_MAX 160

/* @brief Open a file, "-": stdin. @return 0, or -1 and @why. */
int input_open(struct input *in, const char *path, char why[INPUT_WHY_MAX]);
/* @return bytes, 0 at the end, -1 and @why. */
ssize_t input_read(struct input *in, void *to, size_t room, char why[INPUT_WHY_MAX]);
/* @brief How far the file is read, in its own bytes. */
uint64_t input_at(const struct input *in);
void input_close(struct input *in);

#endif
