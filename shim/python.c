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
 * extension modules are compiled against it. From 3.13 on the interpreter says it itself, for
 * debuggers, at the begin of _PyRuntime (python_image.c), also where it has no GIL; older ones have
 * a row of a table each. A version that is not known, a debug build without an image and an image
 * that does not fit have no Python frames in their stacks, which is said once in the coverage.
 * _Py_DumpTraceback() would need no table, but 3.10, 3.13 and later do not export it, and it
 * writes text through a descriptor, each time again.
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
#include "shim/python_image.h"

/* Longer names are cut. */
#define NAME_BYTES 1024
/* Frames that are not Python code, but the interpreter's own: FRAME_OWNED_BY_CSTACK and later. */
#define OWNED_BY_INTERPRETER 3
/* A state of PyASCIIObject: kind, compact and ascii are these bits above where they begin. */
#define STATE_KIND(s)	 ((s) % 8)
#define STATE_COMPACT(s) ((s) >> 3 & 1)
#define STATE_ASCII(s)	 ((s) >> 4 & 1)
/* The lowest bits of a stack reference (3.14) are no part of the address. */
#define REFERENCE_TAG ((uintptr_t)3)

#define NONE PYTHON_NONE
#define HEAD .object_bytes = 16, .object_type = 8, .string_length = 16, .string_state = 32

/* Offsets in bytes, by offsetof() against the headers of 3.10.13, 3.11.7, 3.12.1 (LP64). */
static const struct python_layout layouts[] = {
	{ HEAD, 10, 24, NONE, 24, 32, NONE, 96, NONE, NONE, NONE, 104, 112, 48, 72 },
	{ HEAD, 11, 56, 8, 48, 32, 69, 56, NONE, 184, NONE, 112, 120, 48, 72 },
	{ HEAD, 12, 56, 0, 8, 0, 70, 56, NONE, 192, NONE, 112, 120, 40, 56 },
};

enum { UNSOUGHT, SEEKING, FOUND, MISSING };

static _Atomic int state = UNSOUGHT;
/* How often there was no Python; sought again at each power of two, for it may come later. */
static counter_t misses;

/* Written before state becomes FOUND. */
static struct {
	const struct python_layout *layout;
	void *(*thread_state)(void);
	int (*finalizing)(void);
	int (*line)(const void *code, int offset);
	const void *code_type, *string_type;
} python;

/* ---- finding it ---- */

static const struct python_layout *layout_of(const char *version)
{
	static struct python_layout told; /* written by the one thread that seeks */
	int major = 0, minor = 0;

	if (sscanf(version, "%d.%d", &major, &minor) != 2 || major != 3 || sizeof(void *) != 8)
		return NULL;
	if (minor >= PYTHON_IMAGE_MINOR)
		return python_image_read(dlsym(RTLD_DEFAULT, "_PyRuntime"), minor, &told) ? &told
											  : NULL;
	/* Only debug builds export it, and their objects have other heads. */
	if (dlsym(RTLD_DEFAULT, "_Py_NegativeRefcount"))
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

static const void *type_of(const void *object)
{
	return pointer_at(object, python.layout->object_type);
}

/*
 * The bits of a state from its kind on. Below them is whether the string is interned, a number up
 * to 3 in two bits, or without a GIL in a byte, or since 3.14 in two; above them is anything. So of
 * a string that has its characters with it, only one reading makes sense.
 * @return 0: none does.
 */
static uint32_t state_bits(uint32_t word)
{
	static const unsigned shifts[] = { 2, 8, 16 };

	for (size_t i = 0; i < sizeof(shifts) / sizeof(shifts[0]); i++) {
		uint32_t bits = word >> shifts[i], kind = STATE_KIND(bits);

		if ((word & ((1u << shifts[i]) - 1)) <= 3 && STATE_COMPACT(bits) &&
		    (kind == 1 || kind == 2 || kind == 4))
			return bits;
	}
	return 0;
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
	const struct python_layout *l = python.layout;
	char text[NAME_BYTES];
	size_t length, used = 0, i = 0;
	uint32_t bits;
	const char *data;

	if (!s || type_of(s) != python.string_type)
		return intern("?");
	length = *(const size_t *)(s + l->string_length);
	bits = state_bits(*(const uint32_t *)(s + l->string_state));
	if (bits == 0)
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

/* Where the instructions are that @frame runs: threads may have copies of their own. */
static const char *code_start(const char *frame, const char *code)
{
	const struct python_layout *l = python.layout;
	const char *copies = l->code_copies != NONE ? pointer_at(code, l->code_copies) : NULL;
	int32_t copy;

	if (!copies)
		return code + l->code_start;
	copy = *(const int32_t *)(frame + l->frame_copy);
	if (copy < 0 || copy >= *(const int64_t *)copies)
		return NULL;
	return ((const char *const *)(copies + sizeof(int64_t)))[copy];
}

/* @return the byte offset of the instruction that @frame is at; -1: nobody knows. */
static int instruction(const char *frame, const char *code)
{
	const struct python_layout *l = python.layout;
	const char *start;
	int64_t offset, bytes;

	if (l->code_start == NONE)
		return *(const int *)(frame + l->frame_at) * 2;
	start = code_start(frame, code);
	offset = (const char *)pointer_at(frame, l->frame_at) - start;
	bytes = *(const int64_t *)(code + l->object_bytes) * 2;
	/* The pointer may be one before the first. */
	return start && offset >= -2 && offset < bytes ? (int)offset : -1;
}

static const char *code_of(const char *frame)
{
	uintptr_t p = (uintptr_t)pointer_at(frame, python.layout->frame_code);

	return (const char *)(p & ~REFERENCE_TAG);
}

static bool is_python(const char *frame, const char *code)
{
	uint16_t owner = python.layout->frame_owner;

	return (owner == NONE || frame[owner] < OWNED_BY_INTERPRETER) && code &&
	       type_of(code) == python.code_type;
}

static size_t walk(const char *thread, struct python_frame *out, size_t max)
{
	const struct python_layout *l = python.layout;
	const char *frame = pointer_at(thread, l->state_frame);
	size_t count = 0;

	if (frame && l->holder_frame != NONE)
		frame = pointer_at(frame, l->holder_frame);
	for (; frame && count < max; frame = pointer_at(frame, l->frame_previous)) {
		const char *code = code_of(frame);

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
