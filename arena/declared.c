/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declared scopes: copied once at begin, then never changed, so they are read without a lock.
 *
 * A copy is one block: the struct, both lists of strings (sorted, to be searched), the strings.
 * A caller's struct may be older and smaller than ours, or newer and larger: what we do not know of
 * must be zero.
 *
 * Threads: any; nothing is shared but the copies, which nobody writes.
 */
#include <stdlib.h>
#include <string.h>

#include "arena/manifest.h"
#include "arena/slab.h"

#define ROLE_BYTES_MAX	 16
#define STRUCT_BYTES_MAX 4096

struct scope_block {
	struct arena_scope scope; /* first: what is handed out */
	size_t block_bytes;
	const char *strings[]; /* layers, then sources */
};

/* ---- checks ---- */

static int list_check(const char *what, const char *const *list, uint32_t count, size_t *bytes)
{
	if (count && !list)
		return arena_fail(ARENA_E_INVALID,
				  "scope: %s_count is %u but %s is NULL: give the list or 0", what,
				  count, what);
	for (uint32_t i = 0; i < count; i++) {
		if (!list[i] || !*list[i])
			return arena_fail(ARENA_E_INVALID,
					  "scope: %s[%u] is empty: name it or leave it out", what,
					  i);
		*bytes += sizeof(char *) + strlen(list[i]) + 1;
	}
	return 0;
}

int scope_role_check(const char *role)
{
	static const char *const roles[] = { "target", "draft", "mtp" };

	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
		if (strcmp(role, roles[i]) == 0)
			return 0;
	return arena_fail(ARENA_E_INVALID, "role \"%.40s\" is unknown: target, draft or mtp", role);
}

/* The caller's struct in our size. */
static int scope_read(const struct arena_scope *in, struct arena_scope *out)
{
	const char *bytes = (const char *)in;
	uint32_t size = in->struct_bytes;

	*out = (struct arena_scope)ARENA_SCOPE_INIT;
	if (size < offsetof(struct arena_scope, role) || size > STRUCT_BYTES_MAX)
		return arena_fail(ARENA_E_INVALID,
				  "scope: struct_bytes is %u: start from ARENA_SCOPE_INIT", size);
	for (uint32_t i = sizeof(*out); i < size; i++)
		if (bytes[i])
			return arena_fail(ARENA_E_INVALID,
					  "scope: byte %u of %u is set, this library knows %zu: "
					  "install a newer one",
					  i, size, sizeof(*out));
	memcpy(out, in, size < sizeof(*out) ? size : sizeof(*out));
	out->struct_bytes = sizeof(*out);
	if (out->reserved)
		return arena_fail(ARENA_E_INVALID,
				  "scope: reserved is %u: start from ARENA_SCOPE_INIT",
				  out->reserved);
	return out->role ? scope_role_check(out->role) : 0;
}

/* ---- the copy ---- */

/* @s at *at, which moves on. */
static const char *keep(const char *s, char **at)
{
	size_t bytes = strlen(s) + 1;
	char *copy = memcpy(*at, s, bytes);

	*at += bytes;
	return copy;
}

/* Shell sort: no recursion, no memory. */
static void sort(const char **v, uint32_t count)
{
	for (uint32_t gap = count / 2; gap; gap = gap == 2 ? 1 : gap * 5 / 11)
		for (uint32_t i = gap; i < count; i++) {
			const char *x = v[i];
			uint32_t k = i;

			for (; k >= gap && strcmp(v[k - gap], x) > 0; k -= gap)
				v[k] = v[k - gap];
			v[k] = x;
		}
}

static void scope_fill(struct scope_block *b, const struct arena_scope *from)
{
	uint32_t layers = from->layers_count, count = layers + from->sources_count;
	char *at = (char *)(b->strings + count);

	for (uint32_t i = 0; i < count; i++)
		b->strings[i] = keep(i < layers ? from->layers[i] : from->sources[i - layers], &at);
	sort(b->strings, layers);
	sort(b->strings + layers, from->sources_count);
	b->scope = *from;
	b->scope.layers = b->strings;
	b->scope.sources = b->strings + layers;
	b->scope.role = from->role ? keep(from->role, &at) : NULL;
}

int scope_copy(const struct arena_scope *in, struct arena_scope **out)
{
	size_t bytes = sizeof(struct scope_block) + ROLE_BYTES_MAX;
	struct arena_scope from = ARENA_SCOPE_INIT;
	struct scope_block *b;
	int err = in ? scope_read(in, &from) : 0;

	if (!err)
		err = list_check("layers", from.layers, from.layers_count, &bytes);
	if (!err)
		err = list_check("sources", from.sources, from.sources_count, &bytes);
	if (err)
		return err;
	b = pages_get(bytes);
	if (!b)
		return arena_fail(ARENA_E_NOMEM, "scope: no host memory for %zu bytes", bytes);
	b->block_bytes = bytes;
	scope_fill(b, &from);
	*out = &b->scope;
	return 0;
}

void scope_free(struct arena_scope *s)
{
	struct scope_block *b = (struct scope_block *)s;

	if (b)
		pages_put(b, b->block_bytes);
}

/* ---- what it covers ---- */

bool scope_full(const struct arena_scope *scope)
{
	return !scope || (!scope->layers_count && !scope->sources_count && !scope->role);
}

/* Is text[0..length) in the sorted list? */
static bool list_has(const char *const *list, uint32_t count, const char *text, size_t length)
{
	uint32_t low = 0, high = count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		int order = strncmp(list[mid], text, length);

		if (order == 0 && !list[mid][length])
			return true;
		/* With @text as a proper prefix, the entry comes after it. */
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return false;
}

bool scope_covers_layer(const struct arena_scope *scope, const char *path)
{
	const char *end = path;

	if (!scope || !scope->layers_count)
		return true;
	/* Each prefix that ends at a dot or at the end. */
	while (*path) {
		end += strcspn(end, ".");
		if (list_has(scope->layers, scope->layers_count, path, (size_t)(end - path)))
			return true;
		if (!*end++)
			break;
	}
	return false;
}

bool scope_covers_source(const struct arena_scope *scope, const char *key, const char *role)
{
	if (!scope)
		return true;
	if (scope->role && *role && strcmp(scope->role, role) != 0)
		return false;
	return !scope->sources_count ||
	       list_has(scope->sources, scope->sources_count, key, strlen(key));
}
