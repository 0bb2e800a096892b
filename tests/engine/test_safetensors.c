/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of checkpoints: what is written is read, and each lie in a header is refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/engine/safetensors.h"

static char path[] = "/tmp/safetensors-XXXXXX";

/* A file of @bytes bytes. */
static void file(const void *from, size_t bytes)
{
	int fd;
	FILE *f;

	strcpy(path, "/tmp/safetensors-XXXXXX");
	fd = mkstemp(path);
	f = fdopen(fd, "w");
	cr_assert(fd >= 0 && f);
	cr_assert(fwrite(from, 1, bytes, f) == bytes && fclose(f) == 0);
}

/* @header with its length in front, and @data bytes behind. @return bytes of the whole. */
static size_t compose(char *out, const char *header, size_t data)
{
	uint64_t length = strlen(header);

	memcpy(out, &length, sizeof(length));
	memcpy(out + 8, header, length);
	memset(out + 8 + length, 7, data);
	return 8 + length + data;
}

static void refused(const char *words)
{
	struct safetensors s;
	char error[256] = "";

	cr_assert(safetensors_open(path, &s, error, sizeof(error)) == -1, "not refused: %s", words);
	cr_assert(strstr(error, words), "%s: not '%s'", error, words);
	cr_assert(!strchr(error, '\n') && !strncmp(error, path, strlen(path)), "%s", error);
	cr_assert(!s.map && !s.tensors && !s.header);
	unlink(path);
}

Test(safetensors, what_is_written_is_read)
{
	static const uint16_t x[6] = { 1, 2, 3, 4, 5, 6 };
	static const float y[1] = { 0.5f };
	static const char *const metadata[] = { "format", "pt", "hidden_size", "256", NULL };
	const struct safetensor tensors[] = {
		{ "a.weight", "BF16", 2, { 2, 3 }, x, sizeof(x) },
		{ "b.scale", "F32", 0, { 0 }, y, sizeof(y) },
		{ "none", "I32", 1, { 0 }, y, 0 },
	};
	const struct safetensor *t;
	struct safetensors s;
	char error[256] = "";

	file("", 0);
	cr_assert(safetensors_write(path, tensors, 3, metadata) == 0);
	cr_assert(safetensors_open(path, &s, error, sizeof(error)) == 0, "%s", error);
	unlink(path);
	cr_assert(s.count == 3 && !safetensors_find(&s, "c"));
	t = safetensors_find(&s, "a.weight");
	cr_assert(t && t->ndim == 2 && t->shape[0] == 2 && t->shape[1] == 3 && t->bytes == 12);
	cr_assert(!strcmp(t->dtype, "BF16") && !memcmp(t->data, x, sizeof(x)));
	t = safetensors_find(&s, "b.scale");
	cr_assert(t && t->ndim == 0 && t->bytes == 4 && !memcmp(t->data, y, 4));
	cr_assert(!strcmp(safetensors_metadata(&s, "hidden_size"), "256"));
	cr_assert(!safetensors_metadata(&s, "a.weight"));
	safetensors_close(&s);
}

#define T(name, dtype, shape, offsets) \
	"\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

/* As others write it: tensors in the order of neither names nor places, keys in any order, spaces
 * between and behind, metadata last. */
Test(safetensors, a_file_of_others_is_read)
{
	static const char header[] =
		"{ \"b\" : {\"data_offsets\":[4, 6],\"shape\":[2],\"dtype\":\"U8\"},\n"
		" \"a\":{\"shape\":[], \"data_offsets\":[0,4], \"dtype\":\"F32\"},"
		"\"\\u0063\":{\"dtype\":\"F16\",\"shape\":[0,7],\"data_offsets\":[6,6]},"
		"\"__metadata__\":{\"format\":\"pt\"}}       ";
	struct safetensors s;
	char whole[512], error[256] = "";

	file(whole, compose(whole, header, 6));
	cr_assert(safetensors_open(path, &s, error, sizeof(error)) == 0, "%s", error);
	unlink(path);
	cr_assert(s.count == 3 && safetensors_find(&s, "c")->bytes == 0);
	cr_assert((const char *)safetensors_find(&s, "b")->data ==
		  (const char *)safetensors_find(&s, "a")->data + 4);
	cr_assert(!strcmp(safetensors_metadata(&s, "format"), "pt"));
	safetensors_close(&s);
}

Test(safetensors, a_lie_in_a_header_is_refused)
{
	static const struct {
		const char *header;
		size_t data;
		const char *words;
	} cases[] = {
		{ "[]", 0, "does not begin with {" },
		{ " {}", 0, "does not begin with {" },
		{ "", 0, "does not begin with {" },
		{ "{}{}", 0, "" },
		{ "{\"__metadata__\":[]}", 0, "__metadata__ is not a JSON object" },
		{ "{\"__metadata__\":{\"a\":1}}", 0, "no text" },
		{ "{", 0, "" },
		{ "{" T("x", "F32", "[1]", "[0,4]") "," T("x", "F32", "[1]", "[4,8]") "}", 8, "" },
		{ "{" T("x", "F33", "[1]", "[0,4]") "}", 4, "dtype is unknown" },
		{ "{" T("x", "F32", "[-1]", "[0,4]") "}", 4, "no size" },
		{ "{" T("x", "F32", "[1.5]", "[0,4]") "}", 4, "no size" },
		{ "{" T("x", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "8 dimensions" },
		{ "{" T("x", "F32", "[4611686018427387904,4]", "[0,4]") "}", 4, "64 bits" },
		{ "{" T("x", "F32", "[1]", "[0,8]") "}", 8, "do not fit" },
		{ "{" T("x", "F32", "[2]", "[0,8]") "}", 4, "behind the end" },
		{ "{" T("x", "F32", "[1]", "[4,0]") "}", 4, "begin and an end" },
		{ "{" T("x", "F32", "[1]", "[0]") "}", 4, "begin and an end" },
		{ "{" T("x", "F32", "[1]", "[-4,0]") "}", 4, "begin and an end" },
		{ "{" T("x", "F32", "[1]", "[0,4]") "," T("y", "F32", "[1]", "[0,4]") "}", 4,
		  "overlaps" },
		{ "{" T("x", "F32", "[1]", "[4,8]") "}", 8, "hole" },
		{ "{" T("x", "F32", "[1]", "[0,4]") "}", 8, "data of no tensor" },
		{ "{\"x\":3}", 0, "exactly dtype" },
		{ "{\"x\\u001b[31m\\n\":3}", 0, "x?[31m?" },
	};
	char whole[1024];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		file(whole, compose(whole, cases[i].header, cases[i].data));
		refused(cases[i].words);
	}
}

/* Types that no family loads, of which a file may have tensors all the same. */
Test(safetensors, every_type_has_its_size)
{
	static const char header[] =
		"{" T("a", "F4", "[3,2]", "[0,3]") "," T("b", "F8_E8M0", "[2]", "[3,5]") "," T(
			"c", "C64", "[1]", "[5,13]") "," T("d", "F6_E2M3", "[4]",
							   "[13,16]") "," T("e", "BF16", "[1]",
									    "[16,18]") "}";
	struct safetensors s;
	char whole[1024], error[256] = "";

	file(whole, compose(whole, header, 18));
	cr_assert(safetensors_open(path, &s, error, sizeof(error)) == 0, "%s", error);
	unlink(path);
	cr_assert(s.count == 5 && safetensors_find(&s, "a")->bytes == 3);
	cr_assert(safetensors_find(&s, "e")->bytes == 2);
	safetensors_close(&s);
	file(whole, compose(whole, "{" T("a", "F4", "[3]", "[0,2]") "}", 2));
	refused("inside of a byte");
}

Test(safetensors, a_file_that_is_cut_off_is_refused)
{
	char whole[256];
	size_t bytes = compose(whole, "{" T("x", "F32", "[1]", "[0,4]") "}", 4);
	uint64_t huge = UINT64_MAX;

	for (size_t n = 0; n < bytes; n++) {
		file(whole, n);
		refused("");
	}
	memcpy(whole, &huge, sizeof(huge));
	file(whole, bytes);
	refused("longer than the file");
	refused("No such file");
	strcpy(path, "/tmp");
	refused("not a regular file");
	file("", 0);
	cr_assert(unlink(path) == 0 && mkfifo(path, 0600) == 0);
	alarm(20); /* of an open() that waits for a writer */
	refused("not a regular file");
}

/* Of a long path the end is told, and the reason behind it. */
Test(safetensors, long_path)
{
	char error[512] = "", longest[3001];
	struct safetensors s;

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	cr_assert(safetensors_open(longest, &s, error, sizeof(error)) == -1);
	cr_assert(strstr(error, "...xxx") == error && strstr(error, "xxx: File name too long"),
		  "%s", error);
}
