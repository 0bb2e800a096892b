/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input through zlib. Not by gzread(): it passes over what stands behind compressed data, and a
 * report may stand there. Members follow each other up to the end of the file, or the file is
 * damaged.
 *
 * Threads: one.
 */
#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define BUFFER_BYTES ((size_t)256 << 10)
#define GZIP_WINDOW  (15 + 16) /* of inflateInit2(): gzip only */

enum form { FORM_UNKNOWN, FORM_PLAIN, FORM_GZIP };

struct packed {
	enum form form;
	z_stream z;	/* next_in, avail_in: what is read and not used, also of a plain file */
	bool in_member; /* between the magic and the check sum of a member */
	bool ended;	/* the file */
	unsigned char buffer[BUFFER_BYTES];
};

int input_open(struct input *in, const char *path, char why[INPUT_WHY_MAX])
{
	struct packed *p = NULL;
	struct stat st;

	*in = (struct input){ .fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : dup(0) };
	if (in->fd < 0 || fstat(in->fd, &st)) {
		snprintf(why, INPUT_WHY_MAX, "%s", strerror(errno));
	} else if (S_ISDIR(st.st_mode)) {
		snprintf(why, INPUT_WHY_MAX, "a directory: name the reports in it");
	} else {
		in->size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
		p = calloc(1, sizeof(*p));
		if (p && inflateInit2(&p->z, GZIP_WINDOW) == Z_OK) {
			in->handle = p;
			return 0;
		}
		snprintf(why, INPUT_WHY_MAX, "no memory to read it");
	}
	free(p);
	if (in->fd >= 0)
		close(in->fd);
	return -1;
}

/* At least @least bytes in the buffer, if the file has them. @return false: errno. */
static bool fill(const struct input *in, struct packed *p, size_t least)
{
	if (p->z.avail_in >= least || p->ended)
		return true;
	memmove(p->buffer, p->z.next_in ? p->z.next_in : p->buffer, p->z.avail_in);
	p->z.next_in = p->buffer;
	while (p->z.avail_in < least && !p->ended) {
		ssize_t got = read(in->fd, p->buffer + p->z.avail_in, BUFFER_BYTES - p->z.avail_in);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return false;
		p->ended = !got;
		p->z.avail_in += (unsigned)got;
	}
	return true;
}

static bool at_magic(const struct packed *p)
{
	return p->z.avail_in >= 2 && p->z.next_in[0] == 0x1f && p->z.next_in[1] == 0x8b;
}

static ssize_t copy_plain(struct packed *p, void *to, size_t room)
{
	size_t n = p->z.avail_in < room ? p->z.avail_in : room;

	memcpy(to, p->z.next_in, n);
	p->z.next_in += n;
	p->z.avail_in -= (unsigned)n;
	return (ssize_t)n;
}

/* What stands behind a member and is none: all of it is counted. */
static ssize_t refuse_rest(const struct input *in, struct packed *p, char why[INPUT_WHY_MAX])
{
	uint64_t bytes = p->z.avail_in;

	while (!p->ended) {
		p->z.avail_in = 0;
		if (!fill(in, p, 1))
			break;
		bytes += p->z.avail_in;
	}
	snprintf(why, INPUT_WHY_MAX, "%" PRIu64 " bytes behind the compressed data are not read",
		 bytes);
	return -1;
}

/* @return as input_read(); 0 only at the end of the file, between members. */
static ssize_t unpack(const struct input *in, struct packed *p, void *to, size_t room,
		      char why[INPUT_WHY_MAX])
{
	size_t got = 0;

	while (!got) {
		int code;

		if (!fill(in, p, p->in_member ? 1 : 2))
			break;
		if (!p->z.avail_in && !p->in_member)
			return 0;
		if (!p->in_member && !at_magic(p))
			return refuse_rest(in, p, why);
		p->in_member = true;
		p->z.next_out = to;
		p->z.avail_out = room < UINT32_MAX ? (unsigned)room : UINT32_MAX;
		room = p->z.avail_out;
		code = inflate(&p->z, Z_NO_FLUSH);
		got = room - p->z.avail_out;
		if (code == Z_STREAM_END) {
			p->in_member = false;
			inflateReset(&p->z);
		} else if (code == Z_BUF_ERROR && p->ended) {
			snprintf(why, INPUT_WHY_MAX, "the compressed file has no end");
			return -1;
		} else if (!got && code != Z_OK && code != Z_BUF_ERROR) {
			/* What came out before it was given; inflate() says it again. */
			snprintf(why, INPUT_WHY_MAX, "the compressed data is damaged: %s",
				 p->z.msg ? p->z.msg : "no memory");
			return -1;
		}
	}
	if (!got)
		snprintf(why, INPUT_WHY_MAX, "%s", strerror(errno));
	return got ? (ssize_t)got : -1;
}

ssize_t input_read(struct input *in, void *to, size_t room, char why[INPUT_WHY_MAX])
{
	struct packed *p = in->handle;

	if (p->form != FORM_GZIP && !fill(in, p, p->form == FORM_UNKNOWN ? 2 : 1)) {
		snprintf(why, INPUT_WHY_MAX, "%s", strerror(errno));
		return -1;
	}
	if (p->form == FORM_UNKNOWN)
		p->form = at_magic(p) ? FORM_GZIP : FORM_PLAIN;
	return p->form == FORM_PLAIN ? copy_plain(p, to, room) : unpack(in, p, to, room, why);
}

uint64_t input_at(const struct input *in)
{
	const struct packed *p = in->handle;
	off_t at = lseek(in->fd, 0, SEEK_CUR);

	return at > (off_t)p->z.avail_in ? (uint64_t)at - p->z.avail_in : 0;
}

void input_close(struct input *in)
{
	struct packed *p = in->handle;

	inflateEnd(&p->z);
	free(p);
	close(in->fd);
}
