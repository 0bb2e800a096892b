/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public header without linking anything: the handshake is what it should be.
 *
 *	handshake 0 | 1
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"

int main(int argc, char **argv)
{
	char found[16];

	snprintf(found, sizeof(found), "%d", arena_abi());
	if (argc > 1 && strcmp(argv[1], found) == 0)
		return EXIT_SUCCESS;
	fprintf(stderr, "handshake: %s\n", found);
	return EXIT_FAILURE;
}
