/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shim as an injection of NVTX 3: it sees the ranges that a program pushes, pops, starts and
 * ends, and hands each on to the tool that the user asked for, if there is one.
 *
 * NVTX asks getenv() for the path of the injection when its first range comes. The wrapper of
 * getenv() answers with our own path, so the environment, which children inherit, stays as it is;
 * what the variable really says is the other tool. That tool is loaded and initialised first, and
 * the functions that it put into the table are called by ours. Each library has an instance of
 * NVTX of its own; one whose functions are not those of the first instance is left to the tool.
 *
 * Any thread. The mutex is not held when anything is called.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "arena/arena.h"
#include "arena/atomics.h"
#include "arena/intern.h"
#include "shim/elf.h"
#include "shim/gate.h"
#include "shim/log.h"
#include "shim/modules.h"
#include "shim/nvtx.h"
#include "shim/nvtx_abi.h"
#include "shim/shim.h"

#define VARIABLE "NVTX_INJECTION64_PATH"
#define ENTRY	 "InitializeInjectionNvtx2"

enum function {
#define X(module, number, name) FUNCTION_##name,
	NVTX_FUNCTIONS(X)
#undef X
		FUNCTION_COUNT
};

typedef const void *(*get_export_table_fn)(uint32_t id);
typedef int (*initialize_fn)(get_export_table_fn get);
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(get_export_table_fn get);

/* The tool's functions, NULL: it has none, or there is no tool. Constant once settled. */
static nvtx_function next[FUNCTION_COUNT];
static bool settled; /* by the first instance; guarded by the mutex */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

#define CALL_NEXT(name, type, ...) (((type)next[FUNCTION_##name])(__VA_ARGS__))

/* ---- texts ---- */

/* NULL: none, or a wide one. */
static const char *text_of(const struct nvtx_attributes *a)
{
	if (!a || a->size < sizeof(*a))
		return NULL;
	if (a->message_type == NVTX_MESSAGE_ASCII)
		return a->message;
	return a->message_type == NVTX_MESSAGE_REGISTERED ? nvtx_string(a->message) : NULL;
}

static const wchar_t *wide_of(const struct nvtx_attributes *a)
{
	return a && a->size >= sizeof(*a) && a->message_type == NVTX_MESSAGE_WIDE ? a->message
										  : NULL;
}

/* Apart, for the room that the text takes. */
static __attribute__((cold, noinline)) int pushed_wide(const void *domain, const wchar_t *wide)
{
	char text[NVTX_TEXT_BYTES];

	return nvtx_pushed(domain, nvtx_narrow(wide, text, sizeof(text)));
}

static __attribute__((cold, noinline)) uint64_t started_wide(uint64_t id, const wchar_t *wide)
{
	char text[NVTX_TEXT_BYTES];

	return nvtx_started(id, nvtx_narrow(wide, text, sizeof(text)));
}

static int pushed(const void *domain, const struct nvtx_attributes *a)
{
	const wchar_t *wide = wide_of(a);

	return wide ? pushed_wide(domain, wide) : nvtx_pushed(domain, text_of(a));
}

static uint64_t started(uint64_t id, const struct nvtx_attributes *a)
{
	const wchar_t *wide = wide_of(a);

	return wide ? started_wide(id, wide) : nvtx_started(id, text_of(a));
}

/* ---- what NVTX calls ---- */

static int push(const char *text)
{
	int depth = nvtx_pushed(NULL, text);

	return next[FUNCTION_push] ? CALL_NEXT(push, int (*)(const char *), text) : depth;
}

static int push_ex(const struct nvtx_attributes *a)
{
	int depth = pushed(NULL, a);

	return next[FUNCTION_push_ex]
		       ? CALL_NEXT(push_ex, int (*)(const struct nvtx_attributes *), a)
		       : depth;
}

static int push_wide(const wchar_t *text)
{
	int depth = pushed_wide(NULL, text);

	return next[FUNCTION_push_wide] ? CALL_NEXT(push_wide, int (*)(const wchar_t *), text)
					: depth;
}

static int pop(void)
{
	int depth = nvtx_popped(NULL);

	return next[FUNCTION_pop] ? CALL_NEXT(pop, int (*)(void)) : depth;
}

static int domain_push(const void *domain, const struct nvtx_attributes *a)
{
	int depth = pushed(domain, a);

	return next[FUNCTION_domain_push]
		       ? CALL_NEXT(domain_push,
				   int (*)(const void *, const struct nvtx_attributes *), domain, a)
		       : depth;
}

static int domain_pop(const void *domain)
{
	int depth = nvtx_popped(domain);

	return next[FUNCTION_domain_pop] ? CALL_NEXT(domain_pop, int (*)(const void *), domain)
					 : depth;
}

static uint64_t start(const char *text)
{
	uint64_t id = next[FUNCTION_start] ? CALL_NEXT(start, uint64_t(*)(const char *), text) : 0;

	return nvtx_started(id, text);
}

static uint64_t start_ex(const struct nvtx_attributes *a)
{
	uint64_t id = next[FUNCTION_start_ex]
			      ? CALL_NEXT(start_ex, uint64_t(*)(const struct nvtx_attributes *), a)
			      : 0;

	return started(id, a);
}

static uint64_t start_wide(const wchar_t *text)
{
	uint64_t id = next[FUNCTION_start_wide]
			      ? CALL_NEXT(start_wide, uint64_t(*)(const wchar_t *), text)
			      : 0;

	return started_wide(id, text);
}

static void end(uint64_t id)
{
	nvtx_ended(id);
	if (next[FUNCTION_end])
		CALL_NEXT(end, void (*)(uint64_t), id);
}

static uint64_t domain_start(const void *domain, const struct nvtx_attributes *a)
{
	uint64_t id = 0;

	if (next[FUNCTION_domain_start])
		id = CALL_NEXT(domain_start,
			       uint64_t(*)(const void *, const struct nvtx_attributes *), domain,
			       a);
	return started(id, a);
}

static void domain_end(const void *domain, uint64_t id)
{
	nvtx_ended(id);
	if (next[FUNCTION_domain_end])
		CALL_NEXT(domain_end, void (*)(const void *, uint64_t), domain, id);
}

/* @param handle what the tool gave for @text; NULL: nothing. */
static const void *string_kept(const void *handle, const char *text)
{
	if (!nvtx_ours(text))
		return handle;
	if (!handle)
		handle = interned(intern(text));
	nvtx_keep_string(handle, text);
	return handle;
}

static const void *domain_string(const void *domain, const char *text)
{
	const void *handle = NULL;

	if (next[FUNCTION_domain_string])
		handle = CALL_NEXT(domain_string, const void *(*)(const void *, const char *),
				   domain, text);
	return string_kept(handle, text);
}

static const void *domain_string_wide(const void *domain, const wchar_t *wide)
{
	const void *handle = NULL;
	char text[NVTX_TEXT_BYTES];

	if (next[FUNCTION_domain_string_wide])
		handle = CALL_NEXT(domain_string_wide,
				   const void *(*)(const void *, const wchar_t *), domain, wide);
	return string_kept(handle, nvtx_narrow(wide, text, sizeof(text)));
}

/* Without a tool only: a handle of its own for each domain, so that their levels are told apart. */
static const void *domain_create(const char *name)
{
	static char cells[256];
	static counter_t used;
	uint64_t cell = add_relaxed(&used, 1);

	return cell < sizeof(cells) ? &cells[cell] : NULL;
}

static const void *domain_create_wide(const wchar_t *name)
{
	return domain_create("");
}

/* ---- taking part ---- */

static const struct {
	int module;
	unsigned number;
	nvtx_function ours;
} functions[FUNCTION_COUNT] = {
#define X(module, number, name) { NVTX_MODULE_##module, number, (nvtx_function)name },
	NVTX_FUNCTIONS(X)
#undef X
};

/* Where an instance of NVTX keeps its pointers to our functions. @return false: it has them not. */
static bool find_slots(get_export_table_fn get, nvtx_function **slots)
{
	const struct nvtx_callbacks *c = get(NVTX_TABLE_CALLBACKS);
	nvtx_function **table;
	unsigned size;

	if (!c || c->struct_bytes < sizeof(*c))
		return false;
	for (int i = 0; i < FUNCTION_COUNT; i++) {
		if (!c->get_table(functions[i].module, &table, &size) || !table ||
		    functions[i].number >= size || !table[functions[i].number])
			return false;
		slots[i] = table[functions[i].number];
	}
	return true;
}

static bool only_without_tool(int function)
{
	return function == FUNCTION_domain_create || function == FUNCTION_domain_create_wide;
}

/* @param tools what the tool put into this instance. @return false: not what it put into others. */
static bool settle(nvtx_function *tools)
{
	bool same = true;

	pthread_mutex_lock(&mutex);
	if (!settled)
		memcpy(next, tools, sizeof(next));
	settled = true;
	same = memcmp(next, tools, sizeof(next)) == 0;
	pthread_mutex_unlock(&mutex);
	return same;
}

static const char *own_path(void)
{
	const struct stack_module *m =
		modules_get(modules_frame((uintptr_t)&InitializeInjectionNvtx2).module);

	return m ? m->path : NULL;
}

/* As getenv() of the C library. */
static const char *environment(const char *name)
{
	size_t length = strlen(name);

	for (char **e = environ; e && *e; e++)
		if (**e == *name && strncmp(*e, name, length) == 0 && (*e)[length] == '=')
			return *e + length + 1;
	return NULL;
}

/* Whom getenv() hands on to. */
static char *getenv_first(const char *name);
static QUICK_WORD char *(*_Atomic getenv_next)(const char *name) = getenv_first;

static __attribute__((cold)) char *getenv_first(const char *name)
{
	char *(*next_one)(const char *) = (char *(*)(const char *))elf_behind("getenv");

	if (!next_one)
		return (char *)environment(name);
	/* Relaxed: code that was loaded with the shim. */
	store_relaxed(&getenv_next, next_one);
	return next_one(name);
}

/* @return what the tool answered; 0: there is none. */
static int initialise_tool(get_export_table_fn get)
{
	const char *path = load_relaxed(&getenv_next)(VARIABLE);
	initialize_fn initialise;
	void *tool;

	if (!path || !*path)
		return 0;
	tool = dlopen(path, RTLD_LAZY);
	initialise = tool ? (initialize_fn)dlsym(tool, ENTRY) : NULL;
	if (initialise == InitializeInjectionNvtx2)
		return 0;
	if (!initialise)
		log_warn(VARIABLE "=%s: not an injection of NVTX: ranges are not handed on", path);
	return initialise ? initialise(get) : 0;
}

int InitializeInjectionNvtx2(get_export_table_fn get)
{
	nvtx_function before[FUNCTION_COUNT], tools[FUNCTION_COUNT], *slots[FUNCTION_COUNT];
	bool found = find_slots(get, slots);
	int answer;

	for (int i = 0; found && i < FUNCTION_COUNT; i++)
		before[i] = *slots[i];
	answer = initialise_tool(get);
	/* Loaded by NVTX, not preloaded: the wrappers of the driver are not in use. */
	if (!found || dlsym(RTLD_DEFAULT, "arena_abi") != (void *)&arena_abi)
		return answer;
	for (int i = 0; i < FUNCTION_COUNT; i++)
		tools[i] = answer && *slots[i] != before[i] ? *slots[i] : NULL;
	if (!settle(tools)) {
		log_warn("NVTX: a tool gives each library functions of its own: arena ranges of "
			 "some are not seen, unset " VARIABLE);
		return answer;
	}
	for (int i = 0; i < FUNCTION_COUNT; i++)
		if (!only_without_tool(i) || !answer)
			*slots[i] = functions[i].ours;
	return 1;
}

void nvtx_forget(void)
{
	pthread_mutex_init(&mutex, NULL);
	nvtx_forget_ranges();
}

/* Is the shim at work here, or will it be? */
static bool takes_part(void)
{
	const char *gate = environment("ARENA_GATE");
	int state = load_relaxed(&shim_state);

	/* Options are read at the start, which may come later; their case does not matter. */
	return (state == SHIM_ON || (state < SHIM_ON && (!gate || strcasecmp(gate, "off") != 0))) &&
	       gate_first();
}

static __attribute__((cold, noinline)) char *injection_path(char *value)
{
	const char *own = takes_part() ? own_path() : NULL;

	return own ? (char *)own : value;
}

/* PyTorch asks at every matrix product: what does not begin like ours costs a letter and a jump. */
QUICK_CODE __attribute__((visibility("default"))) char *getenv(const char *name)
{
	if (__builtin_expect(name[0] != VARIABLE[0] || strcmp(name, VARIABLE) != 0, 1))
		return load_relaxed(&getenv_next)(name);
	return injection_path(load_relaxed(&getenv_next)(name));
}
