/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reloads, layers and tags driven by ranges of NVTX, as NVIDIA's own header makes them.
 *
 *	nvtx SCENE
 */
#include <cuda.h>
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arena/arena.h"
#include "shim/nvtx_abi.h"

#define KIB 1024u

#define CHECK(condition)                                                                     \
	do {                                                                                 \
		if (!(condition)) {                                                          \
			dprintf(real_stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			exit(EXIT_FAILURE);                                                  \
		}                                                                            \
	} while (0)

/* shim/nvtx_abi.h declares these itself. */
_Static_assert(sizeof(struct nvtx_attributes) == sizeof(nvtxEventAttributes_t), "attributes");
_Static_assert(offsetof(struct nvtx_attributes, message) ==
		       offsetof(nvtxEventAttributes_t, message),
	       "message");
_Static_assert(offsetof(struct nvtx_attributes, message_type) ==
		       offsetof(nvtxEventAttributes_t, messageType),
	       "type");
_Static_assert((int)NVTX_MESSAGE_ASCII == (int)NVTX_MESSAGE_TYPE_ASCII &&
		       (int)NVTX_MESSAGE_WIDE == (int)NVTX_MESSAGE_TYPE_UNICODE &&
		       (int)NVTX_MESSAGE_REGISTERED == (int)NVTX_MESSAGE_TYPE_REGISTERED,
	       "types");
_Static_assert(NVTX_TABLE_CALLBACKS == NVTX_ETID_CALLBACKS &&
		       (int)NVTX_MODULE_CORE == (int)NVTX_CB_MODULE_CORE &&
		       (int)NVTX_MODULE_CORE2 == (int)NVTX_CB_MODULE_CORE2,
	       "tables");
enum {
#define X(module, number, name) NUMBER_##name = number,
	NVTX_FUNCTIONS(X)
#undef X
};
_Static_assert((int)NUMBER_push_ex == (int)NVTX_CBID_CORE_RangePushEx &&
		       (int)NUMBER_push == (int)NVTX_CBID_CORE_RangePushA &&
		       (int)NUMBER_push_wide == (int)NVTX_CBID_CORE_RangePushW &&
		       (int)NUMBER_pop == (int)NVTX_CBID_CORE_RangePop,
	       "pushes");
_Static_assert((int)NUMBER_start_ex == (int)NVTX_CBID_CORE_RangeStartEx &&
		       (int)NUMBER_start == (int)NVTX_CBID_CORE_RangeStartA &&
		       (int)NUMBER_start_wide == (int)NVTX_CBID_CORE_RangeStartW &&
		       (int)NUMBER_end == (int)NVTX_CBID_CORE_RangeEnd,
	       "starts");
_Static_assert((int)NUMBER_domain_push == (int)NVTX_CBID_CORE2_DomainRangePushEx &&
		       (int)NUMBER_domain_pop == (int)NVTX_CBID_CORE2_DomainRangePop &&
		       (int)NUMBER_domain_start == (int)NVTX_CBID_CORE2_DomainRangeStartEx &&
		       (int)NUMBER_domain_end == (int)NVTX_CBID_CORE2_DomainRangeEnd &&
		       (int)NUMBER_domain_string == (int)NVTX_CBID_CORE2_DomainRegisterStringA &&
		       (int)NUMBER_domain_string_wide ==
			       (int)NVTX_CBID_CORE2_DomainRegisterStringW &&
		       (int)NUMBER_domain_create == (int)NVTX_CBID_CORE2_DomainCreateA &&
		       (int)NUMBER_domain_create_wide == (int)NVTX_CBID_CORE2_DomainCreateW,
	       "domains");

static int real_stderr = 2, said = -1;

/* ---- words ---- */

static void use_cuda(void)
{
	CUcontext context;
	CUdevice device;

	CHECK(cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, 0) == CUDA_SUCCESS);
	CHECK(cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
	CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
}

static struct arena_status status(void)
{
	struct arena_status s = ARENA_STATUS_INIT;

	CHECK(arena_status(&s) == 0);
	return s;
}

static CUdeviceptr alloc(size_t size)
{
	CUdeviceptr p;

	CHECK(cuMemAlloc(&p, size) == CUDA_SUCCESS);
	return p;
}

/* What goes to stderr from here on is kept. */
static void listen(void)
{
	real_stderr = dup(2);
	said = memfd_create("said", 0);
	CHECK(said >= 0 && dup2(said, 2) == 2);
}

/* How often @text was said. */
static unsigned heard(const char *text)
{
	static char all[65536];
	ssize_t n = pread(said, all, sizeof(all) - 1, 0);
	unsigned times = 0;

	CHECK(n >= 0);
	all[n] = '\0';
	for (const char *at = all; (at = strstr(at, text)) != NULL; at++)
		times++;
	return times;
}

static nvtxEventAttributes_t event(nvtxStringHandle_t registered, const char *text)
{
	nvtxEventAttributes_t a = { .version = NVTX_VERSION,
				    .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE };

	a.messageType = registered ? NVTX_MESSAGE_TYPE_REGISTERED : NVTX_MESSAGE_TYPE_ASCII;
	if (registered)
		a.message.registered = registered;
	else
		a.message.ascii = text;
	return a;
}

/* ---- scenes ---- */

static void load(CUdeviceptr value, int fill)
{
	struct arena_spec spec = ARENA_SPEC_INIT;
	unsigned char bytes[4 * KIB];
	struct arena *layer;
	void *live;

	memset(bytes, fill, sizeof(bytes));
	spec.bytes = sizeof(bytes);
	CHECK(arena_current(&layer) == 0 && layer);
	CHECK(arena_put(layer, "W", &spec, bytes, ARENA_STAGED, &live, NULL) == 0);
}

/* Two reloads: the second serves the tag's allocation from its slot again. */
static void scene_push(void)
{
	CUdeviceptr workspace[2];

	use_cuda();
	for (int i = 0; i < 2; i++) {
		CHECK(nvtxRangePushA("step") == 0);
		CHECK(nvtxRangePushA("arena:reload full") == 1);
		CHECK(status().reload_open);
		CHECK(nvtxRangePushA("arena:layer model.layers.0") == 2);
		CHECK(nvtxRangePushA("something else") == 3);
		load(0, i + 1);
		CHECK(nvtxRangePop() == 3);
		nvtxRangePushA("arena:tag workspace scratch");
		workspace[i] = alloc(4 * KIB);
		nvtxRangePop();
		nvtxRangePop(); /* commits */
		CHECK(nvtxRangePop() == 1);
		CHECK(!status().reload_open && status().generation == (uint64_t)i + 1);
		CHECK(nvtxRangePop() == 0);
		CHECK(cuMemFree(workspace[i]) == CUDA_SUCCESS);
	}
	CHECK(workspace[0] == workspace[1]);
	CHECK(status().arenas == 1 && status().slots == 2);
	CHECK(nvtxRangePop() == NVTX_NO_PUSH_POP_TRACKING);
	nvtxRangePushA("arena:reload layers=model.layers.0 role=draft");
	nvtxRangePop();
	CHECK(status().reload_id == 3);
}

static void scene_domains(void)
{
	nvtxDomainHandle_t one = nvtxDomainCreateA("one"), two = nvtxDomainCreateA("two");
	nvtxEventAttributes_t layer, plain = event(NULL, "plain"), tag;
	struct arena *current;

	use_cuda();
	CHECK(one && two && one != two);
	layer = event(nvtxDomainRegisterStringA(one, "arena:layer a"), NULL);
	CHECK(layer.message.registered);
	tag = event(NULL, "arena:tag t");
	CHECK(nvtxDomainRangePushEx(one, &layer) == 0);
	CHECK(nvtxDomainRangePushEx(two, &plain) == 0);
	CHECK(nvtxRangePushEx(&tag) == 0);
	CHECK(nvtxDomainRangePop(two) == 0); /* not in order: domains do not know each other */
	CHECK(arena_current(&current) == 0 && current);
	CHECK(arena_tag_pop() == 0); /* the tag is still pushed: take it ourselves */
	CHECK(arena_tag_push("t", ARENA_SCRATCH) == 0);
	CHECK(nvtxRangePop() == 0);
	CHECK(nvtxDomainRangePop(one) == 0);
	CHECK(arena_current(&current) == 0 && !current);
}

/* Wide texts by each way that they may come. */
static void scene_wide(void)
{
	nvtxDomainHandle_t domain = nvtxDomainCreateW(L"wide");
	static wchar_t longest[8200];
	nvtxEventAttributes_t a;
	struct arena *current, *layer;
	nvtxRangeId_t id;

	use_cuda();
	listen();
	CHECK(nvtxRangePushW(L"arena:reload layers=\u00fc\u20ac\U0001f600") == 0);
	CHECK(status().reload_open);
	a = event(NULL, NULL);
	a.messageType = NVTX_MESSAGE_TYPE_UNICODE;
	a.message.unicode = L"arena:layer \u00fc\u20ac\U0001f600";
	CHECK(nvtxRangePushEx(&a) == 1);
	CHECK(arena_current(&current) == 0 && current);
	CHECK(arena_open("\303\274\342\202\254\360\237\230\200", &layer) == 0);
	CHECK(current == layer);
	CHECK(nvtxRangePop() == 1 && nvtxRangePop() == 0 && !status().reload_open);
	CHECK(nvtxDomainRangePushEx(domain, &a) == 0);
	CHECK(arena_current(&current) == 0 && current == layer);
	CHECK(nvtxDomainRangePop(domain) == 0);
	id = nvtxRangeStartW(L"arena:layer started");
	CHECK(arena_current(&current) == 0 && current);
	nvtxRangeEnd(id);
	id = nvtxDomainRangeStartEx(domain, &a);
	CHECK(arena_current(&current) == 0 && current == layer);
	nvtxDomainRangeEnd(domain, id);
	a = event(nvtxDomainRegisterStringW(domain, L"arena:layer \u00fc\u20ac\U0001f600"), NULL);
	CHECK(nvtxRangePushEx(&a) == 0);
	CHECK(arena_current(&current) == 0 && current == layer);
	CHECK(nvtxRangePop() == 0);
	/* What is not ours, and what is wrong. */
	CHECK(nvtxRangePushW(L"aren") == 0 && nvtxRangePushW(L"") == 1);
	CHECK(nvtxRangePushW(NULL) == 2 && nvtxRangePop() == 2);
	CHECK(nvtxRangePop() == 1 && nvtxRangePop() == 0);
	wmemset(longest, L'x', 8199);
	wmemcpy(longest, L"arena:layer ", 12);
	CHECK(nvtxRangePushW(longest) == 0 && nvtxRangePop() == 0);
	CHECK(heard("longer than 8191 bytes: shorten it") == 1);
	longest[20] = 0;
	longest[12] = 0xd800;
	longest[13] = (wchar_t)0xffffffff;
	longest[14] = 0x110000;
	longest[15] = 0;
	CHECK(nvtxRangePushW(longest) == 0);
	CHECK(arena_open("\357\277\275\357\277\275\357\277\275", &layer) == 0);
	CHECK(arena_current(&current) == 0 && current == layer);
	CHECK(nvtxRangePop() == 0);
}

static void *end_range(void *id)
{
	nvtxRangeEnd((nvtxRangeId_t)(uintptr_t)id);
	return NULL;
}

static void end_in_thread(nvtxRangeId_t id)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, end_range, (void *)(uintptr_t)id) == 0);
	pthread_join(thread, NULL);
}

static void scene_start(void)
{
	nvtxEventAttributes_t a = event(NULL, "arena:layer a");
	nvtxRangeId_t reload, layer, other;
	struct arena *current;

	use_cuda();
	listen();
	reload = nvtxRangeStartA("arena:reload");
	other = nvtxRangeStartA("other");
	CHECK(reload && other && reload != other && status().reload_open);
	layer = nvtxRangeStartEx(&a);
	CHECK(arena_current(&current) == 0 && current);
	end_in_thread(layer);
	CHECK(heard("ended by another thread") == 1);
	CHECK(arena_current(&current) == 0 && current && arena_leave() == 0);
	nvtxRangeEnd(layer);   /* a second time: nothing */
	end_in_thread(reload); /* a reload belongs to no thread */
	CHECK(!status().reload_open);
	nvtxRangeEnd(other);
	nvtxRangeEnd(12345);
}

/* What is ended while something inside of it is open does not act on that. */
static void scene_order(void)
{
	nvtxRangeId_t reload, a, b, c, tag;
	struct arena *current, *inner;

	use_cuda();
	listen();
	reload = nvtxRangeStartA("arena:reload");
	a = nvtxRangeStartA("arena:layer a");
	load(0, 1);
	b = nvtxRangeStartA("arena:layer b");
	load(0, 2);
	CHECK(arena_current(&inner) == 0 && inner);
	nvtxRangeEnd(a);
	CHECK(heard("range \"a\": ended while a layer or tag that began later is open") == 1);
	CHECK(arena_current(&current) == 0 && current == inner);
	c = nvtxRangeStartA("arena:layer c");
	tag = nvtxRangeStartA("arena:tag t");
	nvtxRangeEnd(c);
	CHECK(heard("range \"c\": ended while a layer or tag that began later is open") == 1);
	nvtxRangeEnd(tag);
	CHECK(arena_current(&current) == 0 && current == inner);
	nvtxRangeEnd(b); /* commits, and goes back to where a began */
	CHECK(arena_current(&current) == 0 && !current);
	nvtxRangeEnd(reload);
	CHECK(heard("fail: a: [uncommitted]") == 1 && heard("b: [uncommitted]") == 0);
}

static const char *const mistakes[][2] = {
	{ "arena:relaod full", "not known: write" },
	{ "arena:", "not known: write" },
	{ "arena:reload everything", "not a scope: write" },
	{ "arena:reload layers=", "not a scope: write" },
	{ "arena:reload layers=a,,b", "not a scope: write" },
	{ "arena:reload role=", "not a scope: write" },
	{ "arena:reload full layers=a", "not a scope: write" },
	{ "arena:reload sources=a full", "not a scope: write" },
	{ "arena:reload layers=a layers=b", "not a scope: write" },
	{ "arena:reload role=draft role=mtp", "not a scope: write" },
	{ "arena:layer", "which layer? write" },
	{ "arena:layer  ", "which layer? write" },
	{ "arena:tag", "not a tag: write" },
	{ "arena:tag t object", "not a tag: write" },
	{ "arena:tag t scratch scratch", "not a tag: write" },
};

static void scene_mistakes(void)
{
	char text[300];

	use_cuda();
	listen();
	for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
		snprintf(text, sizeof(text), "range \"%s\": %s", mistakes[i][0], mistakes[i][1]);
		for (int k = 0; k < 3; k++) {
			nvtxRangePushA(mistakes[i][0]);
			nvtxRangePop();
		}
		CHECK(heard(text) == 1);
	}
	CHECK(!status().reload_open && status().reload_id == 0);
	nvtxRangePushA("arena:tag outside"); /* of any layer */
	CHECK(heard("range \"arena:tag outside\": ") == 1);
	nvtxRangePop();
	nvtxRangePushA("arena:reload");
	nvtxRangePushA("arena:reload full");
	CHECK(heard("range \"arena:reload full\": ") == 1);
	nvtxRangePop();
	CHECK(status().reload_open);
	nvtxRangePop();
	CHECK(!status().reload_open);
}

static void scene_deep(void)
{
	struct arena *current;

	use_cuda();
	listen();
	for (int i = 0; i < 1000; i++)
		CHECK(nvtxRangePushA(i % 100 ? "plain" : "arena:layer deep") == i);
	CHECK(heard("more than 8 arena ranges are pushed") == 1);
	for (int i = 1000; i-- > 0;)
		CHECK(nvtxRangePop() == i);
	CHECK(arena_current(&current) == 0 && !current);
}

/* Counts of lib_nvtx_tool.c. */
#define TOOL(type, name) (*(type *)dlsym(tool, name))

static void scene_tool(void)
{
	nvtxRangeId_t id;
	void *tool;

	use_cuda();
	CHECK(nvtxRangePushA("arena:reload full") == 100);
	tool = dlopen(getenv("TOOL"), RTLD_LAZY | RTLD_NOLOAD);
	CHECK(tool && status().reload_open);
	CHECK(nvtxRangePop() == 200 && !status().reload_open);
	id = nvtxRangeStartA("arena:reload full");
	CHECK(id == 0x700 && status().reload_open);
	nvtxRangeEnd(id);
	CHECK(!status().reload_open && TOOL(uint64_t, "tool_ended") == 0x700);
	CHECK(nvtxDomainCreateA("d") && TOOL(int, "tool_domains") == 1);
	CHECK(nvtxDomainRegisterStringW(NULL, L"plain") == NULL);
	CHECK(TOOL(int, "tool_pushed") == 1 && TOOL(int, "tool_popped") == 1);
}

/* The library is off: the tool is alone. */
static void scene_off(void)
{
	void *tool;

	CHECK(strcmp(getenv("NVTX_INJECTION64_PATH"), getenv("TOOL")) == 0);
	CHECK(nvtxRangePushA("arena:reload full") == 100);
	tool = dlopen(getenv("TOOL"), RTLD_LAZY | RTLD_NOLOAD);
	CHECK(tool && TOOL(int, "tool_pushed") == 1);
}

/* Whoever reads the environment, as a child will, sees what the user set. */
static void scene_environment(void)
{
	extern char **environ;

	use_cuda();
	nvtxRangePushA("arena:reload");
	CHECK(status().reload_open);
	for (char **e = environ; *e; e++)
		CHECK(strncmp(*e, "NVTX_", 5) != 0);
	CHECK(system("test -z \"$NVTX_INJECTION64_PATH\"") == 0);
	CHECK(getenv("HOME_OF_NOBODY") == NULL && getenv("PATH") != NULL);
	nvtxRangePop();
}

static const struct {
	const char *name;
	void (*run)(void);
} scenes[] = {
	{ "deep", scene_deep },
	{ "domains", scene_domains },
	{ "environment", scene_environment },
	{ "mistakes", scene_mistakes },
	{ "off", scene_off },
	{ "off in capitals", scene_off },
	{ "order", scene_order },
	{ "push", scene_push },
	{ "start", scene_start },
	{ "tool", scene_tool },
	{ "wide", scene_wide },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof(scenes) / sizeof(scenes[0]); i++) {
		if (strcmp(scenes[i].name, argv[1]) != 0)
			continue;
		scenes[i].run();
		return EXIT_SUCCESS;
	}
	fprintf(stderr, "usage: nvtx SCENE\n");
	return 2;
}
