/* SPDX-License-Identifier: Apache-2.0 */
/* Expansion of the report's file name. No state; any thread. */
#include "reports/name.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A rank becomes part of a path: digits only. */
static bool read_rank(const char *value, unsigned *rank)
{
	unsigned v = 0;

	if (!value || !*value || strlen(value) > 9)
		return false;
	for (; *value; value++) {
		if (*value < '0' || *value > '9')
			return false;
		v = v * 10 + (unsigned)(*value - '0');
	}
	*rank = v;
	return true;
}

void identity_read(struct identity *id)
{
	static const char *const launchers[] = {
		"RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID",
	};

	char host[sizeof(id->host)] = "";

	if (gethostname(host, sizeof(host) - 1) != 0 || !host[0])
		strcpy(host, "localhost");
	for (char *s = host; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("._-", *s))
			*s = '_';
	*id = (struct identity){ .rank = 0 };
	strcpy(id->host, host);
	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
		if (read_rank(getenv(launchers[i]), &id->rank))
			return;
}

/* What stands for %@letter; NULL: nothing. */
static const char *expand_one(char letter, const struct identity *id, char *number, size_t bytes)
{
	switch (letter) {
	case 'h':
		return id->host;
	case 'r':
		snprintf(number, bytes, "%u", id->rank);
		return number;
	case 'p':
		snprintf(number, bytes, "%d", (int)getpid());
		return number;
	case '%':
		return "%";
	default:
		return NULL;
	}
}

bool name_expand(const char *pattern, const struct identity *id, char *out, size_t out_bytes,
		 char *unknown)
{
	size_t used = 0;

	*unknown = 0;
	for (const char *s = pattern; *s; s++) {
		char literal[2] = { *s, '\0' }, number[16];
		const char *piece = literal;
		size_t chars;

		if (*s == '%') {
			const char *found = expand_one(s[1], id, number, sizeof(number));

			if (found) {
				piece = found;
				s++;
			} else if (!*unknown) {
				*unknown = s[1] ? s[1] : '%';
			}
		}
		chars = strlen(piece);
		if (used + chars >= out_bytes)
			return false;
		memcpy(out + used, piece, chars);
		used += chars;
	}
	out[used] = '\0';
	return true;
}
