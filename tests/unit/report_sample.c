/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a report with every type of line into the file named by its argument, then prints the
 * lists of names that schema.json repeats, one JSON object. Run by check_schema.py.
 */
#include <stdio.h>
#include <stdlib.h>

#include "report_fixture.h"

#define PRINT_NAMES(key, count, name_of)                                                      \
	do {                                                                                  \
		printf("%s\"%s\":[", first ? "{" : ",", key);                                 \
		first = false;                                                                \
		for (int i_ = 0; i_ < (int)(count); i_++)                                     \
			printf("%s\"%s\"", i_ ? "," : "", name_of(i_));                       \
		printf("]");                                                                  \
	} while (0)

static void print_names(void)
{
	bool first = true;

	PRINT_NAMES("severity", SEVERITY_COUNT, severity_name);
	PRINT_NAMES("finding_kind", FINDING_KIND_COUNT, finding_kind_name);
	PRINT_NAMES("stale_reason", STALE_REASON_COUNT, stale_reason_name);
	PRINT_NAMES("confidence", CONFIDENCE_EXACT + 1, confidence_name);
	PRINT_NAMES("range_kind", RANGE_KIND_COUNT, range_kind_name);
	PRINT_NAMES("node_kind", NODE_KIND_COUNT, node_kind_name);
	PRINT_NAMES("event_kind", EVENT_KIND_COUNT, event_kind_name);
	PRINT_NAMES("cross_reason", CROSS_REASON_COUNT, cross_reason_name);
	printf("}\n");
}

/* Each kind of everything once. */
static void write_findings(void)
{
	for (int kind = 0; kind < FINDING_KIND_COUNT; kind++) {
		struct finding_ref refs[STALE_REASON_COUNT + 1];
		struct finding f = fixture_finding((uint64_t)kind + 1, refs, STALE_REASON_COUNT + 1);

		for (int i = 0; i <= STALE_REASON_COUNT; i++) {
			refs[i] = fixture_ref();
			refs[i].reason = (uint8_t)(i % STALE_REASON_COUNT);
			refs[i].node_kind = (uint8_t)(i % NODE_KIND_COUNT);
			refs[i].confidence = (uint8_t)(i % (CONFIDENCE_EXACT + 1));
			refs[i].old.kind = (enum range_kind)(i % RANGE_KIND_COUNT);
		}
		refs[0].now.base = 0;
		refs[0].name = 0;
		refs[1].arena = intern("model.layers.3");
		refs[1].slot = intern("W\"UV");
		refs[1].slot_base = 0x1000;
		refs[2].table = 0x2000;
		refs[2].table_offset = 8;
		f.kind = (enum finding_kind)kind;
		f.refused = kind % 2;
		report_finding(&f);
	}
}

static void write_cross(void)
{
	struct cross_result r = { .compared = true, .nodes = 7, .addresses = 30 };

	for (int i = 0; i < CROSS_REASON_COUNT; i++) {
		r.counts[i] = 1;
		r.list[r.listed++] = (struct cross_difference){
			.reason = (enum cross_reason)i,
			.name = i % 2 ? intern("_Z4gemmPf") : 0,
			.node = 0x1000,
			.address = i % 3 ? 0x7f0000000100 : 0,
		};
	}
	report_cross(&r);
}

static void write_launches(void)
{
	report_launch(&(struct report_launch){ .call = "cuLaunchKernel",
					       .kernel = intern("_Z4gemmPf"),
					       .correlation = 7 });
	report_launch(&(struct report_launch){ .call = "cuMemcpyAsync",
					       .stream = 0x5000,
					       .result = 1 });
}

/* Findings about slots, sources and caches, in a comparison and at the end of a reload. */
static void write_slots(void)
{
	struct slot_findings found = { .list = NULL };
	struct arena_scope *scope;
	const char *const layers[] = { "model.layers.3" };
	struct reload_outcome r = { .id = 1, .verdict = RELOAD_FAIL, .why = "by \"hand\"" };

	for (int kind = 0; kind < FINDING_KIND_COUNT; kind++)
		slot_findings_add(&found, &(struct slot_finding){
			.kind = (enum finding_kind)kind,
			.severity = (enum severity)(kind % SEVERITY_COUNT),
			.path = intern("model.layers.3"),
			.name = intern("W_UV"),
			.old_base = kind % 2 ? 0x1000 : 0,
			.new_base = kind % 3 ? 0x2000 : 0,
			.old_spec = { .bytes = 64, .ndim = 2, .shape = { 4, 4 }, .dtype = "<f4" },
			.old_stack = 1,
			.old_closed = 3,
			.new_stack = 4,
			.inferred = kind % 2,
			.detail = intern("as a sample"),
		});
	slot_findings_normalise(&found);
	free(report_verify(&found));
	r.findings = found;
	r.only_layers = found;
	scope_copy(&(struct arena_scope){ .struct_bytes = sizeof(struct arena_scope),
					  .layers_count = 1, .layers = layers, .role = "draft" },
		   &scope);
	r.scope = scope;
	free(report_reload(&r));
	r.scope = NULL;
	r.id = 2;
	free(report_reload(&r));
	cache_register("prefix", NULL, NULL);
	free(report_reload(&r));
	slot_findings_free(&found);
	scope_free(scope);
}

int main(int argc, char **argv)
{
	struct report_source source = fixture_source(argc > 1 ? argv[1] : "");

	fixture_gap = 2;
	report_init(&source);
	report_unproven("said by hand");
	write_findings();
	for (int kind = 0; kind < EVENT_KIND_COUNT; kind++)
		report_event(&(struct event){ .kind = (enum event_kind)kind, .address = 0x1000,
					      .size_bytes = 512, .serial = 1, .what = "device",
					      .stack = 1 });
	write_cross();
	write_launches();
	write_slots();
	report_exit();
	print_names();
	return fixture_said_times == 1 ? 0 : 1;
}
