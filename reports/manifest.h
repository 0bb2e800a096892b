/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests from files (arena(3), MANIFEST). Any thread. */
#ifndef REPORTS_MANIFEST_H
#define REPORTS_MANIFEST_H

/*
 * @brief Make the file the manifest, in place of what it was.
 * @return 0; ARENA_E_INVALID, ARENA_E_NOMEM with a message that names file, place and reason: then
 * nothing changed, except that a manifest for which memory ran out half way is none at all.
 */
int manifest_read(const char *path);

#endif
