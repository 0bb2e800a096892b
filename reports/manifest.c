/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manifests from files: strict, so that a misspelt key is an error and not an omission that
 * nobody notices. The whole file is checked before anything of the old manifest is given up.
 *
 * Threads: any; nothing is shared but what arena/manifest.h guards.
 */
#include "reports/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arena/manifest.h"
#include "reports/value.h"

/*
 * jansson's archive is built for programs: its reader names stdin, to recognise it, in a way that
 * no library can be linked with. The shim is linked with --wrap=stdin, and this is what it finds.
 */
extern FILE *const __wrap_stdin;
FILE *const __wrap_stdin = NULL;

/* What is being read, for messages. */
struct reading {
	const char *path;
	size_t index;		/* of the source */
	json_t *names;		/* layer -> {key}: what was seen */
};

/* ---- one member ---- */

/* A string that may be left out; *out is "" then. */
static int read_string(const struct reading *r, json_t *o, const char *key, const char **out)
{
	json_t *value = json_object_get(o, key);

	*out = "";
	if (!value)
		return 0;
	if (!json_is_string(value))
		return arena_fail(ARENA_E_INVALID, "%s: sources[%zu].%s: not a string", r->path,
				  r->index, key);
	*out = json_string_value(value);
	if (strlen(*out) <= ARENA_NAME_MAX)
		return 0;
	return arena_fail(ARENA_E_INVALID, "%s: sources[%zu].%s: %.40s... is longer than %d bytes",
			  r->path, r->index, key, *out, ARENA_NAME_MAX);
}

/* A count that may be left out; *out is 0 then, not told. */
static int read_count(const struct reading *r, json_t *o, const char *key, uint64_t *out)
{
	json_t *value = json_object_get(o, key);

	*out = 0;
	if (!value)
		return 0;
	if (!json_is_integer(value) || json_integer_value(value) <= 0)
		return arena_fail(ARENA_E_INVALID,
				  "%s: sources[%zu].%s: not a positive whole number; leave it out "
				  "if it is not known",
				  r->path, r->index, key);
	*out = (uint64_t)json_integer_value(value);
	return 0;
}

/* Every key of @o is one of @known. */
static int check_keys(json_t *o, const char *const *known, const char *path, const char *where)
{
	const char *key;
	json_t *value;

	json_object_foreach(o, key, value) {
		int i = 0;

		while (known[i] && strcmp(known[i], key) != 0)
			i++;
		if (!known[i])
			return arena_fail(ARENA_E_INVALID,
					  "%s: %s\"%.40s\" is not a key of a manifest", path,
					  where, key);
	}
	return 0;
}

/* ---- one source ---- */

struct entry {
	const char *key, *layer, *role;
	uint64_t parts, bytes;
};

static int read_entry(const struct reading *r, json_t *o, struct entry *e)
{
	static const char *const known[] = { "key", "layer", "role", "parts", "bytes", NULL };
	char where[40];
	int err = 0;

	snprintf(where, sizeof(where), "sources[%zu]: ", r->index);
	if (!json_is_object(o))
		return arena_fail(ARENA_E_INVALID, "%s: %snot an object", r->path, where);
	err = check_keys(o, known, r->path, where);
	err = err ? err : read_string(r, o, "key", &e->key);
	err = err ? err : read_string(r, o, "layer", &e->layer);
	err = err ? err : read_string(r, o, "role", &e->role);
	err = err ? err : read_count(r, o, "parts", &e->parts);
	err = err ? err : read_count(r, o, "bytes", &e->bytes);
	if (!err && !*e->key)
		err = arena_fail(ARENA_E_INVALID, "%s: %sno \"key\": name the source", r->path,
				 where);
	if (!err && *e->role && scope_role_check(e->role) != 0)
		err = arena_fail(ARENA_E_INVALID,
				 "%s: %srole \"%.40s\" is not target, draft or mtp", r->path, where,
				 e->role);
	return err;
}

static int check_once(const struct reading *r, const struct entry *e)
{
	json_t *keys = json_object_get(r->names, e->layer);

	if (!keys) {
		keys = json_object();
		if (json_object_set_new(r->names, e->layer, keys) != 0)
			return arena_fail(ARENA_E_NOMEM, "%s: no host memory", r->path);
	}
	if (json_object_get(keys, e->key))
		return arena_fail(ARENA_E_INVALID,
				  "%s: sources[%zu]: %s of layer \"%s\" is listed twice", r->path,
				  r->index, e->key, e->layer);
	if (json_object_set_new(keys, e->key, json_true()) != 0)
		return arena_fail(ARENA_E_NOMEM, "%s: no host memory", r->path);
	return 0;
}

/* ---- the file ---- */

/* @return a descriptor, or -1. */
static int open_file(const char *path, int *err)
{
	/* A pipe without a writer would be waited for. */
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat is;

	if (fd < 0) {
		*err = arena_fail(ARENA_E_INVALID, "manifest: unable to open %s: %s", path,
				  strerror(errno));
		return -1;
	}
	if (fstat(fd, &is) == 0 && S_ISREG(is.st_mode))
		return fd;
	close(fd);
	*err = arena_fail(ARENA_E_INVALID, "manifest: %s is not a regular file: name one", path);
	return -1;
}

static json_t *load(const char *path, int *err)
{
	json_error_t why = { .line = 0 };
	int fd = open_file(path, err);
	json_t *root = fd < 0 ? NULL : json_loadfd(fd, JSON_REJECT_DUPLICATES, &why);

	if (fd < 0)
		return NULL;
	close(fd);
	if (root)
		return root;
	if (why.line > 0)
		*err = arena_fail(ARENA_E_INVALID, "%s:%d:%d: %s", path, why.line, why.column,
				  why.text);
	else
		*err = arena_fail(ARENA_E_INVALID, "manifest: %s: %s", path, why.text);
	return NULL;
}

static int check_root(const char *path, json_t *root)
{
	static const char *const known[] = { "schema", "sources", NULL };
	int err;

	if (!json_is_object(root))
		return arena_fail(ARENA_E_INVALID, "%s: not an object", path);
	err = check_keys(root, known, path, "");
	if (err)
		return err;
	if (json_integer_value(json_object_get(root, "schema")) != SCHEMA)
		return arena_fail(ARENA_E_INVALID, "%s: \"schema\" is not %d", path, SCHEMA);
	if (json_array_size(json_object_get(root, "sources")) == 0)
		return arena_fail(ARENA_E_INVALID, "%s: \"sources\" is not a list, or empty", path);
	return 0;
}

static int check_sources(const char *path, json_t *list)
{
	struct reading r = { .path = path, .names = json_object() };
	struct entry e;
	int err = 0;

	for (; !err && r.index < json_array_size(list); r.index++) {
		err = read_entry(&r, json_array_get(list, r.index), &e);
		err = err ? err : check_once(&r, &e);
	}
	json_decref(r.names);
	return err;
}

static int install(const char *path, json_t *list)
{
	struct reading r = { .path = path };
	struct entry e;
	int err = 0;

	manifest_clear();
	for (; !err && r.index < json_array_size(list); r.index++) {
		err = read_entry(&r, json_array_get(list, r.index), &e);
		err = err ? err : manifest_add(e.layer, e.key, e.parts, e.bytes, e.role);
	}
	if (err)
		manifest_clear();
	return err;
}

int manifest_read(const char *path)
{
	int err = 0;
	json_t *root = load(path, &err), *list = json_object_get(root, "sources");

	if (!err)
		err = check_root(path, root);
	if (!err)
		err = check_sources(path, list);
	if (!err)
		err = install(path, list);
	json_decref(root);
	return err;
}
