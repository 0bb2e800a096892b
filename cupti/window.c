/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attaching and detaching: subscribe, enable, finalise.
 *
 * A window ends by cuptiFinalize, as replays stay slow after cuptiUnsubscribe alone. CUPTI's own
 * advice is to call it when an API call returns; outside of any callback is the same place, seen
 * from the other side. When anything fails while it opens, it is finalised too.
 *
 * Threads: open, close and forget come one at a time (recorder.h).
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cupti/recorder_lib.h"

static struct cupti cupti;
static CUpti_SubscriberHandle subscriber;
static bool is_open;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static enum recorder_result refused(CUptiResult rc, struct recorder_status *out)
{
	const char *text = NULL;

	out->error = (uint32_t)rc;
	if (cupti.cuptiGetResultString(rc, &text) != CUPTI_SUCCESS || !text)
		text = "an error without a name";
	snprintf(out->text, sizeof(out->text), "%s (%u)", text, out->error);
	return rc == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? RECORDER_BUSY
								    : RECORDER_REFUSED;
}

static CUptiResult subscribe(const struct recorder_host *host, struct recorder_status *out)
{
	CUpti_SubscriberParams params = {
		.structSize = CUpti_SubscriberParams_STRUCT_SIZE,
		.subscriberName = "arena-shim",
		.oldSubscriberName = out->other,
		.oldSubscriberSize = sizeof(out->other),
	};

	if (cupti.cuptiSubscribe_v2)
		return cupti.cuptiSubscribe_v2(&subscriber, recorder_callback, (void *)host,
					       &params);
	return cupti.cuptiSubscribe(&subscriber, recorder_callback, (void *)host);
}

static enum recorder_result attach(const struct recorder_host *host, unsigned flags,
				   struct recorder_status *out)
{
	CUptiResult rc = subscribe(host, out);

	if (rc != CUPTI_SUCCESS)
		return refused(rc, out);
	recorder_start();
	rc = recorder_enable(&cupti, subscriber, flags);
	if (rc == CUPTI_SUCCESS)
		return RECORDER_DONE;
	recorder_stop();
	cupti.cuptiUnsubscribe(subscriber);
	cupti.cuptiFinalize();
	return refused(rc, out);
}

static enum recorder_result window_open(const struct recorder_host *host, unsigned flags,
					struct recorder_status *out)
{
	uint64_t start = now_ns();
	enum recorder_result result;

	memset(out, 0, sizeof(*out));
	if (is_open || !host || host->abi != RECORDER_ABI || !host->event)
		return RECORDER_BAD_CALL;
	/* Anew each time: a program that loads its own libcupti later has its own used. */
	result = library_find(host, &cupti, out);
	if (result == RECORDER_DONE && host->may_attach && !host->may_attach())
		result = RECORDER_BUSY;
	if (result == RECORDER_DONE)
		result = attach(host, flags, out);
	is_open = result == RECORDER_DONE;
	out->elapsed_ns = now_ns() - start;
	return result;
}

static enum recorder_result window_close(struct recorder_status *out)
{
	uint64_t start = now_ns();
	CUptiResult rc;

	memset(out, 0, sizeof(*out));
	if (!is_open)
		return RECORDER_BAD_CALL;
	is_open = false;
	recorder_stop();
	cupti.cuptiUnsubscribe(subscriber);
	rc = cupti.cuptiFinalize();
	out->elapsed_ns = now_ns() - start;
	return rc == CUPTI_SUCCESS ? RECORDER_DONE : refused(rc, out);
}

static void window_forget(void)
{
	is_open = false;
	recorder_mute();
}

__attribute__((visibility("default"))) const struct recorder *arena_cupti_recorder(uint32_t abi);

const struct recorder *arena_cupti_recorder(uint32_t abi)
{
	static const struct recorder recorder = {
		.abi = RECORDER_ABI,
		.open = window_open,
		.close = window_close,
		.forget = window_forget,
	};

	return abi == RECORDER_ABI ? &recorder : NULL;
}
