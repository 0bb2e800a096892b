/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must arrive: sources (checkpoint keys), their parts and bytes, the layer each belongs to.
 * Learned from the first full reload that passes, or read from a file by reports/manifest.c.
 * The receipts of a reload are compared with the manifest projected onto its scope:
 * source-missing, -unexpected, -duplicate, -short.
 *
 * Threads: any; one lock of its own, under which nothing is called out.
 */
#ifndef ARENA_MANIFEST_H
#define ARENA_MANIFEST_H

#include "arena/snapshot.h"

/*
 * @brief An entry of the manifest.
 * @param layer "" when the source belongs to no layer (then it is checked at end only, and any
 * layer may receive it).
 * @param parts, bytes 0: not told, not checked.
 * @param role NULL or "": of no role; it may arrive under each, and must under none.
 * @return 0, ARENA_E_INVALID (named twice, key empty), ARENA_E_NOMEM.
 */
int manifest_add(const char *layer, const char *key, uint64_t parts, uint64_t bytes,
		 const char *role);
void manifest_clear(void);
bool manifest_known(void);

/*
 * Receipts of the open reload. @layer is the thread's arena; NULL: outside any, then the manifest
 * tells whose it is. @return 0, ARENA_E_INVALID, ARENA_E_NOMEM (nothing noted).
 */
int receipt_add(const struct arena *layer, const char *key, uint64_t part, uint64_t bytes);
void receipts_clear(void);
/* What arrived in the open reload. */
struct receipt_counts { uint64_t sources, parts, bytes; };
void receipts_count(struct receipt_counts *out);
/* @brief Did a source arrive that the manifest, or the thread's arena, ties to @layer? */
bool receipts_arrived(uint32_t layer);
/* @brief The reload failed, the process is unsafe, and no slot of @layer (0: of no layer) shows
 * when it is repaired: without a manifest, a full reload demands what arrived. */
void receipts_doubt(uint32_t layer);
/* @brief A reload passed: what arrived is in doubt no more; after a full one, nothing is. */
void receipts_trust(bool full);
/* @brief Make the receipts the manifest, unless one is known or nothing arrived. */
void receipts_learn(void);

/*
 * @brief Findings of @a (NULL: of all layers and of what belongs to none) against the scope.
 * @return 0 or ARENA_E_NOMEM, then @out is incomplete.
 */
int manifest_verify(const struct arena_scope *scope, const struct arena *a,
		    struct slot_findings *out);
/* @brief Must any source arrive under this scope? */
bool manifest_demands(const struct arena_scope *scope);
/*
 * @brief Does nothing say what completes the reload: the scope is a part, it does not list its
 * sources, and the manifest projected onto it demands none, though there is one, or something
 * arrived? Then omissions cannot be seen.
 */
bool manifest_blind(const struct arena_scope *scope);

/* ---- scopes (declared.c): what scope_copy() gave; NULL covers everything ---- */

/* @brief A deep copy in one block, checked. ARENA_E_INVALID, ARENA_E_NOMEM. */
int scope_copy(const struct arena_scope *in, struct arena_scope **out);
void scope_free(struct arena_scope *s);
/* @brief Is it one of target, draft, mtp? ARENA_E_INVALID. */
int scope_role_check(const char *role);
bool scope_full(const struct arena_scope *scope);
/* @brief Is @path one of the layers, or below one? "" is of no layer. */
bool scope_covers_layer(const struct arena_scope *scope, const char *path);
/* @param role "": of no role, which each role covers. */
bool scope_covers_source(const struct arena_scope *scope, const char *key, const char *role);

#endif
