/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python frames of interpreters that say where they keep them (shim/python.c, python_image.c): this
 * program plays an interpreter. What it exports is what those look for.
 */
#include "shim/python.h"

#include <criterion/criterion.h>
#include <string.h>

#include "arena/intern.h"
#include "shim/python_image.h"

#define EXPORT __attribute__((visibility("default")))

/* ---- the interpreter ---- */

EXPORT uint64_t _PyRuntime[128];
EXPORT uint64_t PyCode_Type[4], PyUnicode_Type[4];
EXPORT const char *Py_GetVersion(void);
EXPORT void *PyGILState_GetThisThreadState(void);
EXPORT int Py_IsFinalizing(void);
EXPORT int PyCode_Addr2Line(const void *code, int offset);

static const char *version;
static uint64_t thread[16], frames[3][16], copies[3];
static char code[2][256], bytecode[64];
static unsigned head; /* bytes of a PyObject */

const char *Py_GetVersion(void)
{
	return version;
}

void *PyGILState_GetThisThreadState(void)
{
	return thread;
}

int Py_IsFinalizing(void)
{
	return 0;
}

int PyCode_Addr2Line(const void *of, int offset)
{
	return offset;
}

/* A row of the table: the size of a struct, and offsets in it. */
static void row(unsigned at, const uint64_t *numbers, unsigned count)
{
	memcpy(&_PyRuntime[at], numbers, count * sizeof(*numbers));
}
#define ROW(at, ...) \
	row(at, (const uint64_t[]){ __VA_ARGS__ }, sizeof((uint64_t[]){ __VA_ARGS__ }) / 8)

static void put(void *at, unsigned offset, const void *value)
{
	memcpy((char *)at + offset, &value, sizeof(value));
}

static void make_string(char *s, const char *text, uint32_t state)
{
	size_t length = strlen(text);

	put(s, head - 8, PyUnicode_Type);
	memcpy(s + head, &length, sizeof(length));
	memcpy(s + head + 16, &state, sizeof(state));
	strcpy(s + head + 24, text);
}

/* Bits of a state: kind 1, compact, ascii, statically allocated. */
#define STATE (1u | 1u << 3 | 1u << 4 | 1u << 5)

/* Two frames, and between them one that is the interpreter's own. */
static void make_frames(uintptr_t tag, uint32_t state)
{
	static char strings[4][128];
	const int64_t units = 20;
	static const char *const names[] = { "a.py", "inner", "b.py", "outer" };

	for (int i = 0; i < 4; i++)
		make_string(strings[i], names[i], state);
	for (int i = 0; i < 2; i++) {
		put(code[i], head - 8, PyCode_Type);
		memcpy(code[i] + head, &units, sizeof(units));
		put(code[i], 112, strings[2 * i]);
		put(code[i], 120, strings[2 * i + 1]);
	}
	put(thread, 72, frames[0]);
	put(frames[0], 0, code[0] + tag);
	put(frames[0], 8, frames[1]);
	put(frames[0], 56, code[0] + 200 + 6);
	put(frames[1], 0, code[1]);
	put(frames[1], 8, frames[2]);
	((char *)frames[1])[70] = 3;
	put(frames[2], 0, code[1] + tag);
	put(frames[2], 56, code[1] + 200 + 10);
}

static void make_common(uint64_t hex, bool free_threaded)
{
	memcpy(_PyRuntime, "xdebugpy", 8);
	_PyRuntime[1] = hex;
	_PyRuntime[2] = free_threaded;
	head = free_threaded ? 32 : 16;
}

static void make_13(bool free_threaded)
{
	version = "3.13.0 (main)";
	make_common(0x030d00f0, free_threaded);
	ROW(19, 400, 0, 0, 16, 72);
	ROW(28, 88, 8, 0, 56, 80, 70);
	ROW(34, 224, 112, 120, 128, 136, 68, 52, 96, 104, 200);
	ROW(44, head, head - 8);
	ROW(67, head + 48, head + 16, head, head + 24);
}

static void make_14(bool free_threaded)
{
	version = "3.14.0 (main)";
	make_common(0x030e00f0, free_threaded);
	ROW(22, 400, 0, 0, 16, 72);
	ROW(31, 96, 8, 0, 56, 80, 70, 64, 76);
	ROW(39, 232, 112, 120, 128, 136, 68, 52, 96, 104, 200, 208);
	ROW(50, head, head - 8);
	ROW(77, head + 48, head + 16, head, head + 24);
}

/* ---- what is read ---- */

static void check_frames(int inner, int outer)
{
	struct python_frame f[4];

	cr_assert_eq(python_stack(f, 4), 2);
	cr_assert_str_eq(interned(f[0].file), "a.py");
	cr_assert_str_eq(interned(f[0].function), "inner");
	cr_assert_eq(f[0].line, inner);
	cr_assert_str_eq(interned(f[1].file), "b.py");
	cr_assert_str_eq(interned(f[1].function), "outer");
	cr_assert_eq(f[1].line, outer);
}

Test(python, frames_of_3_13)
{
	make_13(false);
	make_frames(0, 0xabcd0000u | STATE << 2 | 1); /* what is unused is not cleared */
	check_frames(6, 10);
}

Test(python, frames_of_3_13_without_gil)
{
	make_13(true);
	make_frames(0, 0xabcd0000u | STATE << 8 | 2);
	check_frames(6, 10);
}

Test(python, frames_of_3_14)
{
	make_14(false);
	make_frames(1, 0xabc00000u | STATE << 16 | 3);
	check_frames(6, 10);
}

/* A thread runs a copy of the code that is its own; the other frame runs none that there is. */
Test(python, frames_of_3_14_without_gil)
{
	make_14(true);
	make_frames(1, STATE << 16);
	copies[0] = 2;
	put(copies, 8, code[0] + 200);
	put(copies, 16, bytecode);
	put(code[0], 208, copies);
	put(code[1], 208, copies);
	put(frames[0], 56, bytecode + 14);
	((int32_t *)frames[0])[19] = 1;
	((int32_t *)frames[2])[19] = 2;
	check_frames(14, -1);
}

Test(python, an_instruction_that_is_none)
{
	make_14(false);
	make_frames(0, STATE << 16);
	put(frames[0], 56, code[0] + 200 + 40);
	put(frames[2], 56, code[1] + 200 - 4);
	check_frames(-1, -1);
}

Test(python, a_string_of_another_kind)
{
	struct python_frame f[4];

	make_14(false);
	/* No reading makes sense: not compact, interned in a way that is none, kind 3. */
	for (int i = 0; i < 4; i++) {
		static const uint32_t states[] = { (STATE & ~8u) << 16, STATE << 16 | 4u,
						   (STATE | 2u) << 16, (STATE & ~8u) << 2 };

		make_frames(0, states[i]);
		cr_assert_eq(python_stack(f, 4), 2);
		cr_assert_str_eq(interned(f[0].file), "?");
	}
}

/* ---- tables that are not believed ---- */

Test(python_image, what_it_says)
{
	struct python_layout l;

	make_14(false);
	cr_assert(python_image_read(_PyRuntime, 14, &l));
	cr_assert_eq(l.state_frame, 72);
	cr_assert_eq(l.compact_bytes, 56);
	cr_assert_eq(l.frame_copy, PYTHON_NONE);
	make_14(true);
	cr_assert(python_image_read(_PyRuntime, 14, &l));
	cr_assert_eq(l.object_type, 24);
	cr_assert_eq(l.frame_copy, 76);
	cr_assert_eq(l.code_copies, 208);
}

Test(python_image, of_another_version)
{
	struct python_layout l;

	make_14(false);
	cr_assert(!python_image_read(_PyRuntime, 13, &l));
	cr_assert(!python_image_read(_PyRuntime, 15, &l));
	cr_assert(!python_image_read(NULL, 14, &l));
	cr_assert(!python_image_read((char *)_PyRuntime + 4, 14, &l));
	_PyRuntime[1] = 0x030e00a5; /* 3.14.0a5: its table was another one */
	cr_assert(!python_image_read(_PyRuntime, 14, &l));
	_PyRuntime[1] = 0x030e00c1;
	cr_assert(python_image_read(_PyRuntime, 14, &l));
	_PyRuntime[0]++;
	cr_assert(!python_image_read(_PyRuntime, 14, &l));
	make_14(false);
	_PyRuntime[2] = 2;
	cr_assert(!python_image_read(_PyRuntime, 14, &l));
}

/* Numbers that any order of the fields but the right one gives. */
Test(python_image, that_does_not_fit_together)
{
	static const struct {
		unsigned at;
		uint64_t number;
	} wrong[] = {
		{ 26, 400 }, { 26, 76 },  { 26, UINT64_MAX }, { 22, 1u << 20 }, { 32, 0 },
		{ 33, 92 },  { 34, 57 },  { 36, 96 },	      { 40, 120 },	{ 41, 228 },
		{ 48, 232 }, { 48, 201 }, { 50, 24 },	      { 51, 0 },	{ 78, 40 },
		{ 79, 24 },  { 80, 200 }, { 80, 1u << 20 },   { 80, 16 },
	};
	struct python_layout l;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		make_14(false);
		cr_assert(python_image_read(_PyRuntime, 14, &l));
		_PyRuntime[wrong[i].at] = wrong[i].number;
		cr_assert(!python_image_read(_PyRuntime, 14, &l), "number %u: %lu", wrong[i].at,
			  wrong[i].number);
	}
	make_14(true);
	_PyRuntime[49] = 0xffff;
	cr_assert(!python_image_read(_PyRuntime, 14, &l));
}

Test(python, one_that_does_not_say_it)
{
	struct python_frame f[4];

	make_14(false);
	make_frames(0, STATE << 16);
	_PyRuntime[80] = 0;
	cr_assert_eq(python_stack(f, 4), 0);
}
