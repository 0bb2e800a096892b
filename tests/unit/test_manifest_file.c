/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests from files: what is read, and one clear line for each thing that can be wrong. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arena/manifest.h"
#include "reports/manifest.h"


/* @return what manifest_read() says to a file with this text. */
static int read_text(const char *text)
{
	char name[] = "/tmp/manifest-XXXXXX";
	int fd = mkstemp(name), err;

	cr_assert(fd >= 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	err = manifest_read(name);
	unlink(name);
	return err;
}

#define SOURCES(...) "{ \"schema\": 1, \"sources\": [" #__VA_ARGS__ "] }"

Test(manifest_file, good)
{
	struct slot_findings f = { .list = NULL };

	cr_assert_eq(read_text(SOURCES({ "key": "a", "layer": "l.0", "parts": 2, "bytes": 64 },
				       { "key": "a", "layer": "l.1" },
				       { "key": "b", "role": "draft" })), 0, "%s", arena_message());
	cr_assert(manifest_known());
	cr_assert_eq(manifest_verify(NULL, NULL, &f), 0);
	cr_assert_eq(f.count, 3, "%u sources are missed", f.count);
	slot_findings_free(&f);
}

/* Nobody writes to it: it must not be waited for. */
Test(manifest_file, pipe)
{
	char folder[] = "/tmp/manifest-XXXXXX", name[64];

	cr_assert_not_null(mkdtemp(folder));
	snprintf(name, sizeof(name), "%s/pipe", folder);
	cr_assert_eq(mkfifo(name, 0600), 0);
	cr_assert_eq(manifest_read(name), ARENA_E_INVALID);
	cr_assert(strstr(arena_message(), "pipe is not a regular file"), "%s", arena_message());
	cr_assert_eq(manifest_read(folder), ARENA_E_INVALID);
	cr_assert(strstr(arena_message(), "is not a regular file"), "%s", arena_message());
	unlink(name);
	rmdir(folder);
}

static const struct {
	const char *text, *words;
} bad[] = {
	{ "", "" },
	{ "{", ":1:" },
	{ "{\n \"schema\": 1,\n \"sources\": [ } ", ":3:" },
	{ "[]", "not an object" },
	{ "{ \"sources\": [{ \"key\": \"a\" }] }", "\"schema\"" },
	{ "{ \"schema\": 2, \"sources\": [{ \"key\": \"a\" }] }", "\"schema\"" },
	{ "{ \"schema\": 1 }", "\"sources\"" },
	{ "{ \"schema\": 1, \"sources\": {} }", "\"sources\"" },
	{ "{ \"schema\": 1, \"source\": [] }", "\"source\" is not a key" },
	{ "{ \"schema\": 1, \"schema\": 1, \"sources\": [] }", "duplicate" },
	{ SOURCES(), "empty" },
	{ SOURCES(1), "sources[0]: not an object" },
	{ SOURCES({ "key": "a" }, { "layer": "l" }), "sources[1]: no \"key\"" },
	{ SOURCES({ "key": "" }), "name the source" },
	{ SOURCES({ "key": 5 }), "sources[0].key: not a string" },
	{ SOURCES({ "key": "a", "size": 5 }), "sources[0]: \"size\" is not a key" },
	{ SOURCES({ "key": "a", "bytes": "5" }), "sources[0].bytes" },
	{ SOURCES({ "key": "a", "bytes": -5 }), "sources[0].bytes" },
	{ SOURCES({ "key": "a", "bytes": 1.5 }), "sources[0].bytes" },
	{ SOURCES({ "key": "a", "bytes": 99999999999999999999 }), "too big" },
	{ SOURCES({ "key": "a", "parts": 0 }), "sources[0].parts" },
	{ SOURCES({ "key": "a", "role": "chorus" }), "chorus" },
	{ SOURCES({ "key": "a" }, { "key": "b" }, { "key": "a" }), "sources[2]: a of layer" },
};

/* Each says what is wrong where, and the manifest that was there stays. */
Test(manifest_file, damaged)
{
	cr_assert_eq(read_text(SOURCES({ "key": "old" })), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct slot_findings f = { .list = NULL };

		cr_assert_eq(read_text(bad[i].text), ARENA_E_INVALID, "taken: %s", bad[i].text);
		cr_assert(strstr(arena_message(), "manifest"), "%s", arena_message());
		cr_assert(strstr(arena_message(), bad[i].words), "no '%s' in '%s'", bad[i].words,
			  arena_message());
		cr_assert(!strchr(arena_message(), '\n'), "%s", arena_message());
		cr_assert_eq(manifest_verify(NULL, NULL, &f), 0);
		cr_assert(f.count == 1 && f.list[0].kind == FINDING_SOURCE_MISSING, "%s", bad[i].text);
		slot_findings_free(&f);
	}
}

Test(manifest_file, long_key)
{
	char text[1024] = "{ \"schema\": 1, \"sources\": [{ \"key\": \"";
	size_t at = strlen(text);

	memset(text + at, 'k', 300);
	strcpy(text + at + 300, "\" }] }");
	cr_assert_eq(read_text(text), ARENA_E_INVALID);
	cr_assert(strstr(arena_message(), "longer than 255"), "%s", arena_message());
}

Test(manifest_file, no_file)
{
	cr_assert_eq(manifest_read("/no/such/manifest"), ARENA_E_INVALID);
	cr_assert(strstr(arena_message(), "/no/such/manifest"), "%s", arena_message());
	cr_assert_eq(manifest_read("/tmp"), ARENA_E_INVALID);
}
