/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another user of CUPTI in the same process, as torch.profiler is one: guest SCENE. It is linked
 * against CUPTI, or looks it up; it must get what it would get without the library, whatever
 * window is open. run_cupti.py says what must be in the report.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cupti/fake.h"
#include "tests/victims/victim.h"

#define MANY 600

static CUdeviceptr out, w;
static unsigned nodes_told; /* to the guest */

static void start(void)
{
	out = dev_alloc("out", BIG);
	w = dev_alloc("w", BIG);
	poke(out, 0);
	poke(w, 1);
}

static CUgraphExec capture(void)
{
	CUgraphExec e;

	CAPTURE_EXEC(e, run_acc(out, w); run_acc(out, w));
	return e;
}

static void replay_often(CUgraphExec e)
{
	for (unsigned i = 0; i < MANY; i++)
		CK(cuGraphLaunch(e, S));
	settle();
}

static void CUPTIAPI hear(void *userdata, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
			  const void *data)
{
	nodes_told +=
		domain == CUPTI_CB_DOMAIN_RESOURCE && cbid == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED;
}

static void attach(CUpti_SubscriberHandle *s)
{
	MUST(cuptiSubscribe(s, hear, NULL) == CUPTI_SUCCESS);
	MUST(cuptiEnableDomain(1, *s, CUPTI_CB_DOMAIN_RESOURCE) == CUPTI_SUCCESS);
}

static void detach(CUpti_SubscriberHandle s)
{
	MUST(cuptiUnsubscribe(s) == CUPTI_SUCCESS);
	MUST(cuptiFinalize() == CUPTI_SUCCESS);
}

/* Two nodes of the template, and two that the exec is made of. */
static void told_all(void)
{
	MUST(nodes_told >= 4);
}

static void first(void)
{
	CUpti_SubscriberHandle s;
	CUgraphExec e;

	attach(&s);
	start();
	e = capture();
	told_all();
	replay_often(e);
	detach(s);
	replay_often(capture());
	tell("out", peek(out));
}

/* While a window is open. */
static void arrives(void)
{
	CUpti_SubscriberHandle s;
	unsigned told_before;
	CUgraphExec e;

	start();
	e = capture();
	attach(&s);
	MUST(nodes_told == 0);
	capture();
	told_all();
	replay_often(e);
	detach(s);
	told_before = nodes_told;
	replay_often(capture());
	MUST(nodes_told == told_before);
	tell("out", peek(out));
}

/* In the middle of a capture. */
static void arrives_capturing(void)
{
	CUpti_SubscriberHandle s;
	CUgraphExec e;

	start();
	CAPTURE_EXEC(e, run_acc(out, w); attach(&s); run_acc(out, w));
	MUST(nodes_told >= 3); /* what came after it */
	replay_often(e);
	detach(s);
	tell("out", peek(out));
}

/* As PyTorch's profiler: activities and their callbacks, no subscriber. */
static void CUPTIAPI buffer_wanted(uint8_t **buffer, size_t *size, size_t *records)
{
	*buffer = NULL;
	*size = *records = 0;
}

static void CUPTIAPI buffer_full(CUcontext c, uint32_t stream, uint8_t *buffer, size_t size,
				 size_t valid)
{
}

static void activity(void)
{
	CUgraphExec e;

	start();
	e = capture();
	MUST(cuptiActivityRegisterCallbacks(buffer_wanted, buffer_full) == CUPTI_SUCCESS);
	MUST(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS);
	replay_often(e);
	capture();
	MUST(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS);
	MUST(cuptiActivityFlushAll(0) == CUPTI_SUCCESS);
	MUST(cuptiFinalize() == CUPTI_SUCCESS);
	replay_often(capture());
	tell("out", peek(out));
}

/* Somebody cleans up what is not his. */
static void finalizes(void)
{
	start();
	capture();
	MUST(cuptiFinalize() == CUPTI_SUCCESS);
	replay_often(capture());
	tell("out", peek(out));
}

/* The same by look-up, as a tool that is loaded late does it. */
static void looks_up(void)
{
	void *lib = dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
	CUptiResult (*subscribe)(CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *);
	CUptiResult (*unsubscribe)(CUpti_SubscriberHandle);
	CUptiResult (*finalize)(void);
	CUpti_SubscriberHandle s;
	CUgraphExec e;

	MUST(lib);
	subscribe = (__typeof__(subscribe))dlsym(lib, "cuptiSubscribe");
	unsubscribe = (__typeof__(unsubscribe))dlsym(lib, "cuptiUnsubscribe");
	finalize = (__typeof__(finalize))dlsym(lib, "cuptiFinalize");
	start();
	e = capture();
	MUST(subscribe(&s, hear, NULL) == CUPTI_SUCCESS);
	capture();
	MUST(unsubscribe(s) == CUPTI_SUCCESS);
	MUST(finalize() == CUPTI_SUCCESS);
	replay_often(e);
	tell("out", peek(out));
}

/* In a child that inherits an open window, and whose window it is not. */
static void forks(void)
{
	CUpti_SubscriberHandle s;
	CUgraphExec e;
	pid_t child;

	start();
	e = capture();
	child = fork();
	if (child == 0) {
		cuptiSubscribe(&s, hear, NULL); /* refused: the parent's is there, too */
		_exit(0);
	}
	MUST(child > 0 && waitpid(child, NULL, 0) == child);
	replay_often(e);
	tell("out", peek(out));
}

/* ---- while another thread's window opens ---- */

static void *capture_there(void *unused)
{
	victim_thread_start();
	replay_often(capture());
	return NULL;
}

static void meets_slow(void)
{
	struct fake_cupti_counters c = { .subscribed = 0 };
	CUpti_SubscriberHandle s;
	bool is_done = false;
	pthread_t other;

	start();
	MUST(!pthread_create(&other, NULL, capture_there, NULL));
	while (!c.subscribed && !is_done) {
		usleep(1000);
		fake_cupti_counters(&c);
		is_done = !pthread_tryjoin_np(other, NULL);
	}
	attach(&s);
	MUST(is_done || !pthread_join(other, NULL));
	detach(s);
	tell("out", peek(out));
}

/* ---- in a constructor, with the linker's lock held, while another thread opens a window ---- */

static sem_t is_constructing, is_capturing;
static void (*constructs)(void);

/* Is the first thread of the process asleep? It is where it needs the linker, then. */
static bool is_asleep(void)
{
	char path[64], state = 0;
	FILE *stat;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)getpid());
	stat = fopen(path, "r");
	MUST(stat);
	MUST(fscanf(stat, "%*d (%*[^)]) %c", &state) == 1);
	fclose(stat);
	return state == 'S';
}

/* Not only for a moment, as for a lock that somebody just holds. */
static void wait_for_capture(void)
{
	MUST(!sem_wait(&is_capturing));
	for (int asleep = 0; asleep < 10; usleep(10000))
		asleep = is_asleep() ? asleep + 1 : 0;
}

__attribute__((visibility("default"))) void in_constructor(void);

void in_constructor(void)
{
	victim_thread_start();
	sem_post(&is_constructing);
	wait_for_capture();
	constructs();
}

static void *load(void *unused)
{
	MUST(dlopen("libconstructor.so", RTLD_NOW));
	return NULL;
}

static void in_library(void (*what)(void))
{
	pthread_t loader;
	CUgraphExec e;

	alarm(60); /* a deadlock ends */
	start();
	constructs = what;
	MUST(!sem_init(&is_constructing, 0, 0));
	MUST(!sem_init(&is_capturing, 0, 0));
	MUST(!pthread_create(&loader, NULL, load, NULL));
	MUST(!sem_wait(&is_constructing));
	sem_post(&is_capturing);
	e = capture();
	MUST(!pthread_join(loader, NULL));
	replay_often(e);
	tell("out", peek(out));
}

static void make_graphs(void)
{
	CUgraph g;

	for (unsigned i = 0; i < 10; i++) {
		CK(cuGraphCreate(&g, 0));
		CK(cuGraphDestroy(g));
	}
}

static void subscribe(void)
{
	CUpti_SubscriberHandle s;

	attach(&s);
	MUST(cuptiUnsubscribe(s) == CUPTI_SUCCESS);
}

static void enable(void)
{
	MUST(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS);
}

static void constructor_graphs(void)
{
	in_library(make_graphs);
}

static void constructor_subscribes(void)
{
	in_library(subscribe);
}

static void constructor_enables(void)
{
	in_library(enable);
}

VICTIM({ "first", first }, { "arrives", arrives }, { "arrives-capturing", arrives_capturing },
       { "activity", activity }, { "finalizes", finalizes }, { "looks-up", looks_up },
       { "forks", forks }, { "meets-slow", meets_slow },
       { "constructor-graphs", constructor_graphs },
       { "constructor-subscribes", constructor_subscribes },
       { "constructor-enables", constructor_enables });
