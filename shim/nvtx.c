/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of NVTX ranges as a language for programs that have no other way to tell us something:
 *
 *	arena:reload [full] [layers=A,B] [sources=A,B] [role=ROLE]	a reload: begin and end
 *	arena:layer PATH			enter and leave; in a reload, leaving commits
 *	arena:tag NAME [value|scratch]		push and pop
 *	arena:capture				captures come: a window of CUPTI (ARENA_CUPTI)
 *
 * All but the last call the public API, which knows all the rules. A range cannot return an error:
 * a refusal goes to the log, and what it means for the reload is in its verdict. A range cannot say
 * either that its body failed; the verdict rests on what was put and verified.
 *
 * Any thread. Errors and texts are limited: this runs at every range whose name is ours.
 */
#include "shim/nvtx.h"

#include <string.h>

#include "arena/arena.h"
#include "arena/intern.h"
#include "arena/registry.h"
#include "arena/reload.h"
#include "shim/api.h"
#include "shim/cupti.h"
#include "shim/log.h"

#define PREFIX	   "arena:"
#define TEXT_BYTES 8192
#define LIST_MAX   512 /* layers or sources of one scope */
#define OPEN_MAX   32  /* layers and tags of one thread */
#define SAID_MAX   256

/* What was said: numbers of a text, and of what is wrong with it. */
static _Atomic uint64_t said[SAID_MAX];

bool nvtx_ours(const char *text)
{
	return text && strncmp(text, PREFIX, sizeof(PREFIX) - 1) == 0;
}

static size_t put_utf8(char *out, uint32_t c)
{
	if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		c = 0xfffd;
	if (c < 0x80)
		return (size_t)(out[0] = (char)c, 1);
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	out[0] = (char)(c < 0x10000 ? 0xe0 | c >> 12 : 0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> (c < 0x10000 ? 6 : 12) & 63));
	out[2] = (char)(0x80 | (c >> (c < 0x10000 ? 0 : 6) & 63));
	out[3] = (char)(0x80 | (c & 63));
	return c < 0x10000 ? 3 : 4;
}

const char *nvtx_narrow(const wchar_t *wide, char *buf, size_t buf_bytes)
{
	static const wchar_t prefix[] = L"" PREFIX;
	size_t used = 0;

	/* Stops at the first difference, so nothing behind the end of @wide is read. */
	for (size_t i = 0; prefix[i] != 0; i++)
		if (!wide || wide[i] != prefix[i])
			return NULL;
	while (*wide && used + 5 <= buf_bytes)
		used += put_utf8(buf + used, (uint32_t)*wide++);
	buf[used] = '\0';
	return buf;
}

/* @return true the first time; and when too many different ones came, never again. */
static bool first_time(const char *text, const char *problem)
{
	uint64_t id;

	if (load_relaxed(&said[SAID_MAX - 1]))
		return false;
	id = (uint64_t)intern(text) << 32 | intern(problem);
	for (size_t i = 0; i < SAID_MAX; i++) {
		uint64_t was = 0;

		/* Pairs with itself: of two threads with one text, one finds the other's. */
		if (load_relaxed(&said[i]) == id)
			return false;
		if (cas_acq_rel(&said[i], &was, id))
			return true;
		if (was == id)
			return false;
	}
	return false;
}

void nvtx_say(const char *text, const char *problem)
{
	/* The limit is that of different ones, not that of a site in the log. */
	counter_t site = 0;

	if (first_time(text, problem))
		log_write(LOG_WARN, &site, "NVTX range \"%.200s\": %s", text, problem);
}

/* A call of the API failed: it told why. Nothing is wrong where the library is off. */
static struct nvtx_open refused(const char *text, int err)
{
	if (err != ARENA_E_ABSENT)
		nvtx_say(text, arena_message());
	return (struct nvtx_open){ .kind = NVTX_NOTHING };
}

static struct nvtx_open mistaken(const char *text, const char *problem)
{
	nvtx_say(text, problem);
	return (struct nvtx_open){ .kind = NVTX_NOTHING };
}

/* ---- nesting ---- */

/* Layers and tags that this thread has open, the innermost last. */
static _Thread_local struct {
	struct nested {
		uint64_t serial;
		uint8_t kind;
		bool ended; /* out of order */
	} list[OPEN_MAX];
	uint32_t count;
	uint64_t serial;
} nest;

static bool nest_full(void)
{
	return nest.count == OPEN_MAX;
}

static struct nvtx_open nest_add(struct nvtx_open open)
{
	open.serial = ++nest.serial;
	nest.list[nest.count++] = (struct nested){ .serial = open.serial, .kind = open.kind };
	return open;
}

/* @return true: it is the innermost one, and taken out. Else it waits for those that are inside. */
static bool nest_end(const struct nvtx_open *open)
{
	uint32_t i = nest.count;

	while (i > 0 && nest.list[i - 1].serial != open->serial)
		i--;
	if (i > 0 && i == nest.count)
		return --nest.count, true;
	if (i > 0)
		nest.list[i - 1].ended = true;
	nvtx_say(open->kind == NVTX_LAYER ? interned(open->layer->path) : "arena:tag",
		 "ended while a layer or tag that began later is open, so nothing of it is "
		 "committed: end the innermost one first");
	return false;
}

/* Close what ended before what was inside of it. */
static void nest_settle(void)
{
	while (nest.count && nest.list[nest.count - 1].ended)
		if (nest.list[--nest.count].kind == NVTX_LAYER)
			arena_leave();
		else
			arena_tag_pop();
}

static struct nvtx_open too_many(const char *text)
{
	return mistaken(text, "this thread has 32 arena layers and tags open: end some");
}

/* ---- arena:reload ---- */

/* Cut @list at its commas. @return how many, 0: an empty one, or too many. */
static uint32_t cut(char *list, const char **out)
{
	uint32_t count = 0;
	char *rest = list, *one;

	while ((one = strsep(&rest, ",")) != NULL) {
		if (*one == '\0' || count == LIST_MAX)
			return 0;
		out[count++] = one;
	}
	return count;
}

struct scope_lists {
	const char *layers[LIST_MAX], *sources[LIST_MAX];
	bool full;
};

/* Each word once: of two lists the first one would be lost. */
static bool read_word(char *word, struct arena_scope *scope, struct scope_lists *lists)
{
	if (strcmp(word, "full") == 0)
		return !lists->full && (lists->full = true);
	if (strncmp(word, "layers=", 7) == 0 && !scope->layers_count)
		return (scope->layers_count = cut(word + 7, lists->layers)) != 0;
	if (strncmp(word, "sources=", 8) == 0 && !scope->sources_count)
		return (scope->sources_count = cut(word + 8, lists->sources)) != 0;
	if (strncmp(word, "role=", 5) == 0 && !scope->role)
		return *(scope->role = word + 5) != '\0';
	return false;
}

static struct nvtx_open begin_reload(const char *text, char *words)
{
	struct nvtx_open open = { .kind = NVTX_RELOAD };
	struct arena_scope scope = ARENA_SCOPE_INIT;
	struct scope_lists lists;
	char *word;
	int err;

	scope.layers = lists.layers;
	scope.sources = lists.sources;
	lists.full = false;
	while ((word = strsep(&words, " ")) != NULL)
		if (*word && !read_word(word, &scope, &lists))
			return mistaken(text,
					"not a scope: write arena:reload full, or "
					"layers=A,B sources=A,B role=target|draft|mtp, each once");
	if (lists.full && (scope.layers_count || scope.sources_count))
		return mistaken(text, "not a scope: write arena:reload full, or name layers or "
				      "sources, not both");
	err = arena_reload_begin(&scope, &open.reload);
	return err ? refused(text, err) : open;
}

/* ---- arena:layer ---- */

static struct nvtx_open begin_layer(const char *text, const char *path)
{
	struct nvtx_open open = { .kind = NVTX_LAYER };
	int err;

	if (*path == '\0')
		return mistaken(text, "which layer? write arena:layer PATH");
	if (nest_full())
		return too_many(text);
	err = arena_open(path, &open.layer);
	err = err ? err : arena_enter(open.layer);
	return err ? refused(text, err) : nest_add(open);
}

static void end_layer(struct arena *layer)
{
	int err = arena_leave();

	if (err == ARENA_OK && reload_open())
		err = arena_layer_commit(layer, NULL);
	if (err)
		refused(interned(layer->path), err);
}

/* ---- arena:tag ---- */

static struct nvtx_open begin_tag(const char *text, char *words)
{
	const char *name = strsep(&words, " "), *kind = words ? words : "scratch";
	bool value = strcmp(kind, "value") == 0;
	int err;

	if (*name == '\0' || (!value && strcmp(kind, "scratch") != 0))
		return mistaken(text, "not a tag: write arena:tag NAME, or NAME value, or NAME "
				      "scratch");
	if (nest_full())
		return too_many(text);
	err = arena_tag_push(name, value ? ARENA_VALUE : ARENA_SCRATCH);
	return err ? refused(text, err) : nest_add((struct nvtx_open){ .kind = NVTX_TAG });
}

/* ---- arena:capture ---- */

static struct nvtx_open begin_capture(const char *text, const char *words)
{
	if (*words != '\0')
		return mistaken(text, "takes no words: write arena:capture");
	cupti_phase(true);
	return (struct nvtx_open){ .kind = NVTX_CAPTURE };
}

/* ---- all ---- */

struct nvtx_open nvtx_begin(const char *text)
{
	char copy[TEXT_BYTES], *rest = copy, *verb;
	size_t length = strlen(text);

	if (length >= sizeof(copy))
		return mistaken(text, "longer than 8191 bytes: shorten it");
	memcpy(copy, text, length + 1);
	while (length > 0 && copy[length - 1] == ' ')
		copy[--length] = '\0';
	verb = strsep(&rest, " ");
	rest = rest ? rest + strspn(rest, " ") : copy + length;
	if (strcmp(verb, PREFIX "reload") == 0)
		return begin_reload(text, rest);
	if (strcmp(verb, PREFIX "layer") == 0)
		return begin_layer(text, rest);
	if (strcmp(verb, PREFIX "tag") == 0)
		return begin_tag(text, rest);
	if (strcmp(verb, PREFIX "capture") == 0)
		return begin_capture(text, rest);
	return mistaken(text, "not known: write arena:reload [SCOPE], arena:layer PATH, "
			      "arena:tag NAME [value|scratch], or arena:capture");
}

void nvtx_end(const struct nvtx_open *open)
{
	int err = ARENA_OK;

	if ((open->kind == NVTX_LAYER || open->kind == NVTX_TAG) && !nest_end(open))
		return;
	switch ((enum nvtx_kind)open->kind) {
	case NVTX_NOTHING:
		return;
	case NVTX_RELOAD:
		err = arena_reload_end(open->reload, NULL);
		/* The verdict was told by the end itself. */
		if (err == ARENA_E_REFUSED || err == ARENA_E_UNSAFE)
			return;
		break;
	case NVTX_LAYER:
		end_layer(open->layer);
		nest_settle();
		return;
	case NVTX_TAG:
		err = arena_tag_pop();
		nest_settle();
		break;
	case NVTX_CAPTURE:
		cupti_phase(false);
		return;
	}
	if (err)
		refused(open->kind == NVTX_RELOAD ? "arena:reload" : "arena:tag", err);
}
