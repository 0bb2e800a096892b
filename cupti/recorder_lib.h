/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the files of libarena_cupti.so: the functions of CUPTI that are used, by pointer, and
 * who looks them up. One thread at a time, except recorder_callback(): any thread.
 */
#ifndef CUPTI_RECORDER_LIB_H
#define CUPTI_RECORDER_LIB_H

#include <cuda.h>
#include <cupti_version.h>
#include <cupti_callbacks.h>
#include <cupti_activity.h>
#include <cupti_driver_cbid.h>

#include "cupti/recorder.h"

/* Name, needed: without it the library is too old. */
#define CUPTI_FUNCTIONS(X)            \
	X(cuptiEnableCallback, true)  \
	X(cuptiFinalize, true)        \
	X(cuptiGetResultString, true) \
	X(cuptiGetVersion, true)      \
	X(cuptiSubscribe, true)       \
	X(cuptiSubscribe_v2, false)   \
	X(cuptiUnsubscribe, true)

struct cupti {
#define X(name, needed) __typeof__(&name) name;
	CUPTI_FUNCTIONS(X)
#undef X
};

/* @brief Find the library and its functions; what is found stays loaded. Fills @out on failure. */
enum recorder_result library_find(const struct recorder_host *host, struct cupti *cupti,
				  struct recorder_status *out);

/* @brief The callback that is subscribed. @param host a struct recorder_host. */
void recorder_callback(void *host, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
		       const void *data);

/* @brief Enable what recorder_callback() understands.
 * @return CUPTI_SUCCESS, or why a callback that is needed cannot be had. */
CUptiResult recorder_enable(const struct cupti *cupti, CUpti_SubscriberHandle subscriber,
			    unsigned flags);

/* @brief Let callbacks through. */
void recorder_start(void);
/* @brief Let none through any more. */
void recorder_mute(void);
/* @brief The same, and wait for those that are under way. */
void recorder_stop(void);

#endif
