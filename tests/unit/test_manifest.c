/* SPDX-License-Identifier: Apache-2.0 */
/* Receipts against the manifest, projected onto scopes; each rule both ways. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/intern.h"
#include "arena/manifest.h"

static struct arena *a0, *a1;

static struct arena *open_arena(const char *path)
{
	struct arena *a;

	registry_lock();
	a = registry_open(path);
	registry_unlock();
	cr_assert_not_null(a);
	return a;
}

static void start(void)
{
	a0 = open_arena("m.layers.0");
	a1 = open_arena("m.layers.1");
}

TestSuite(manifest, .init = start);

static void receive(struct arena *a, const char *key, uint64_t part, uint64_t bytes)
{
	cr_assert_eq(receipt_add(a, key, part, bytes), 0);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* "kind:key kind:key", sorted. */
static const char *verify(const struct arena_scope *scope, const struct arena *a)
{
	static char items[16][64], text[1024];
	struct slot_findings f = { .list = NULL };
	size_t at = 0;

	text[0] = '\0';
	cr_assert_eq(manifest_verify(scope, a, &f), 0);
	cr_assert_leq(f.count, 16);
	for (uint32_t i = 0; i < f.count; i++)
		snprintf(items[i], sizeof(items[i]), "%s:%s", finding_kind_name(f.list[i].kind),
			 interned(f.list[i].name));
	qsort(items, f.count, sizeof(items[0]), by_text);
	for (uint32_t i = 0; i < f.count; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", i ? " " : "",
				       items[i]);
	slot_findings_free(&f);
	return text;
}

static struct arena_scope *scope_of(const char *layer, const char *source, const char *role)
{
	struct arena_scope in = ARENA_SCOPE_INIT, *out = NULL;

	in.layers = &layer;
	in.layers_count = layer != NULL;
	in.sources = &source;
	in.sources_count = source != NULL;
	in.role = role;
	cr_assert_eq(scope_copy(&in, &out), 0);
	return out;
}

/* A model of two layers and a norm of no layer, all of it received. */
static void load(void)
{
	receive(a0, "w0", 0, 100);
	receive(a0, "w0", 1, 50);
	receive(a1, "w1", 0, 100);
	receive(NULL, "norm", 0, 8);
}

static void learn(void)
{
	load();
	receipts_learn();
	receipts_clear();
	cr_assert(manifest_known());
}

Test(manifest, nothing_is_asked_without_one)
{
	cr_assert_str_eq(verify(NULL, NULL), "");
	load();
	cr_assert_not(manifest_known());
	cr_assert_str_eq(verify(NULL, NULL), "");
	receipts_clear();
	receipts_learn(); /* of nothing, which is no manifest */
	cr_assert_not(manifest_known());
}

Test(manifest, what_was_learned_must_come_again)
{
	learn();
	load();
	cr_assert_str_eq(verify(NULL, NULL), "");
	receipts_clear();
	receive(a0, "w0", 0, 150); /* as many bytes in fewer parts */
	cr_assert_str_eq(verify(NULL, a0), "source-short:w0");
	cr_assert_str_eq(verify(NULL, a1), "source-missing:w1");
	cr_assert_str_eq(verify(NULL, NULL),
			 "source-missing:norm source-missing:w1 source-short:w0");
}

Test(manifest, learned_once)
{
	learn();
	receive(a0, "other", 0, 1);
	receipts_learn();
	receipts_clear();
	load();
	cr_assert_str_eq(verify(NULL, NULL), "");
}

Test(manifest, duplicates_count_per_part)
{
	receive(a0, "w0", 7, 1);
	receive(a0, "w0", 3, 1);
	receive(a0, "w0", 5, 1);
	cr_assert_str_eq(verify(NULL, a0), "");
	receive(a0, "w0", 3, 1);
	cr_assert_str_eq(verify(NULL, a0), "source-duplicate:w0");
	cr_assert_str_eq(verify(NULL, a1), "");
}

Test(manifest, strangers)
{
	learn();
	load();
	receive(a1, "bias", 0, 4);
	receive(a1, "w0", 0, 100); /* of another layer */
	cr_assert_str_eq(verify(NULL, a1), "source-unexpected:bias source-unexpected:w0");
	cr_assert_str_eq(verify(NULL, a0), "");
	receipts_clear();
	load();
	receive(NULL, "w1", 1, 4); /* from no layer: the manifest knows whose it is */
	cr_assert_str_eq(verify(NULL, NULL), "source-short:w1");
}

Test(manifest, receiver_outside_of_layers)
{
	learn();
	receive(NULL, "w0", 0, 100);
	receive(NULL, "w0", 1, 50);
	receive(NULL, "w1", 0, 100);
	receive(NULL, "norm", 0, 8);
	cr_assert_str_eq(verify(NULL, NULL), "");
}

Test(manifest, tied_weights_go_to_every_layer)
{
	cr_assert_eq(manifest_add("m.layers.0", "tied", 1, 10, NULL), 0);
	cr_assert_eq(manifest_add("m.layers.1", "tied", 1, 10, NULL), 0);
	receive(a0, "tied", 0, 10);
	cr_assert_str_eq(verify(NULL, NULL), "source-missing:tied");
	receipts_clear();
	receive(NULL, "tied", 0, 10);
	cr_assert_str_eq(verify(NULL, NULL), "");
}

Test(manifest, keys_without_layers)
{
	cr_assert_eq(manifest_add("", "w0", 0, 150, NULL), 0);
	receive(a0, "w0", 0, 100);
	cr_assert_str_eq(verify(NULL, a0), "");
	cr_assert_str_eq(verify(NULL, NULL), "source-short:w0");
	receive(a0, "w0", 1, 50);
	cr_assert_str_eq(verify(NULL, NULL), "");
}

Test(manifest, layers_scope)
{
	struct arena_scope *s = scope_of("m.layers.0", NULL, NULL);

	learn();
	cr_assert_str_eq(verify(s, NULL), "source-missing:w0");
	receive(a0, "w0", 0, 100);
	receive(a0, "w0", 1, 50);
	cr_assert_str_eq(verify(s, NULL), "");
	receive(a1, "w1", 0, 100);
	cr_assert_str_eq(verify(s, NULL), "source-unexpected:w1");
	cr_assert_str_eq(verify(s, a1), "source-unexpected:w1");
	receive(NULL, "norm", 0, 8);
	cr_assert_str_eq(verify(s, NULL), "source-unexpected:norm source-unexpected:w1");
	scope_free(s);
}

Test(manifest, sources_scope)
{
	struct arena_scope *s = scope_of(NULL, "w1", NULL);

	cr_assert_str_eq(verify(s, NULL), "source-missing:w1"); /* the scope itself says so */
	learn();
	cr_assert_str_eq(verify(s, NULL), "source-missing:w1");
	receive(a1, "w1", 0, 100);
	cr_assert_str_eq(verify(s, NULL), "");
	receive(a0, "w0", 0, 100);
	cr_assert_str_eq(verify(s, a0), "source-short:w0 source-unexpected:w0");
	scope_free(s);
}

Test(manifest, roles)
{
	struct arena_scope *draft = scope_of(NULL, NULL, "draft");

	cr_assert_eq(manifest_add("m.layers.0", "w0", 1, 0, "target"), 0);
	cr_assert_eq(manifest_add("m.layers.1", "w1", 1, 0, "draft"), 0);
	cr_assert_eq(manifest_add("", "norm", 1, 0, NULL), 0);
	cr_assert_str_eq(verify(draft, NULL), "source-missing:w1");
	receive(a1, "w1", 0, 5);
	receive(NULL, "norm", 0, 5); /* of no role: it may come */
	cr_assert_str_eq(verify(draft, NULL), "");
	receive(a0, "w0", 0, 5);
	cr_assert_str_eq(verify(draft, NULL), "source-unexpected:w0");
	scope_free(draft);
}

Test(manifest, blind)
{
	struct arena_scope *layer = scope_of("m.layers.0", NULL, NULL);
	struct arena_scope *mtp = scope_of(NULL, NULL, "mtp"), *key = scope_of(NULL, "w0", NULL);

	cr_assert_not(manifest_blind(layer)); /* receipts are not in use */
	receive(a0, "w0", 0, 100);
	cr_assert(manifest_blind(layer));
	cr_assert_not(manifest_blind(NULL));
	cr_assert_not(manifest_blind(key));
	receipts_clear();
	learn();
	load();
	cr_assert_not(manifest_blind(layer));
	cr_assert(manifest_blind(mtp)); /* what was learned has no roles */
	scope_free(layer);
	scope_free(mtp);
	scope_free(key);
}

/* Nothing arrived, and the manifest does not tell what should have. */
Test(manifest, blind_to_what_is_missing)
{
	struct arena_scope *layer = scope_of("m.layers.0", NULL, NULL);
	struct arena_scope *draft = scope_of(NULL, NULL, "draft");

	cr_assert_not(manifest_blind(draft)); /* receipts are not in use */
	cr_assert_eq(manifest_add("m.layers.1", "w1", 1, 0, NULL), 0);
	cr_assert(manifest_blind(draft));
	cr_assert(manifest_blind(layer)); /* it names none of its sources */
	cr_assert_not(manifest_demands(layer));
	cr_assert_eq(manifest_add("m.layers.0", "w0", 1, 0, "draft"), 0);
	cr_assert_not(manifest_blind(draft));
	cr_assert_not(manifest_blind(layer));
	cr_assert(manifest_demands(layer));
	scope_free(layer);
	scope_free(draft);
}

/* What a failed reload may have left half loaded is demanded of a full one, if nothing else is. */
Test(manifest, doubts)
{
	struct arena_scope *layer = scope_of("m.layers.0", NULL, NULL);

	receive(a0, "w0", 0, 1);
	receive(NULL, "norm", 0, 1);
	cr_assert(receipts_arrived(a0->path));
	cr_assert_not(receipts_arrived(a1->path));
	receipts_doubt(a0->path);
	receipts_doubt(0);
	receipts_clear();
	cr_assert_not(receipts_arrived(a0->path));
	cr_assert_str_eq(verify(NULL, NULL), "source-missing:norm source-missing:w0");
	cr_assert_str_eq(verify(layer, NULL), "");
	cr_assert_eq(manifest_add("", "other", 1, 0, NULL), 0); /* it says what must arrive */
	cr_assert_str_eq(verify(NULL, NULL), "source-missing:other");
	manifest_clear();
	receive(a0, "w0", 0, 1);
	receipts_trust(false);
	receipts_clear();
	cr_assert_str_eq(verify(NULL, NULL), "source-missing:norm");
	receipts_trust(true);
	cr_assert_str_eq(verify(NULL, NULL), "");
	scope_free(layer);
}

Test(manifest, bad_entries)
{
	char key[5000];

	cr_assert_eq(manifest_add("", "", 1, 1, NULL), ARENA_E_INVALID);
	cr_assert_eq(manifest_add("", NULL, 1, 1, NULL), ARENA_E_INVALID);
	cr_assert_eq(manifest_add("", "k", 1, 1, "teacher"), ARENA_E_INVALID);
	cr_assert(strstr(arena_message(), "teacher"));
	cr_assert_eq(manifest_add("m", "k", 1, 1, NULL), 0);
	cr_assert_eq(manifest_add("m", "k", 1, 1, NULL), ARENA_E_INVALID);
	cr_assert(strstr(arena_message(), "twice"));
	cr_assert_eq(receipt_add(a0, "", 0, 0), ARENA_E_INVALID);
	memset(key, 'k', sizeof(key) - 1);
	key[sizeof(key) - 1] = '\0';
	cr_assert_eq(receipt_add(a0, key, 0, 0), ARENA_E_INVALID);
	manifest_clear();
	cr_assert_not(manifest_known());
	cr_assert_eq(manifest_add("m", "k", 1, 1, NULL), 0);
}

Test(manifest, many_parts_in_any_order)
{
	enum { PARTS = 1000 };

	cr_assert_eq(manifest_add("m.layers.0", "w0", PARTS, PARTS, NULL), 0);
	for (uint64_t i = 0; i < PARTS; i++)
		receive(a0, "w0", i * 617 % PARTS, 1);
	cr_assert_str_eq(verify(NULL, a0), "");
}

/* ---- scopes ---- */

TestSuite(declared);

Test(declared, null_is_everything)
{
	struct arena_scope *s = NULL;

	cr_assert(scope_full(NULL));
	cr_assert_eq(scope_copy(NULL, &s), 0);
	cr_assert(scope_full(s));
	cr_assert(scope_covers_layer(s, "anything"));
	cr_assert(scope_covers_layer(s, ""));
	cr_assert(scope_covers_source(s, "k", "draft"));
	scope_free(s);
	scope_free(NULL);
}

Test(declared, a_path_covers_what_is_below_it)
{
	const char *const layers[] = { "z", "model.layers.1", "model.layers.30", "a.b" };
	struct arena_scope in = ARENA_SCOPE_INIT, *s = NULL;

	in.layers = layers;
	in.layers_count = 4;
	cr_assert_eq(scope_copy(&in, &s), 0);
	cr_assert_not(scope_full(s));
	cr_assert(scope_covers_layer(s, "model.layers.1"));
	cr_assert(scope_covers_layer(s, "model.layers.1.self_attn.qkv"));
	cr_assert(scope_covers_layer(s, "a.b.c"));
	cr_assert(scope_covers_layer(s, "z.y"));
	cr_assert_not(scope_covers_layer(s, "model.layers.10"));
	cr_assert_not(scope_covers_layer(s, "model.layers.3"));
	cr_assert_not(scope_covers_layer(s, "model.layers"));
	cr_assert_not(scope_covers_layer(s, "a"));
	cr_assert_not(scope_covers_layer(s, "a.bc"));
	cr_assert_not(scope_covers_layer(s, ""));
	scope_free(s);
}

Test(declared, the_copy_is_deep)
{
	char layer[] = "m.layers.0", key[] = "w0", role[] = "mtp";
	struct arena_scope *s = scope_of(layer, key, role);

	layer[0] = key[0] = role[0] = 'X';
	cr_assert(scope_covers_layer(s, "m.layers.0"));
	cr_assert(scope_covers_source(s, "w0", "mtp"));
	cr_assert(scope_covers_source(s, "w0", ""));
	cr_assert_not(scope_covers_source(s, "w0", "draft"));
	cr_assert_not(scope_covers_source(s, "w", "mtp"));
	cr_assert_not(scope_covers_source(s, "w01", "mtp"));
	scope_free(s);
}

Test(declared, bad_scopes)
{
	const char *const names[] = { "a", "" };
	struct arena_scope in = ARENA_SCOPE_INIT, *s = NULL;

	in.layers_count = 1;
	cr_assert_eq(scope_copy(&in, &s), ARENA_E_INVALID);
	in.layers = names;
	in.layers_count = 2;
	cr_assert_eq(scope_copy(&in, &s), ARENA_E_INVALID);
	cr_assert(strstr(arena_message(), "layers[1]"));
	in.layers_count = 1;
	in.role = "judge";
	cr_assert_eq(scope_copy(&in, &s), ARENA_E_INVALID);
	in.role = NULL;
	in.struct_bytes = 8;
	cr_assert_eq(scope_copy(&in, &s), ARENA_E_INVALID);
	in.struct_bytes = 1u << 30;
	cr_assert_eq(scope_copy(&in, &s), ARENA_E_INVALID);
	in.struct_bytes = sizeof(in);
	in.reserved = 5;
	cr_assert_eq(scope_copy(&in, &s), ARENA_E_INVALID);
	cr_assert(strstr(arena_message(), "reserved is 5"), "%s", arena_message());
	cr_assert_null(s);
}

/* Sizes of other versions: an older one ends before the role, a newer one has more. */
Test(declared, other_sizes)
{
	struct {
		struct arena_scope scope;
		char later[16];
	} newer = { .scope = { .struct_bytes = sizeof(newer) } };
	struct arena_scope older = { .struct_bytes = offsetof(struct arena_scope, role),
				     .role = (const char *)(uintptr_t)1 };
	struct arena_scope *s = NULL;

	cr_assert_eq(scope_copy(&older, &s), 0);
	cr_assert_null(s->role);
	scope_free(s);
	cr_assert_eq(scope_copy(&newer.scope, &s), 0);
	cr_assert_eq(s->struct_bytes, sizeof(struct arena_scope));
	scope_free(s);
	newer.later[3] = 1; /* and asks for what we do not know */
	cr_assert_eq(scope_copy(&newer.scope, &s), ARENA_E_INVALID);
	cr_assert(strstr(arena_message(), "install a newer one"), "%s", arena_message());
}

Test(declared, many_sources)
{
	enum { COUNT = 5000 };
	static char text[COUNT][16];
	static const char *keys[COUNT];
	struct arena_scope in = ARENA_SCOPE_INIT, *s = NULL;

	for (unsigned i = 0; i < COUNT; i++) {
		snprintf(text[i], sizeof(text[i]), "k%u", i * 2917 % COUNT);
		keys[i] = text[i];
	}
	in.sources = keys;
	in.sources_count = COUNT;
	cr_assert_eq(scope_copy(&in, &s), 0);
	for (unsigned i = 0; i < COUNT; i++)
		cr_assert(scope_covers_source(s, text[i], ""));
	cr_assert_not(scope_covers_source(s, "k5000", ""));
	scope_free(s);
}
