/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUPTI's callback API without CUPTI: one subscriber, callbacks enabled by id, finalisation, the
 * error codes of the headers. Graph callbacks come from the simulated driver in the order of
 * tests/sim/tool.h. fake.h says what a test can set and see.
 *
 * FAKE_BARE builds one without cuptiFinalize, FAKE_V1 one without cuptiSubscribe_v2.
 *
 * Any thread. The lock is not held while a subscriber is called.
 */
#pragma GCC visibility push(default)
#include "tests/cupti/fake.h"
#pragma GCC visibility pop

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/sim/tool.h"

#define CBIDS 1024

struct CUpti_Subscriber_st {
	CUpti_CallbackFunc fn;
	void *userdata;
	char name[CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN];
	bool enabled[CUPTI_CB_DOMAIN_SIZE][CBIDS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUpti_Subscriber_st one; /* also the last one, when it has gone */
static struct fake_cupti_counters counters;
static uint64_t seen[CBIDS]; /* resource callbacks so far, by id */
static const void *stranger; /* a node of another graph than the one at hand */
static const void *stranger_graph;
static _Thread_local unsigned inside;
static _Thread_local CUptiResult last_error;

/* ---- the script ---- */

static const char *other(void)
{
	return getenv("FAKE_CUPTI_OTHER");
}

static CUptiResult answer(const char *function, CUptiResult rc)
{
	const char *script = getenv("FAKE_CUPTI_FAIL");
	size_t n = strlen(function);

	if (script && !strncmp(script, function, n) && script[n] == '=')
		rc = (CUptiResult)atoi(script + n + 1);
	if (rc)
		last_error = rc;
	return rc;
}
#define ANSWER(rc) answer(__func__, rc)

/* Is this the event that the variable names? */
static bool chosen(const char *variable, CUpti_CallbackId cbid)
{
	const char *script = getenv(variable);
	unsigned want;
	uint64_t nth;

	return script && sscanf(script, "%u:%lu", &want, &nth) == 2 && want == cbid &&
	       seen[cbid] == nth;
}

/* ---- callbacks ---- */

static void call(CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void *data)
{
	struct CUpti_Subscriber_st to;

	pthread_mutex_lock(&lock);
	to.fn = one.fn;
	to.userdata = one.userdata;
	counters.callbacks++;
	pthread_mutex_unlock(&lock);
	inside++;
	to.fn(to.userdata, domain, cbid, data);
	inside--;
}

int fake_cupti_fire(CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void *data)
{
	bool nobody;

	pthread_mutex_lock(&lock);
	nobody = !one.fn;
	pthread_mutex_unlock(&lock);
	if (nobody)
		return 0;
	call(domain, cbid, data);
	return 1;
}

int fake_cupti_fire_graph(CUpti_CallbackId cbid, const CUpti_GraphData *data)
{
	CUpti_ResourceData r = { .resourceDescriptor = (void *)data };

	return fake_cupti_fire(CUPTI_CB_DOMAIN_RESOURCE, cbid, &r);
}

int fake_cupti_is_enabled(CUpti_CallbackDomain domain, CUpti_CallbackId cbid)
{
	bool on;

	pthread_mutex_lock(&lock);
	on = counters.subscribed && domain < CUPTI_CB_DOMAIN_SIZE && cbid < CBIDS &&
	     one.enabled[domain][cbid];
	pthread_mutex_unlock(&lock);
	return on;
}

/* Under the driver's lock, one at a time. */
static void graph_event(const struct sim_tool_data *d)
{
	CUpti_CallbackId cbid = (CUpti_CallbackId)d->event;
	CUpti_GraphData g = {
		.graph = (CUgraph)d->graph,
		.originalGraph = (CUgraph)d->original_graph,
		.node = (CUgraphNode)d->node,
		.originalNode = (CUgraphNode)d->original_node,
		.nodeType = d->type,
		.dependency = (CUgraphNode)d->dependency,
		.graphExec = (CUgraphExec)d->exec,
	};

	seen[cbid]++;
	if (!fake_cupti_is_enabled(CUPTI_CB_DOMAIN_RESOURCE, cbid))
		return;
	if (!chosen("FAKE_CUPTI_DROP", cbid))
		fake_cupti_fire_graph(cbid, &g);
	if (chosen("FAKE_CUPTI_ADD", cbid) && stranger) {
		if (cbid == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED)
			g.originalNode = (CUgraphNode)stranger;
		else
			g.node = (CUgraphNode)stranger;
		fake_cupti_fire_graph(cbid, &g);
	}
	if (cbid == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED && !stranger) {
		stranger = d->node;
		stranger_graph = d->graph;
	} else if (cbid == CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING &&
		   d->graph == stranger_graph) {
		stranger = NULL;
	}
}

/* The calls that an audit can ask for, as the simulated driver names them. */
static const struct {
	const char *symbol;
	CUpti_CallbackId cbid;
} calls[] = {
#define X(name)                                    \
	{ #name, CUPTI_DRIVER_TRACE_CBID_##name }, \
		{ #name "_ptsz", CUPTI_DRIVER_TRACE_CBID_##name##_ptsz },
	X(cuGraphLaunch) X(cuLaunchKernel) X(cuLaunchKernelEx) X(cuMemcpyAsync)
		X(cuMemcpyDtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) X(cuMemcpyHtoDAsync_v2)
#undef X
};

static void call_event(const struct sim_tool_data *d)
{
	static uint32_t correlation;
	bool enter = d->event == SIM_TOOL_ENTER;
	CUpti_CallbackData data = {
		.callbackSite = enter ? CUPTI_API_ENTER : CUPTI_API_EXIT,
		.functionName = d->symbol,
		.functionReturnValue = (void *)&d->result,
		.symbolName = strstr(d->symbol, "LaunchKernel") ? "a_kernel" : NULL,
		.correlationId = ++correlation,
	};
	size_t i = 0;

	if (enter && !strncmp(d->symbol, "cuGraphLaunch", 13)) {
		pthread_mutex_lock(&lock);
		counters.replays++;
		counters.replays_attached += counters.attached;
		pthread_mutex_unlock(&lock);
	}
	while (i < sizeof(calls) / sizeof(*calls) && strcmp(calls[i].symbol, d->symbol))
		i++;
	if (i < sizeof(calls) / sizeof(*calls) &&
	    fake_cupti_is_enabled(CUPTI_CB_DOMAIN_DRIVER_API, calls[i].cbid))
		call(CUPTI_CB_DOMAIN_DRIVER_API, calls[i].cbid, &data);
}

static void told(const struct sim_tool_data *d)
{
	if (d->event == SIM_TOOL_ENTER || d->event == SIM_TOOL_EXIT)
		call_event(d);
	else
		graph_event(d);
}

/* From the first attachment on: replays are counted afterwards, too. */
static void listen(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void (*set)(sim_tool_fn) = driver ? dlsym(driver, "sim_tool_set") : NULL;

	if (set)
		set(told);
}

/* ---- memory of its own ---- */

static CUdeviceptr own;

static void take_memory(void)
{
	__typeof__(&cuMemAlloc) alloc = (__typeof__(alloc))dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");

	if (getenv("FAKE_CUPTI_ALLOCATES") && alloc && alloc(&own, 4096))
		own = 0;
}

#ifndef FAKE_BARE
static void give_memory(void)
{
	__typeof__(&cuMemFree) give = (__typeof__(give))dlsym(RTLD_DEFAULT, "cuMemFree_v2");

	if (own && give)
		give(own);
	own = 0;
}
#endif

/* ---- CUPTI ---- */

static CUptiResult subscribe(CUpti_SubscriberHandle *out, CUpti_CallbackFunc fn, void *userdata,
			     const char *name)
{
	CUptiResult rc = CUPTI_SUCCESS;

	if (!out)
		return CUPTI_ERROR_INVALID_PARAMETER;
	pthread_mutex_lock(&lock);
	if (counters.subscribed || other()) {
		counters.refused++;
		rc = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
	} else {
		memset(&one, 0, sizeof(one));
		one.fn = fn;
		one.userdata = userdata;
		snprintf(one.name, sizeof(one.name), "CUPTI for %.53s", name ? name : "?");
		counters.subscribes++;
		counters.subscribed = counters.attached = 1;
		*out = &one;
	}
	pthread_mutex_unlock(&lock);
	if (!rc) {
		take_memory();
		listen();
		if (getenv("FAKE_CUPTI_SLOW"))
			usleep(200000);
	}
	return rc;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *out, CUpti_CallbackFunc fn, void *userdata)
{
	CUptiResult rc = ANSWER(CUPTI_SUCCESS);

	return rc ? rc : ANSWER(subscribe(out, fn, userdata, NULL));
}

#ifndef FAKE_V1
CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *out, CUpti_CallbackFunc fn, void *userdata,
			      CUpti_SubscriberParams *p)
{
	CUptiResult rc = ANSWER(CUPTI_SUCCESS);

	if (rc)
		return rc;
	if (p && p->structSize < CUpti_SubscriberParams_STRUCT_SIZE)
		return ANSWER(CUPTI_ERROR_INVALID_PARAMETER);
	rc = subscribe(out, fn, userdata, p ? p->subscriberName : NULL);
	if (rc == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED && p && p->oldSubscriberName)
		snprintf(p->oldSubscriberName, p->oldSubscriberSize, "%s",
			 other() ? other() : one.name);
	return ANSWER(rc);
}
#endif

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle s)
{
	CUptiResult rc = CUPTI_ERROR_INVALID_PARAMETER;

	pthread_mutex_lock(&lock);
	if (s == &one && counters.subscribed) {
		counters.unsubscribes++;
		counters.subscribed = 0;
		rc = CUPTI_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return ANSWER(rc);
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle s,
				CUpti_CallbackDomain domain, CUpti_CallbackId cbid)
{
	CUptiResult rc = ANSWER(CUPTI_SUCCESS);

	if (rc)
		return rc;
	if (s != &one || domain <= CUPTI_CB_DOMAIN_INVALID || domain >= CUPTI_CB_DOMAIN_SIZE ||
	    !cbid || cbid >= CBIDS ||
	    (domain == CUPTI_CB_DOMAIN_RESOURCE && cbid >= CUPTI_CBID_RESOURCE_SIZE))
		return ANSWER(CUPTI_ERROR_INVALID_PARAMETER);
	pthread_mutex_lock(&lock);
	if (counters.subscribed) {
		counters.enabled += !one.enabled[domain][cbid] && enable;
		one.enabled[domain][cbid] = enable;
	} else {
		rc = CUPTI_ERROR_INVALID_PARAMETER;
	}
	pthread_mutex_unlock(&lock);
	return ANSWER(rc);
}

CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle s,
			      CUpti_CallbackDomain domain)
{
	CUptiResult rc = CUPTI_SUCCESS;
	uint32_t end = domain == CUPTI_CB_DOMAIN_RESOURCE ? CUPTI_CBID_RESOURCE_SIZE : CBIDS;

	for (uint32_t cbid = 1; cbid < end && !rc; cbid++)
		rc = cuptiEnableCallback(enable, s, domain, cbid);
	return rc;
}

#ifndef FAKE_BARE
CUptiResult cuptiFinalize(void)
{
	CUptiResult rc = ANSWER(CUPTI_SUCCESS);

	if (rc)
		return rc;
	give_memory();
	take_memory();
	give_memory();
	pthread_mutex_lock(&lock);
	counters.finalizes++;
	counters.finalizes_inside += inside != 0;
	counters.subscribed = counters.attached = counters.activities = 0;
	pthread_mutex_unlock(&lock);
	return CUPTI_SUCCESS;
}
#endif

CUptiResult cuptiGetVersion(uint32_t *version)
{
	const char *said = getenv("FAKE_CUPTI_VERSION");

	if (!version)
		return ANSWER(CUPTI_ERROR_INVALID_PARAMETER);
	*version = said ? (uint32_t)atoi(said) : CUPTI_API_VERSION;
	return ANSWER(CUPTI_SUCCESS);
}

CUptiResult cuptiGetResultString(CUptiResult rc, const char **text)
{
	if (!text)
		return ANSWER(CUPTI_ERROR_INVALID_PARAMETER);
	*text = rc == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
			? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
		: rc == CUPTI_ERROR_NOT_INITIALIZED ? "CUPTI_ERROR_NOT_INITIALIZED"
		: rc				    ? "CUPTI_ERROR"
						    : "CUPTI_SUCCESS";
	return CUPTI_SUCCESS;
}

CUptiResult cuptiGetLastError(void)
{
	CUptiResult rc = last_error;

	last_error = CUPTI_SUCCESS;
	return rc;
}

/* ---- activities: only that a guest has them on ---- */

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
					   CUpti_BuffersCallbackCompleteFunc completed)
{
	return ANSWER(requested && completed ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER);
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind)
{
	CUptiResult rc = ANSWER(CUPTI_SUCCESS);

	if (rc)
		return rc;
	pthread_mutex_lock(&lock);
	counters.activities++;
	counters.attached = 1;
	pthread_mutex_unlock(&lock);
	listen();
	return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind)
{
	return ANSWER(CUPTI_SUCCESS);
}

CUptiResult cuptiActivityFlushAll(uint32_t flag)
{
	return ANSWER(CUPTI_SUCCESS);
}

/* ---- counters ---- */

void fake_cupti_counters(struct fake_cupti_counters *out)
{
	pthread_mutex_lock(&lock);
	*out = counters;
	pthread_mutex_unlock(&lock);
}

static __attribute__((destructor)) void leave_counters(void)
{
	const char *path = getenv("FAKE_CUPTI_COUNTS");
	FILE *f = path ? fopen(path, "w") : NULL;

	if (!f)
		return;
#define X(name) fprintf(f, #name " %lu\n", counters.name);
	FAKE_COUNTERS(X)
#undef X
	fclose(f);
}
