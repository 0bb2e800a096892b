/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proof: a program of ours allocates under the library, by each route to the driver, and the
 * report must have each of these allocations. One thread.
 */
#include "doctor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "canary.h"
#include "read.h"

#define ROUTES_MAX 8

struct canary {
	/* What it printed. */
	int abi, driver;
	char failed[160]; /* "cuInit 100", or "" */
	struct {
		char name[32];
		uint64_t address;
		bool was_seen; /* by the ledger: the report has the event */
	} routes[ROUTES_MAX];
	size_t count;
	/* What its report says. */
	bool has_started, has_ended;
	uint64_t unhooked, bypassed;
	size_t entries;
};

static char canary_report[PATH_MAX];
static const char *canary_preload;

/* In the child of doctor_probe(). */
static void start_canary(FILE *to)
{
	dup2(fileno(to), STDOUT_FILENO);
	setenv("LD_PRELOAD", canary_preload, 1);
	setenv("ARENA_REPORT", canary_report, 1);
	setenv("ARENA_TRACE", "on", 1);
	setenv("ARENA_GATE", "warn", 1);
	setenv("ARENA_STACKS", "off", 1);
	setenv("ARENA_CUPTI", "off", 1);
	setenv("ARENA_LOG", "error", 1);
	unsetenv("ARENA_MANIFEST");
	execl("/proc/self/exe", "arenactl", CANARY_WORD, (char *)NULL);
}

static void take_line(struct canary *c, const char *line)
{
	char name[32];
	uint64_t address;

	sscanf(line, "abi %d", &c->abi);
	sscanf(line, "driver %d", &c->driver);
	if (!*c->failed)
		sscanf(line, "failed %159[^\n]", c->failed);
	if (c->count == ROUTES_MAX || sscanf(line, "route %31s 0x%" SCNx64, name, &address) != 2)
		return;
	strcpy(c->routes[c->count].name, name);
	c->routes[c->count++].address = address;
}

static void take_exit(struct canary *c, const struct report_exit *e)
{
	c->has_ended = true;
	c->entries = e->entries.count;
	for (size_t i = 0; i < e->coverage.count; i++) {
		if (strcmp(e->coverage.v[i].key, "unhooked-variant") == 0)
			c->unhooked = e->coverage.v[i].number;
		if (strcmp(e->coverage.v[i].key, "bypassed") == 0)
			c->bypassed = e->coverage.v[i].number;
	}
}

/* One event proves one route: the driver may give the same address again. */
static bool take_report_line(void *to, const struct line *line)
{
	struct canary *c = to;

	if (line->type == LINE_START)
		c->has_started = true;
	if (line->type == LINE_EXIT)
		take_exit(c, &line->exit);
	if (line->type != LINE_EVENT || strcmp(line->event.event, "alloc") != 0)
		return true;
	for (size_t i = 0; i < c->count; i++) {
		if (c->routes[i].was_seen || c->routes[i].address != line->event.address)
			continue;
		c->routes[i].was_seen = true;
		break;
	}
	return true;
}

static void say_routes(struct doctor *d, const struct canary *c)
{
	size_t seen = 0;

	for (size_t i = 0; i < c->count; i++)
		seen += c->routes[i].was_seen;
	doctor_say(d, seen == c->count && seen ? CHECK_OK : CHECK_BAD, "canary",
		   "%zu of %zu allocations were seen by the library", seen, c->count);
	for (size_t i = 0; i < c->count; i++)
		doctor_say(d, c->routes[i].was_seen ? CHECK_OK : CHECK_BAD, "route", "%s: %s",
			   c->routes[i].name,
			   c->routes[i].was_seen ? "hooked"
						 : "reaches the driver past the library");
	if (c->unhooked || c->bypassed)
		doctor_say(d, CHECK_BAD, "variants",
			   "%" PRIu64 " unhooked, %" PRIu64
			   " bypassed: 'arenactl entries' lists what "
			   "is hooked",
			   c->unhooked, c->bypassed);
	else if (c->has_ended)
		doctor_say(d, CHECK_OK, "variants", "all that were asked for are hooked");
}

static void judge(struct doctor *d, const struct canary *c)
{
	if (c->abi < 0)
		doctor_say(d, CHECK_BAD, "canary", "LD_PRELOAD had no effect on a program of ours");
	else if (c->abi == 0)
		doctor_say(d, CHECK_BAD, "canary",
			   "the library is the no-op build: it watches nothing");
	else if (strncmp(c->failed, "dlopen", 6) == 0)
		doctor_say(d, CHECK_UNKNOWN, "canary",
			   "the library is in the process; without a driver it has nothing to see");
	else if (c->count == 0)
		doctor_say(d, CHECK_UNKNOWN, "canary",
			   "the library is in the process; the driver refused %s, so that nothing "
			   "could be allocated",
			   *c->failed ? c->failed : "to start");
	else if (!c->has_started)
		doctor_say(d, CHECK_BAD, "canary",
			   "the library is in the process and wrote no report: is it turned off?");
	else
		say_routes(d, c);
}

void doctor_canary(struct doctor *d)
{
	struct canary c = { .abi = -1 };
	struct read_result r = { .quiet = true };
	char text[4096];

	snprintf(canary_report, sizeof(canary_report), "%s/canary.jsonl", d->folder);
	canary_preload = d->preload.list;
	if (!doctor_probe(start_canary, PROBE_SECONDS, text, sizeof(text))) {
		doctor_say(d, CHECK_BAD, "canary", "a program of ours dies under the library");
		return;
	}
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		take_line(&c, line);
	if (access(canary_report, R_OK) == 0)
		read_file(canary_report, take_report_line, &c, &r);
	judge(d, &c);
}
