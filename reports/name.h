/* SPDX-License-Identifier: Apache-2.0 */
/* Who this process is, and the name of its report file. */
#ifndef REPORTS_NAME_H
#define REPORTS_NAME_H

#include <stdbool.h>
#include <stddef.h>

struct identity {
	char host[65];		/* letters, digits, dot, dash, underscore */
	unsigned rank;		/* RANK, LOCAL_RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID, else 0 */
};

/* @brief Ask the system and the environment. */
void identity_read(struct identity *id);

/*
 * @brief Expand %h host, %r rank, %p pid, %% percent. Other letters stay as they are and the first
 * of them is stored in *unknown (0: none).
 * @return false when the name does not fit.
 */
bool name_expand(const char *pattern, const struct identity *id, char *out, size_t out_bytes,
		 char *unknown);

#endif
