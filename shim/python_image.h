/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where CPython keeps its frames, and how that is learnt from a running interpreter: _PyRuntime
 * begins with a table of offsets for debuggers. Any thread; nothing of Python is called.
 */
#ifndef SHIM_PYTHON_IMAGE_H
#define SHIM_PYTHON_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

/* The first minor version that has the table. */
#define PYTHON_IMAGE_MINOR 13
/* No such field. */
#define PYTHON_NONE UINT16_MAX

/* Offsets in bytes. */
struct python_layout {
	uint16_t object_bytes, object_type;   /* PyObject, ob_type in it */
	uint16_t string_length, string_state; /* PyASCIIObject */
	int minor;
	uint16_t state_frame;  /* PyThreadState: the innermost frame, or _PyCFrame ... */
	uint16_t holder_frame; /* ... and the innermost frame in it */
	uint16_t frame_previous, frame_code, frame_owner;
	uint16_t frame_at;    /* f_lasti (int, in units of 2 bytes), or a pointer into: */
	uint16_t frame_copy;  /* tlbc_index (int): which of code_copies; NONE: there are none */
	uint16_t code_start;  /* PyCodeObject.co_code_adaptive */
	uint16_t code_copies; /* PyCodeObject.co_tlbc: of each thread, where there is no GIL */
	uint16_t code_file, code_name;
	uint16_t ascii_bytes, compact_bytes; /* sizes of the string heads */
};

/*
 * @brief Read the layout out of an interpreter of version 3.@minor.
 * @param runtime &_PyRuntime, which is larger than any table; NULL: it is not exported.
 * @return false: a version whose table is not known, or one that does not fit together.
 */
bool python_image_read(const void *runtime, int minor, struct python_layout *out);

#endif
