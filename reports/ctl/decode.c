/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table for each object of arena-report(5): key, how it is taken (take.h), where it goes.
 *
 * Threads: one.
 */
#include "decode.h"

#include <stdio.h>
#include <string.h>

#include "take.h"

#define READ_DEPTH 32

#define KEY(name, take, rules, required, member)                                              \
	{                                                                                     \
		name, sizeof(name) - 1, required, offsetof(struct HERE, member), take_##take, \
			rules                                                                 \
	}
/* A key that may be missing, and one that must be there. */
#define MAY(name, take, member)	       KEY(name, take, NULL, false, member)
#define MUST(name, take, member)       KEY(name, take, NULL, true, member)
#define SUB(name, take, rules, member) KEY(name, take, &rules, false, member)
#define RULES(rules_name, title)                                                               \
	static const struct rules rules_name = { title, sizeof(struct HERE),                   \
						 sizeof(rules_name##_v) / sizeof(struct rule), \
						 rules_name##_v }

#define HERE report_range
static const struct rule range_rules_v[] = {
	MUST("base", hex, base),
	MUST("size", uint, size),
	MAY("generation", uint, generation),
	MUST("kind", text, kind),
	MAY("stack_open", uint, stack_open),
	MAY("stack_close", uint, stack_close),
};
RULES(range_rules, "range");
#undef HERE

#define HERE report_ref
static const struct rule ref_rules_v[] = {
	MUST("exec", uint, exec),
	MUST("node", uint, node),
	MUST("node_kind", text, node_kind),
	MUST("kernel", text_or_null, kernel),
	MUST("param", uint, param),
	MUST("offset", uint, offset),
	MUST("confidence", text, confidence),
	MUST("reason", text, reason),
	MUST("value", hex, value),
	MAY("table", hex, table),
	MAY("table_offset", uint, table_offset),
	SUB("old", pointer, range_rules, old),
	SUB("now", pointer, range_rules, now),
	MAY("arena", text, arena),
	MAY("slot", text, slot),
	MAY("slot_base", hex, slot_base),
	MAY("slot_now", hex, slot_now),
};
RULES(ref_rules, "ref");
#undef HERE

#define HERE report_binding
static const struct rule binding_rules_v[] = {
	MUST("base", hex, base),
	MAY("generation", uint, generation),
	MUST("bytes", uint, bytes),
	MUST("dtype", text, dtype),
	MAY("shape", ints, shape),
	MAY("strides", ints, strides),
	MAY("device", uint, device),
	MUST("layout", text, layout),
	MAY("stack_open", uint, stack_open),
	MAY("stack_close", uint, stack_close),
};
RULES(binding_rules, "binding");
#undef HERE

#define HERE report_finding
static const struct rule slot_rules_v[] = {
	MAY("id", hex, id),
	MUST("kind", text, kind),
	MUST("severity", severity, severity),
	MUST("title", text, title),
	MUST("text", text, text),
	MAY("layer", text, layer),
	MAY("slot", text, slot),
	MAY("source", text, source),
	MAY("cache", text, cache),
	MAY("detail", text, detail),
	SUB("old", pointer, binding_rules, old),
	SUB("new", pointer, binding_rules, now),
	MAY("execs", uint, execs),
	MAY("inferred", flag, inferred),
};
RULES(slot_rules, "slot finding");
#undef HERE

#define HERE report_cache
static const struct rule cache_rules_v[] = {
	MUST("name", text, name),
	MUST("flushed", flag, flushed),
};
RULES(cache_rules, "cache");
#undef HERE

#define HERE report_scope
static const struct rule scope_rules_v[] = {
	MUST("full", flag, full),
	MAY("layers", texts, layers),
	MAY("sources", texts, sources),
	MAY("role", text, role),
};
RULES(scope_rules, "scope");
#undef HERE

#define HERE report_difference
static const struct rule difference_rules_v[] = {
	MUST("reason", text, reason),
	MUST("node", hex, node),
	MUST("kernel", text_or_null, kernel),
	MAY("address", hex, address),
};
RULES(difference_rules, "difference");
#undef HERE

#define HERE report_exit
static const struct rule severities_rules_v[] = {
	MUST("info", uint, findings[SEVERITY_INFO]),
	MUST("warn", uint, findings[SEVERITY_WARN]),
	MUST("error", uint, findings[SEVERITY_ERROR]),
};
RULES(severities_rules, "findings");
static const struct rule standing_rules_v[] = {
	MUST("last", verdict_or_null, reload_last),
	MAY("id", uint, reload_id),
	MAY("generation", uint, generation),
	MAY("unsafe", flag, unsafe),
	MAY("open", flag, reload_open),
};
RULES(standing_rules, "reload");
#undef HERE
static const struct rules ledger_name = { .name = "ledger" };
static const struct rules graphs_name = { .name = "graphs" };
static const struct rules cupti_name = { .name = "cupti" };

/* The lines themselves. */
#define HERE			    line
#define COMMON			    MAY("time_ns", uint, time_ns), MAY("pid", uint, pid)
#define OBJECT(name, rules, member) KEY(name, object, &rules, true, member)

static const struct rule start_rules_v[] = {
	COMMON,
	MUST("ppid", uint, start.ppid),
	MUST("host", text, start.host),
	MUST("rank", uint, start.rank),
	MUST("exe", text, start.exe),
	MAY("argv0", text, start.argv0),
	MUST("version", text, start.version),
	MAY("library", text, start.library),
	MAY("unwinder", text, start.unwinder),
	MAY("ld_preload", text, start.ld_preload),
	MAY("driver_version", uint, start.driver_version),
	MAY("options", options, start.options),
};
RULES(start_rules, "start");
static const struct rule module_rules_v[] = {
	COMMON,
	MUST("id", uint, module.id),
	MUST("path", text, module.path),
	MUST("build_id", text, module.build_id),
};
RULES(module_rules, "module");
static const struct rule stack_rules_v[] = {
	COMMON,
	MUST("id", uint, stack.id),
	MUST("frames", frames, stack.frames),
	MAY("python", python, stack.python),
};
RULES(stack_rules, "stack");
static const struct rule finding_rules_v[] = {
	COMMON,
	MUST("id", hex, finding.id),
	MUST("key", hex, finding.key),
	MUST("kind", text, finding.kind),
	MUST("severity", severity, finding.severity),
	MUST("title", text, finding.title),
	MUST("text", text, finding.text),
	MUST("refused", flag, finding.refused),
	MUST("exec", uint, finding.exec),
	MUST("handle", hex, finding.handle),
	MUST("stack", uint, finding.stack),
	MUST("refs_total", uint, finding.refs_total),
	KEY("refs", objects, &ref_rules, true, finding.refs),
};
RULES(finding_rules, "finding");
static const struct rule event_rules_v[] = {
	COMMON,
	MUST("tid", uint, event.tid),
	MUST("event", text, event.event),
	MUST("what", text, event.what),
	MUST("address", hex, event.address),
	MUST("size", uint, event.size),
	MUST("serial", uint, event.serial),
	MUST("stack", uint, event.stack),
};
RULES(event_rules, "event");
static const struct rule cross_rules_v[] = {
	COMMON,
	MUST("nodes", uint, cross.nodes),
	MUST("addresses", uint, cross.addresses),
	MAY("reasons", numbers, cross.reasons),
	SUB("differences", objects, difference_rules, cross.differences),
};
RULES(cross_rules, "cross");
static const struct rule launch_rules_v[] = {
	COMMON,
	MUST("tid", uint, launch.tid),
	MUST("call", text, launch.call),
	MUST("kernel", text_or_null, launch.kernel),
	MUST("stream", hex, launch.stream),
	MUST("correlation", uint, launch.correlation),
	MUST("result", uint, launch.result),
};
RULES(launch_rules, "launch");
static const struct rule verify_rules_v[] = {
	COMMON,
	MUST("verdict", verdict, reload.verdict),
	KEY("findings", objects, &slot_rules, true, reload.findings),
};
RULES(verify_rules, "verify");
static const struct rule reload_rules_v[] = {
	COMMON,
	MUST("verdict", verdict, reload.verdict),
	MUST("id", uint, reload.id),
	MAY("counts_as", verdict, reload.counts_as),
	MAY("aborted", flag, reload.aborted),
	MAY("why", text, reload.why),
	MAY("unsafe", flag, reload.unsafe),
	MAY("generation", uint, reload.generation),
	OBJECT("scope", scope_rules, reload.scope),
	MAY("layers", numbers, reload.layers),
	MAY("published_bytes", uint, reload.published_bytes),
	MAY("shadow_peak_bytes", uint, reload.shadow_peak_bytes),
	MAY("begin_ns", uint, reload.begin_ns),
	MAY("end_ns", uint, reload.end_ns),
	MAY("receipts", numbers, reload.receipts),
	MAY("manifest", flag, reload.manifest),
	SUB("caches", objects, cache_rules, reload.caches),
	MAY("coverage", numbers, reload.coverage),
	KEY("findings", objects, &slot_rules, true, reload.findings),
	MAY("only_layers", texts, reload.only_layers),
	MAY("only_model", texts, reload.only_model),
};
RULES(reload_rules, "reload");
static const struct rule exit_rules_v[] = {
	COMMON,
	MUST("verdict", verdict, exit.verdict),
	MAY("counts_as", verdict, exit.counts_as),
	OBJECT("findings", severities_rules, exit),
	MAY("findings_by_kind", numbers, exit.by_kind),
	MAY("findings_repeated", uint, exit.findings_repeated),
	MAY("findings_left_out", uint, exit.findings_left_out),
	MAY("lines_lost", uint, exit.lines_lost),
	MAY("unproven", texts, exit.unproven),
	MAY("coverage", numbers, exit.coverage),
	SUB("reload", object, standing_rules, exit),
	SUB("ledger", counters, ledger_name, exit.counters),
	SUB("graphs", counters, graphs_name, exit.counters),
	SUB("cupti", counters, cupti_name, exit.counters),
	MAY("noted", noted, exit.noted),
	MAY("entries", texts, exit.entries),
};
RULES(exit_rules, "exit");
#undef HERE

static const struct {
	const char *name;
	const struct rules *rules;
} line_rules[LINE_TYPE_COUNT] = {
	[LINE_START] = { "start", &start_rules },    [LINE_MODULE] = { "module", &module_rules },
	[LINE_STACK] = { "stack", &stack_rules },    [LINE_FINDING] = { "finding", &finding_rules },
	[LINE_EVENT] = { "event", &event_rules },    [LINE_CROSS] = { "cross", &cross_rules },
	[LINE_LAUNCH] = { "launch", &launch_rules }, [LINE_VERIFY] = { "verify", &verify_rules },
	[LINE_RELOAD] = { "reload", &reload_rules }, [LINE_EXIT] = { "exit", &exit_rules },
};

/*
 * The line
 */

/* What must be known before the tables can be chosen. */
struct opening {
	char type[32];
	uint64_t schema;
};

/* A member of the line: type or schema; others are passed over. */
static bool look_at_member(struct json *j, struct opening *o)
{
	char *key = json_peek(j) == '"' ? j->at + 1 : NULL;
	struct json value;

	if (!key || !json_skip(j))
		return json_fail(j, "no key where one must be");
	if (json_peek(j) != ':')
		return json_fail(j, "no colon behind a key");
	j->at++;
	json_peek(j);
	value = *j;
	if (!json_skip(j))
		return false;
	if (!strncmp(key, "schema\"", 7) && !json_uint(&value, &o->schema))
		return json_fail(j, "\"schema\" is no number");
	if (!strncmp(key, "type\"", 5)) {
		size_t length = (size_t)(j->at - value.at);

		if (*value.at != '"' || length - 2 >= sizeof(o->type))
			return json_fail(j, "\"type\" is no name of a line");
		memcpy(o->type, value.at + 1, length - 2);
		o->type[length - 2] = '\0';
	}
	return true;
}

/* Nearly always type is the second member: the rest need not be looked at. */
static bool look_at_opening(struct json j, struct opening *o, const char **why)
{
	bool first = true;

	if (json_open(&j, '{'))
		while (!(o->type[0] && o->schema) && json_more(&j, &first, '{'))
			if (!look_at_member(&j, o))
				break;
	if (!j.why && !o->type[0])
		json_fail(&j, "no \"type\": not a line of a report");
	if (!j.why && o->schema != 1)
		json_fail(&j, "not of schema 1: read it with the arenactl of its shim's version");
	*why = j.why;
	return !j.why;
}

/* Slot findings have no id in the file: kind, layer and name are the same in another run. */
static uint64_t slot_id(const struct report_finding *f)
{
	const char *parts[] = { f->kind, f->layer, f->slot, f->source, f->cache };
	uint64_t hash = 0;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		hash = (hash ^ take_hash(parts[i], strlen(parts[i]))) * 0x100000001b3;
	return hash ? hash : 1;
}

/* What the tables left NULL. */
static void fill_finding(struct report_finding *f, const struct line *l)
{
	const char **texts[] = { &f->layer, &f->slot, &f->source, &f->cache, &f->detail };

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (!*texts[i])
			*texts[i] = "";
	f->time_ns = l->time_ns;
	f->occurrences = 1;
	if (!f->id)
		f->id = slot_id(f);
}

static void fill_line(struct line *l)
{
	if (l->type == LINE_FINDING)
		fill_finding(&l->finding, l);
	if (l->type == LINE_START) {
		const char **texts[] = { &l->start.argv0, &l->start.library, &l->start.unwinder,
					 &l->start.ld_preload };

		for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
			if (!*texts[i])
				*texts[i] = "";
		l->start.pid = l->pid;
	}
	if (l->type != LINE_RELOAD && l->type != LINE_VERIFY)
		return;
	l->reload.time_ns = l->time_ns;
	l->reload.why = l->reload.why ? l->reload.why : "";
	l->reload.scope.role = l->reload.scope.role ? l->reload.scope.role : "";
	for (size_t i = 0; i < l->reload.findings_count; i++) {
		struct report_finding *f = &l->reload.findings[i];

		fill_finding(f, l);
		f->origin = l->type == LINE_RELOAD ? ORIGIN_RELOAD : ORIGIN_VERIFY;
		f->reload = l->reload.id;
	}
}

static void say(const struct decoder *d, const char *begin, char why[DECODE_WHY_MAX])
{
	if (d->key)
		snprintf(why, DECODE_WHY_MAX, "\"%s\" of %s: %s", d->key, d->object, d->j.why);
	else
		snprintf(why, DECODE_WHY_MAX, "byte %zu: %s", (size_t)(d->j.at - begin) + 1,
			 d->j.why);
}

bool decode_line(char *bytes, size_t length, struct pool *pool, struct line *out,
		 char why[DECODE_WHY_MAX])
{
	struct decoder d = { .pool = pool };
	struct opening o = { "", 0 };

	bytes[length] = '\0';
	d.j = (struct json){ .at = bytes, .end = bytes + length, .depth_max = READ_DEPTH };
	if (!look_at_opening(d.j, &o, &d.j.why)) {
		snprintf(why, DECODE_WHY_MAX, "%s", d.j.why);
		return false;
	}
	*out = (struct line){ .type = LINE_UNKNOWN };
	for (unsigned i = 0; i < LINE_TYPE_COUNT; i++)
		if (!strcmp(line_rules[i].name, o.type))
			out->type = i;
	if (out->type == LINE_UNKNOWN) {
		if (json_skip(&d.j) && json_end(&d.j))
			return true;
	} else if (take_members(&d, out, line_rules[out->type].rules) && json_end(&d.j)) {
		fill_line(out);
		return true;
	}
	say(&d, bytes, why);
	return false;
}
