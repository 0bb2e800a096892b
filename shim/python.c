/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python frames of the calling thread, read where CPython keeps them.
 *
 * Nobody but the thread itself changes its frames, and it is here: so they are read with or
 * without the GIL, which is never taken (whoever holds it may be waiting for a lock of the driver
 * that this thread holds). Nothing of Python is called but three functions that only read: the
 * thread's state, whether the interpreter ends, the line of an instruction.
 *
 * Where the fields lie is fixed for all releases of one minor version (3.10.x, ...), because
 * extension modules are compiled against it: one row of a table each. A version without a row, a
 * debug build and a free-threaded one have no Python frames in their stacks, which is said once in
 * the coverage. _Py_DumpTraceback() would need no table, but 3.10, 3.13 and later do not export
 * it, and it writes text through a descriptor, each time again.
 *
 * The state is the first one that this thread got: in a sub-interpreter, the frames end where it
 * was entered.
 */
#include "shim/python.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/atomics.h"
#include "arena/intern.h"
#include "shim/coverage.h"

/* Longer names are cut. */
#define NAME_BYTES 1024
/* No such field. */
#define NONE UINT16_MAX
/* Frames that are not Python code, but the interpreter's own: FRAME_OWNED_BY_CSTACK and later. */
#define OWNED_BY_INTERPRETER 3
/* The same in all versions: PyObject.ob_type; PyASCIIObject.length and .state, where kind,
 * compact and ascii are these bits. */
#define OBJECT_TYPE	 8
#define STRING_LENGTH	 16
#define STRING_STATE	 32
#define STATE_KIND(s)	 ((s) >> 2 & 7)
#define STATE_COMPACT(s) ((s) >> 5 & 1)
#define STATE_ASCII(s)	 ((s) >> 6 & 1)

/* Offsets in bytes, by offsetof() against the headers of 3.10.13, 3.11.7, 3.12.1, 3.13.0 (LP64). */
static const struct layout {
	int minor;
	uint16_t state_frame;  /* PyThreadState: the innermost frame, or _PyCFrame ... */
	uint16_t holder_frame; /* ... and the innermost frame in it */
	uint16_t frame_previous, frame_code, frame_owner;
	uint16_t frame_at;   /* f_lasti (int, in units of 2 bytes), or a pointer into: */
	uint16_t code_start; /* PyCodeObject.co_code_adaptive */
	uint16_t code_file, code_name;
	uint16_t ascii_bytes, compact_bytes; /* sizes of the string heads */
} layouts[] = {
	{ 10, 24, NONE, 24, 32, NONE, 96, NONE, 104, 112, 48, 72 },
	{ 11, 56, 8, 48, 32, 69, 56, 184, 112, 120, 48, 72 },
	{ 12, 56, 0, 8, 0, 70, 56, 192, 112, 120, 40, 56 },
	{ 13, 72, NONE, 8, 0, 70, 56, 200, 112, 120, 40, 56 },
};

enum { UNSOUGHT, SEEKING, FOUND, MISSING };

static _Atomic int state = UNSOUGHT;
/* How often there was no Python; sought again at each power of two, for it may come later. */
static counter_t misses;

/* Written before state becomes FOUND. */
static struct {
	const struct layout *layout;
	void *(*thread_state)(void);
	int (*finalizing)(void);
	int (*line)(const void *code, int offset);
	const void *code_type, *string_type;
} python;

/* ---- finding it ---- */

/* From 3.13 on, _PyRuntime begins with a cookie, the version, and whether there is no GIL. */
static bool free_threaded(int minor)
{
	const uint64_t *runtime = minor < 13 ? NULL : dlsym(RTLD_DEFAULT, "_PyRuntime");

	return minor >= 13 && (!runtime || memcmp(runtime, "xdebugpy", 8) != 0 || runtime[2] != 0);
}

static const struct layout *layout_of(const char *version)
{
	int major = 0, minor = 0;

	if (sscanf(version, "%d.%d", &major, &minor) != 2 || major != 3 || sizeof(void *) != 8)
		return NULL;
	/* Only debug builds export it, and their objects have other heads. */
	if (dlsym(RTLD_DEFAULT, "_Py_NegativeRefcount") || free_threaded(minor))
		return NULL;
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (layouts[i].minor == minor)
			return &layouts[i];
	return NULL;
}

static bool look_up(void)
{
	python.thread_state = (void *(*)(void))dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
	python.finalizing = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsFinalizing");
	if (!python.finalizing)
		python.finalizing = (int (*)(void))dlsym(RTLD_DEFAULT, "_Py_IsFinalizing");
	python.line = (int (*)(const void *, int))dlsym(RTLD_DEFAULT, "PyCode_Addr2Line");
	python.code_type = dlsym(RTLD_DEFAULT, "PyCode_Type");
	python.string_type = dlsym(RTLD_DEFAULT, "PyUnicode_Type");
	return python.thread_state && python.finalizing && python.line && python.code_type &&
	       python.string_type;
}

/* @return the next state. */
static int seek(void)
{
	const char *(*get_version)(void) =
		(const char *(*)(void))dlsym(RTLD_DEFAULT, "Py_GetVersion");
	char text[64] = "Python ";

	if (!get_version)
		return UNSOUGHT;
	python.layout = layout_of(get_version());
	if (python.layout && look_up())
		return FOUND;
	strncat(text, get_version(), strcspn(get_version(), " ("));
	coverage_note(COVERAGE_PYTHON_UNREAD, text);
	return MISSING;
}

static __attribute__((cold, noinline)) bool found_slow(void)
{
	uint64_t times = load_relaxed(&misses);
	int expected = UNSOUGHT;

	counter_bump(&misses);
	if ((times & (times - 1)) != 0)
		return false;
	/* Who comes while another thread seeks goes without. */
	if (!cas_acq_rel(&state, &expected, SEEKING))
		return expected == FOUND;
	/* Pairs with the acquire load in found(): who sees FOUND sees what was found. */
	store_release(&state, seek());
	return load_relaxed(&state) == FOUND;
}

static bool found(void)
{
	/* Pairs with the release store in found_slow(). */
	int s = load_acquire(&state);

	return s == FOUND || (s == UNSOUGHT && found_slow());
}

/* ---- reading it ---- */

static const void *pointer_at(const void *p, uint16_t offset)
{
	return *(const void *const *)((const char *)p + offset);
}

/* One code point as UTF-8. Half of a surrogate pair stands for a byte that was no text. */
static size_t put_utf8(char *out, uint32_t c)
{
	if (c < 0x80)
		return (size_t)(out[0] = (char)c, 1);
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c >= 0xd800 && c < 0xe000)
		c = 0xfffd;
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 63));
		out[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	out[0] = (char)(0xf0 | (c >> 18 & 7));
	out[1] = (char)(0x80 | (c >> 12 & 63));
	out[2] = (char)(0x80 | (c >> 6 & 63));
	out[3] = (char)(0x80 | (c & 63));
	return 4;
}

static uint32_t code_point(const void *data, unsigned kind, size_t i)
{
	return kind == 1   ? ((const uint8_t *)data)[i]
	       : kind == 2 ? ((const uint16_t *)data)[i]
			   : ((const uint32_t *)data)[i];
}

/* @return the interned text of a str, "?" for anything else. */
static uint32_t text_of(const char *s)
{
	const struct layout *l = python.layout;
	char text[NAME_BYTES];
	size_t length, used = 0, i = 0;
	uint32_t bits;
	const char *data;

	if (!s || pointer_at(s, OBJECT_TYPE) != python.string_type)
		return intern("?");
	length = *(const size_t *)(s + STRING_LENGTH);
	bits = *(const uint32_t *)(s + STRING_STATE);
	if (!STATE_COMPACT(bits))
		return intern("?");
	data = s + (STATE_ASCII(bits) ? l->ascii_bytes : l->compact_bytes);
	if (STATE_ASCII(bits)) { /* nearly always */
		i = used = length < sizeof(text) - 8 ? length : sizeof(text) - 8;
		memcpy(text, data, used);
	}
	for (; i < length && used < sizeof(text) - 8; i++)
		used += put_utf8(text + used, code_point(data, STATE_KIND(bits), i));
	strcpy(text + used, i < length ? "..." : "");
	return intern(text);
}

/* @return the byte offset of the instruction that @frame is at. */
static int instruction(const char *frame, const char *code)
{
	const struct layout *l = python.layout;

	if (l->code_start == NONE)
		return *(const int *)(frame + l->frame_at) * 2;
	return (int)((const char *)pointer_at(frame, l->frame_at) - (code + l->code_start));
}

static bool is_python(const char *frame, const char *code)
{
	uint16_t owner = python.layout->frame_owner;

	return (owner == NONE || frame[owner] < OWNED_BY_INTERPRETER) && code &&
	       pointer_at(code, OBJECT_TYPE) == python.code_type;
}

static size_t walk(const char *thread, struct python_frame *out, size_t max)
{
	const struct layout *l = python.layout;
	const char *frame = pointer_at(thread, l->state_frame);
	size_t count = 0;

	if (frame && l->holder_frame != NONE)
		frame = pointer_at(frame, l->holder_frame);
	for (; frame && count < max; frame = pointer_at(frame, l->frame_previous)) {
		const char *code = pointer_at(frame, l->frame_code);

		if (is_python(frame, code))
			out[count++] = (struct python_frame){
				.file = text_of(pointer_at(code, l->code_file)),
				.function = text_of(pointer_at(code, l->code_name)),
				.line = python.line(code, instruction(frame, code)),
			};
	}
	return count;
}

size_t python_stack(struct python_frame *out, size_t max)
{
	int saved = errno;
	const char *thread;
	size_t count = 0;

	if (found() && !python.finalizing()) {
		thread = python.thread_state();
		count = thread ? walk(thread, out, max) : 0;
	}
	errno = saved;
	return count;
}

void python_forget(void)
{
	int seeking = SEEKING;

	/* The thread that sought is not in this process. */
	cas_acq_rel(&state, &seeking, UNSOUGHT);
}
