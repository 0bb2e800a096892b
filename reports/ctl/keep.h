/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of what a line holds, for as long as the set lives. One thread. */
#ifndef CTL_KEEP_H
#define CTL_KEEP_H

#include "model.h"

struct report_start *keep_start(struct report_set *set, const struct report_start *from);
struct report_module *keep_module(struct report_set *set, const struct report_module *from);
struct report_stack *keep_stack(struct report_set *set, const struct report_stack *from);
/* @brief At most set->limits.refs refs of it. */
struct report_finding *keep_finding(struct report_set *set, const struct report_finding *from);
struct report_event *keep_event(struct report_set *set, const struct report_event *from);
struct report_cross *keep_cross(struct report_set *set, const struct report_cross *from);
struct report_launch *keep_launch(struct report_set *set, const struct report_launch *from);
/* @brief Without its findings: they are kept one by one. */
struct report_reload *keep_reload(struct report_set *set, const struct report_reload *from);
/* @brief The same into a struct that is there, without its lists. */
void keep_reload_brief(struct report_set *set, struct report_reload *to,
		       const struct report_reload *from);
struct report_exit *keep_exit(struct report_set *set, const struct report_exit *from);

#endif
