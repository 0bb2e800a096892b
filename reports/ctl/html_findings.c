/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings and captured addresses as data of a page; html/data.js reads them. Ranges, slots and
 * words that were written are numbers the next time.
 *
 * Threads: one.
 */
#include <string.h>

#include "out_html.h"
#include "symbolise.h"

/* A slot as a ref has it. */
static uint64_t hash_slot(const void *item)
{
	const struct report_ref *r = item;
	uint64_t addresses[] = { r->slot_base, r->slot_now };

	return hash_bytes(addresses, sizeof(addresses), hash_text(r->slot));
}

static bool same_slot(const void *a, const void *b)
{
	const struct report_ref *x = a, *y = b;

	return x->slot_base == y->slot_base && x->slot_now == y->slot_now &&
	       !strcmp(x->slot, y->slot) && !strcmp(x->arena, y->arena);
}

static uint64_t hash_range(const void *item)
{
	const struct report_range *r = item;
	uint64_t what[] = { r->base, r->size, r->generation, r->stack_open, r->stack_close };

	return hash_bytes(what, sizeof(what), 0);
}

static bool same_range(const void *a, const void *b)
{
	const struct report_range *x = a, *y = b;

	return x->base == y->base && x->size == y->size && x->generation == y->generation &&
	       x->stack_open == y->stack_open && x->stack_close == y->stack_close &&
	       !strcmp(x->kind, y->kind);
}

static void put_text(struct html_page *p, const char *text)
{
	int64_t number = text ? dictionary_add(&p->texts, text) : -1;

	if (number < 0)
		html_text(&p->json, NULL, text);
	else
		html_number(&p->json, NULL, (uint64_t)number);
}

static void put_range(struct html_page *p, struct dictionary *ranges, const struct report_range *r)
{
	struct html_json *j = &p->json;
	int64_t number;

	if (!r) {
		html_null(j, NULL);
		return;
	}
	number = dictionary_add(ranges, r);
	if (number >= 0) {
		html_number(j, NULL, (uint64_t)number);
		return;
	}
	html_open(j, NULL, '[');
	html_hex(j, NULL, r->base);
	html_number(j, NULL, r->size);
	html_number(j, NULL, r->generation);
	put_text(p, r->kind);
	html_number(j, NULL, r->stack_open);
	html_number(j, NULL, r->stack_close);
	html_close(j, ']');
}

static void put_slot(struct html_page *p, struct dictionary *slots, const struct report_ref *r)
{
	struct html_json *j = &p->json;
	int64_t number;

	if (!r->slot) {
		html_null(j, NULL);
		return;
	}
	number = dictionary_add(slots, r);
	if (number >= 0) {
		html_number(j, NULL, (uint64_t)number);
		return;
	}
	html_open(j, NULL, '[');
	html_text(j, NULL, r->arena);
	html_text(j, NULL, r->slot);
	html_hex(j, NULL, r->slot_base);
	html_hex(j, NULL, r->slot_now);
	html_close(j, ']');
}

/* One process's: generations mean something within it only. */
struct met {
	struct dictionary ranges, slots;
};

/* The order of html/data.js. */
static void put_ref(struct html_page *p, struct met *met, const struct report_ref *r)
{
	struct html_json *j = &p->json;

	html_open(j, NULL, '[');
	html_number(j, NULL, r->exec);
	html_number(j, NULL, r->node);
	put_text(p, r->node_kind);
	put_text(p, r->kernel);
	html_number(j, NULL, r->param);
	html_number(j, NULL, r->offset);
	put_text(p, r->confidence);
	put_text(p, r->reason);
	html_hex(j, NULL, r->value);
	put_range(p, &met->ranges, r->old);
	put_range(p, &met->ranges, r->now);
	put_slot(p, &met->slots, r);
	html_close(j, ']');
	if (r->kernel && symbolise_name(r->kernel) != r->kernel)
		dictionary_add(&p->names, r->kernel);
}

static void put_refs(struct html_page *p, struct met *met, const struct report_finding *f)
{
	html_number(&p->json, "refs_total", f->refs_total);
	html_open(&p->json, "refs", '[');
	for (size_t i = 0; i < f->refs_count; i++) {
		if (p->refs_written == HTML_REFS_MAX) {
			p->refs_left_out += f->refs_count - i;
			break;
		}
		put_ref(p, met, &f->refs[i]);
		p->refs_written++;
	}
	html_close(&p->json, ']');
}

static void put_binding(struct html_json *j, const char *key, const struct report_binding *b)
{
	if (!b) {
		html_null(j, key);
		return;
	}
	html_open(j, key, '{');
	html_hex(j, "base", b->base);
	html_number(j, "generation", b->generation);
	html_number(j, "bytes", b->bytes);
	html_text(j, "dtype", b->dtype);
	html_open(j, "shape", '[');
	for (size_t i = 0; i < b->shape_count; i++)
		html_number(j, NULL, (uint64_t)(b->shape[i] < 0 ? 0 : b->shape[i]));
	html_close(j, ']');
	html_number(j, "device", b->device);
	html_text(j, "layout", b->layout);
	html_number(j, "open", b->stack_open);
	html_number(j, "close", b->stack_close);
	html_close(j, '}');
}

static void put_finding(struct html_page *p, struct met *met, const struct report_finding *f)
{
	static const char *const origins[] = { "launch", "verify", "reload" };
	struct html_json *j = &p->json;
	char subject[512];

	html_open(j, NULL, '{');
	html_text(j, "origin", origins[f->origin]);
	html_text(j, "severity", severity_names[f->severity]);
	html_text(j, "kind", f->kind);
	html_text(j, "title", f->title);
	html_text(j, "text", f->text);
	html_hex(j, "id", f->id);
	html_time(p, "t", f->time_ns);
	html_number(j, "line", f->line);
	html_number(j, "exec", f->exec);
	html_number(j, "stack", f->stack);
	html_bool(j, "refused", f->refused);
	html_text(j, "layer", f->layer);
	html_text(j, "slot", f->slot);
	html_text(j, "source", f->source);
	html_text(j, "cache", f->cache);
	html_text(j, "detail", f->detail);
	html_number(j, "execs", f->execs);
	html_bool(j, "inferred", f->inferred);
	html_text(j, "subject", finding_subject(f, subject, sizeof(subject)));
	put_binding(j, "old", f->old);
	put_binding(j, "now", f->now);
	put_refs(p, met, f);
	html_close(j, '}');
}

static uint64_t hash_id(const void *id)
{
	return hash_bytes(id, sizeof(uint64_t), 0);
}

static bool same_id(const void *a, const void *b)
{
	return *(const uint64_t *)a == *(const uint64_t *)b;
}

/* A selection may have one for all that are the same mistake; here each occurrence has its place.
 */
void html_findings(struct html_page *p, const struct report *r)
{
	struct met met = {
		.ranges = { .hash = hash_range, .same = same_range },
		.slots = { .hash = hash_slot, .same = same_slot },
	};

	struct dictionary ids = { .hash = hash_id, .same = same_id };

	for (size_t i = 0; i < p->chosen->count; i++)
		if (p->chosen->v[i].report == r)
			dictionary_add(&ids, &p->chosen->v[i].finding->id);
	html_open(&p->json, "findings", '[');
	for (size_t i = 0; i < r->findings.count; i++)
		if (dictionary_find(&ids, &r->findings.v[i]->id) >= 0)
			put_finding(p, &met, r->findings.v[i]);
	html_close(&p->json, ']');
	dictionary_free(&ids);
	dictionary_free(&met.ranges);
	dictionary_free(&met.slots);
}
