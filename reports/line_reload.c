/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines about slots: what a comparison found, how a reload ended (format: arena-report(5)).
 * Any thread, with a text of its own.
 */
#include <unistd.h>

#include "arena/intern.h"
#include "reports/lines.h"
#include "reports/value.h"

/* ---- findings ---- */

static json_t *dims(const int64_t *v, uint32_t count)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < count; i++)
		json_array_append_new(list, json_integer(v[i]));
	return list;
}

/* Where a slot was or is; null: nowhere. */
static json_t *binding(uint64_t base, uint64_t generation, const struct arena_spec *spec,
		       uint32_t opened, uint32_t closed)
{
	json_t *o;

	if (!base)
		return json_null();
	o = json_object();
	value_set_hex(o, "base", base);
	value_set_uint(o, "generation", generation);
	value_set_uint(o, "bytes", spec->bytes);
	value_set_text(o, "dtype", spec->dtype);
	json_object_set_new(o, "shape", dims(spec->shape, spec->ndim));
	json_object_set_new(o, "strides", dims(spec->strides, spec->ndim));
	json_object_set_new(o, "device", json_integer(spec->device));
	value_set_text(o, "layout", spec->layout);
	value_set_uint(o, "stack_open", opened);
	value_set_uint(o, "stack_close", closed);
	return o;
}

/* What f->name names. */
static const char *name_key(enum finding_kind kind)
{
	switch (kind) {
	case FINDING_SOURCE_DUPLICATE:
	case FINDING_SOURCE_MISSING:
	case FINDING_SOURCE_SHORT:
	case FINDING_SOURCE_UNEXPECTED:
		return "source";
	case FINDING_STALE_CACHE:
		return "cache";
	default:
		return "slot";
	}
}

static json_t *finding_text_value(const struct slot_finding *f)
{
	char text[2048];

	slot_finding_text(f, text, sizeof(text));
	return value_bytes(text);
}

static json_t *finding(const struct slot_finding *f)
{
	json_t *o = json_object();

	value_set_text(o, "kind", finding_kind_name(f->kind));
	value_set_text(o, "severity", severity_name(f->severity));
	value_set_text(o, "title",
		       f->inferred ? "memory that live graphs refer to is gone, and other memory "
				     "seems to have its place" :
				     finding_title(f->kind));
	json_object_set_new(o, "text", finding_text_value(f));
	value_set_text(o, "layer", interned(f->path));
	value_set_text(o, "slot", "");
	value_set_text(o, "source", "");
	value_set_text(o, "cache", "");
	value_set_text(o, name_key(f->kind), interned(f->name));
	value_set_text(o, "detail", interned(f->detail));
	json_object_set_new(o, "old", binding(f->old_base, f->old_generation, &f->old_spec,
					      f->old_stack, f->old_closed));
	json_object_set_new(o, "new", binding(f->new_base, f->new_generation, &f->new_spec,
					      f->new_stack, 0));
	value_set_uint(o, "execs", f->execs_count);
	json_object_set_new(o, "inferred", json_boolean(f->inferred));
	return o;
}

static json_t *findings(const struct slot_findings *f)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < f->count; i++)
		json_array_append_new(list, finding(&f->list[i]));
	return list;
}

static json_t *texts(const struct slot_findings *f)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < f->count; i++)
		json_array_append_new(list, finding_text_value(&f->list[i]));
	return list;
}

/* ---- lines ---- */

static json_t *line(const char *type, enum verdict verdict)
{
	json_t *o = value_line(type);

	value_set_uint(o, "time_ns", lines_now_ns());
	value_set_uint(o, "pid", (uint64_t)getpid());
	value_set_text(o, "verdict", verdict_name(verdict));
	return o;
}

void line_verify(struct text *t, const struct slot_findings *f, enum verdict verdict)
{
	json_t *o = line("verify", verdict);

	json_object_set_new(o, "findings", findings(f));
	lines_end(t, o);
}

/* ---- reloads ---- */

static json_t *strings(const char *const *list, uint32_t count)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < count; i++)
		json_array_append_new(array, value_bytes(list[i]));
	return array;
}

static json_t *scope(const struct arena_scope *s)
{
	json_t *o = json_object();

	json_object_set_new(o, "full", json_boolean(scope_full(s)));
	json_object_set_new(o, "layers", s ? strings(s->layers, s->layers_count) : json_array());
	json_object_set_new(o, "sources", s ? strings(s->sources, s->sources_count) : json_array());
	value_set_text(o, "role", s ? s->role : NULL);
	return o;
}

static json_t *layers(const struct reload_outcome *r)
{
	json_t *o = json_object();

	value_set_uint(o, "committed", r->layers_committed);
	value_set_uint(o, "refused", r->layers_refused);
	value_set_uint(o, "open", r->layers_open);
	return o;
}

static json_t *receipts(const struct receipt_counts *r)
{
	json_t *o = json_object();

	value_set_uint(o, "sources", r->sources);
	value_set_uint(o, "parts", r->parts);
	value_set_uint(o, "bytes", r->bytes);
	return o;
}

static void add_cache(void *to, const char *name, bool flushed)
{
	json_t *o = json_object();

	value_set_text(o, "name", name);
	json_object_set_new(o, "flushed", json_boolean(flushed));
	json_array_append_new(to, o);
}

static void add_gap(void *to, const char *key, const char *text, uint64_t count, bool decisive)
{
	value_set_uint(to, key, count);
}

void line_reload(struct text *t, const struct report_source *s, const struct reload_outcome *r)
{
	json_t *o = line("reload", (enum verdict)r->verdict);
	json_t *caches = json_array(), *coverage = json_object();

	value_set_uint(o, "id", r->id);
	value_set_text(o, "counts_as", reload_outcome_fails(r) ? "fail" : "pass");
	json_object_set_new(o, "aborted", json_boolean(r->aborted));
	value_set_text(o, "why", r->why);
	json_object_set_new(o, "unsafe", json_boolean(r->unsafe));
	value_set_uint(o, "generation", r->generation);
	json_object_set_new(o, "scope", scope(r->scope));
	json_object_set_new(o, "layers", layers(r));
	value_set_uint(o, "published_bytes", r->published_bytes);
	value_set_uint(o, "shadow_peak_bytes", r->shadow_peak_bytes);
	value_set_uint(o, "begin_ns", r->begin_ns);
	value_set_uint(o, "end_ns", r->end_ns);
	json_object_set_new(o, "receipts", receipts(&r->receipts));
	json_object_set_new(o, "manifest", json_boolean(manifest_known()));
	caches_tell(add_cache, caches);
	json_object_set_new(o, "caches", caches);
	if (s && s->coverage)
		s->coverage(add_gap, coverage);
	json_object_set_new(o, "coverage", coverage);
	json_object_set_new(o, "findings", findings(&r->findings));
	json_object_set_new(o, "only_layers", texts(&r->only_layers));
	json_object_set_new(o, "only_model", texts(&r->only_model));
	lines_end(t, o);
}
