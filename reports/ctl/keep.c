/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deep copies: a struct is copied whole, then each pointer in it is replaced.
 *
 * Threads: one.
 */
#include "keep.h"

#include "intern.h"
#include "shape.h"

#define COPY(set, from) pool_copy(&(set)->pool, from, sizeof(*(from)))

static void keep_text(struct report_set *set, const char **s)
{
	*s = intern_text(set->intern, *s);
}

static void keep_texts(struct report_set *set, struct texts *t)
{
	t->v = pool_copy(&set->pool, t->v, t->count * sizeof(*t->v));
	for (size_t i = 0; i < t->count; i++)
		keep_text(set, &t->v[i]);
}

static void keep_pairs(struct report_set *set, struct pairs *p)
{
	p->v = pool_copy(&set->pool, p->v, p->count * sizeof(*p->v));
	for (size_t i = 0; i < p->count; i++) {
		keep_text(set, &p->v[i].key);
		keep_text(set, &p->v[i].text);
	}
}

struct report_start *keep_start(struct report_set *set, const struct report_start *from)
{
	struct report_start *s = COPY(set, from);
	const char **texts[] = { &s->host,    &s->exe,	    &s->argv0,	   &s->version,
				 &s->library, &s->unwinder, &s->ld_preload };

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		keep_text(set, texts[i]);
	keep_pairs(set, &s->options);
	return s;
}

struct report_module *keep_module(struct report_set *set, const struct report_module *from)
{
	struct report_module *m = COPY(set, from);

	keep_text(set, &m->path);
	keep_text(set, &m->build_id);
	return m;
}

struct report_stack *keep_stack(struct report_set *set, const struct report_stack *from)
{
	struct report_stack *s = COPY(set, from);

	s->frames = pool_copy(&set->pool, s->frames, s->frame_count * sizeof(*s->frames));
	s->python = pool_copy(&set->pool, s->python, s->python_count * sizeof(*s->python));
	for (size_t i = 0; i < s->python_count; i++) {
		keep_text(set, &s->python[i].file);
		keep_text(set, &s->python[i].function);
	}
	return s;
}

static void keep_range(struct report_set *set, const struct report_range **r)
{
	struct report_range *copy;

	if (!*r)
		return;
	copy = COPY(set, *r);
	keep_text(set, &copy->kind);
	*r = copy;
}

static void keep_ref(struct report_set *set, struct report_ref *r)
{
	const char **texts[] = { &r->node_kind, &r->confidence, &r->reason,
				 &r->kernel,	&r->arena,	&r->slot };

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		keep_text(set, texts[i]);
	keep_range(set, &r->old);
	keep_range(set, &r->now);
}

static void keep_binding(struct report_set *set, const struct report_binding **b)
{
	struct report_binding *copy;

	if (!*b)
		return;
	copy = COPY(set, *b);
	keep_text(set, &copy->dtype);
	keep_text(set, &copy->layout);
	copy->shape = pool_copy(&set->pool, copy->shape, copy->shape_count * sizeof(int64_t));
	copy->strides = pool_copy(&set->pool, copy->strides, copy->strides_count * sizeof(int64_t));
	*b = copy;
}

struct report_finding *keep_finding(struct report_set *set, const struct report_finding *from)
{
	struct report_finding *f = COPY(set, from);
	const char **texts[] = { &f->kind, &f->title,  &f->text,  &f->layer,
				 &f->slot, &f->source, &f->cache, &f->detail };

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		keep_text(set, texts[i]);
	if (set->limits.shapes)
		f->refs_count = shape_unique(f->refs, f->refs_count);
	if (f->refs_count > set->limits.refs)
		f->refs_count = set->limits.refs;
	f->refs = pool_copy(&set->pool, f->refs, f->refs_count * sizeof(*f->refs));
	for (size_t i = 0; i < f->refs_count; i++)
		keep_ref(set, &f->refs[i]);
	keep_binding(set, &f->old);
	keep_binding(set, &f->now);
	return f;
}

struct report_event *keep_event(struct report_set *set, const struct report_event *from)
{
	struct report_event *e = COPY(set, from);

	keep_text(set, &e->event);
	keep_text(set, &e->what);
	return e;
}

struct report_cross *keep_cross(struct report_set *set, const struct report_cross *from)
{
	struct report_cross *c = COPY(set, from);

	keep_pairs(set, &c->reasons);
	c->differences = pool_copy(&set->pool, c->differences, c->count * sizeof(*c->differences));
	for (size_t i = 0; i < c->count; i++) {
		keep_text(set, &c->differences[i].reason);
		keep_text(set, &c->differences[i].kernel);
	}
	return c;
}

struct report_launch *keep_launch(struct report_set *set, const struct report_launch *from)
{
	struct report_launch *l = COPY(set, from);

	keep_text(set, &l->call);
	keep_text(set, &l->kernel);
	return l;
}

struct report_reload *keep_reload(struct report_set *set, const struct report_reload *from)
{
	struct report_reload *r = COPY(set, from);

	keep_text(set, &r->why);
	keep_text(set, &r->scope.role);
	keep_texts(set, &r->scope.layers);
	keep_texts(set, &r->scope.sources);
	keep_pairs(set, &r->layers);
	keep_pairs(set, &r->receipts);
	keep_pairs(set, &r->coverage);
	r->caches = pool_copy(&set->pool, r->caches, r->cache_count * sizeof(*r->caches));
	for (size_t i = 0; i < r->cache_count; i++)
		keep_text(set, &r->caches[i].name);
	keep_texts(set, &r->only_layers);
	keep_texts(set, &r->only_model);
	return r;
}

void keep_reload_brief(struct report_set *set, struct report_reload *to,
		       const struct report_reload *from)
{
	static const struct pairs no_pairs;
	static const struct texts no_texts;

	*to = *from;
	keep_text(set, &to->why);
	keep_text(set, &to->scope.role);
	to->scope.layers = to->scope.sources = to->only_layers = to->only_model = no_texts;
	to->layers = to->receipts = to->coverage = no_pairs;
	to->caches = NULL;
	to->cache_count = 0;
}

struct report_exit *keep_exit(struct report_set *set, const struct report_exit *from)
{
	struct report_exit *e = COPY(set, from);

	keep_texts(set, &e->unproven);
	keep_texts(set, &e->entries);
	keep_pairs(set, &e->by_kind);
	keep_pairs(set, &e->coverage);
	keep_pairs(set, &e->noted);
	keep_pairs(set, &e->counters);
	return e;
}
