/* SPDX-License-Identifier: Apache-2.0 */
/* Findings: names, stable ids, counts, text. */
#include "world.h"

#define A 0x7f0000000000ull

TestSuite(finding, .init = world_start);

static struct finding_ref kernel_ref(const char *name, unsigned param, uint64_t base)
{
	return (struct finding_ref){
		.exec_serial = 3,
		.node_kind = NODE_KERNEL,
		.name = intern(name),
		.param = (uint16_t)param,
		.confidence = CONFIDENCE_EXACT,
		.reason = STALE_FREED,
		.value = base + 64,
		.old = { .base = base,
			 .size_bytes = 64 * MIB,
			 .generation = base >> 20,
			 .kind = RANGE_DEVICE },
	};
}

static struct finding stale(const struct finding_ref *refs, uint32_t count)
{
	return (struct finding){ .kind = FINDING_STALE_LAUNCH,
				 .exec_serial = 3,
				 .refs = refs,
				 .refs_count = count,
				 .refs_total = count };
}

static uint64_t id_of(const struct finding_ref *refs, uint32_t count)
{
	struct finding f = stale(refs, count);

	finding_emit(&f);
	cr_assert_neq(f.id, 0);
	cr_assert_neq(f.time_ns, 0);
	return f.id;
}

static const char *text_of(const struct finding *f)
{
	static char buf[4096];

	cr_assert_eq(finding_text(f, buf, sizeof(buf)), strlen(buf));
	return buf;
}

Test(finding, names)
{
	cr_assert_str_eq(finding_kind_name(FINDING_STALE_LAUNCH), "stale-launch");
	cr_assert_str_eq(severity_name(finding_severity(FINDING_STALE_LAUNCH)), "error");
	cr_assert_str_eq(severity_name(finding_severity(FINDING_FREED_WHILE_REFERENCED)), "warn");
	cr_assert_str_eq(severity_name(finding_severity(FINDING_CONTENT_UNDEFINED)), "info");
	cr_assert_str_eq(stale_reason_name(STALE_IN_FLIGHT), "in-flight");
	cr_assert_str_eq(confidence_name(CONFIDENCE_STRUCT), "struct");
	for (unsigned k = 0; k < FINDING_KIND_COUNT; k++)
		cr_assert(strlen(finding_title(k)) > 10);
}

Test(finding, id_has_no_addresses_and_no_order)
{
	struct finding_ref a[] = { kernel_ref("k_a", 1, A), kernel_ref("k_b", 0, A + MIB) };
	struct finding_ref b[] = { a[1], a[0], a[0] };

	for (unsigned i = 0; i < 3; i++) {
		b[i].exec_serial += 100;
		b[i].node += 7;
		b[i].value += 1 << 30;
		b[i].old.base += 1 << 30;
		b[i].old.generation += 1000;
		b[i].now = a[0].old;
	}
	cr_assert_eq(id_of(a, 2), id_of(b, 3));
}

Test(finding, id_tells_faults_apart)
{
	struct finding_ref r = kernel_ref("k_a", 1, A), other[8];
	uint64_t ids[9];

	for (unsigned i = 0; i < 8; i++)
		other[i] = r;
	other[1].name = intern("k_b");
	other[2].param = 2;
	other[3].offset = 8;
	other[4].old.size_bytes = MIB;
	other[5].old.kind = RANGE_POOL;
	other[6].reason = STALE_GENERATION;
	for (unsigned i = 0; i < 7; i++)
		ids[i] = id_of(&other[i], 1);
	ids[7] = id_of(&other[1], 2);
	ids[8] = ((struct finding[]){ stale(&r, 1) })[0].id;
	for (unsigned i = 0; i < 9; i++)
		for (unsigned k = 0; k < i; k++)
			cr_assert_neq(ids[i], ids[k], "%u and %u", i, k);
}

/* The id is part of the report format: suppression files hold it. */
Test(finding, id_is_the_same_in_every_build)
{
	struct finding_ref r = kernel_ref("k_a", 1, A);

	cr_assert_eq(id_of(&r, 1), 0xc8d2defbf18a60d6ull, "%#lx", (unsigned long)id_of(&r, 1));
}

/* A slot that moved is told by its name; each counts for itself, though they share a range. */
Test(finding, text_of_slots)
{
	struct finding_ref r[] = { kernel_ref("k_a", 1, A), kernel_ref("k_b", 0, A),
				   kernel_ref("k_c", 2, A) };
	struct finding f = stale(r, 2);

	for (unsigned i = 0; i < 3; i++) {
		r[i].reason = STALE_SLOT_MOVED;
		r[i].arena = intern("model.layers.3");
		r[i].slot = intern(i ? "W_UK_T" : "W_UV");
		r[i].slot_base = A + i * 4096;
		r[i].slot_now = A + (8 + i) * 4096;
	}
	cr_assert_str_eq(
		text_of(&f),
		"stale-launch: graph exec 3 refers to 2 places that have moved: slot "
		"model.layers.3/W_UV moved from 0x7f0000000000 to 0x7f0000008000, in "
		"0x7f0000000000 (64 MiB device, generation 133169152) by kernel k_a param 1 "
		"(+0); slot model.layers.3/W_UK_T moved from 0x7f0000001000 to 0x7f0000009000, "
		"in 0x7f0000000000 (64 MiB device, generation 133169152) by kernel k_b param "
		"0 (+0)");
	r[2].reason = STALE_FREED;
	f = stale(&r[1], 2);
	cr_assert(strstr(text_of(&f), "refers to 2 places that have moved or are gone: slot "));
	cr_assert(strstr(text_of(&f), "freed, slot model.layers.3/W_UK_T) by kernel k_c"));
	cr_assert_neq(id_of(&r[0], 1), id_of(&r[1], 1));
}

Test(finding, counts)
{
	struct finding f = { .kind = FINDING_FREED_WHILE_REFERENCED };
	struct finding_ref r = kernel_ref("k", 0, A);

	finding_emit(&f);
	id_of(&r, 1);
	id_of(&r, 1);
	cr_assert_eq(finding_count(SEVERITY_ERROR), 2);
	cr_assert_eq(finding_count(SEVERITY_WARN), 1);
	cr_assert_eq(finding_count(SEVERITY_INFO), 0);
	cr_assert_eq(finding_kind_count(FINDING_STALE_LAUNCH), 2);
	cr_assert_eq(world_findings, 3);
	device.finding = NULL;
	finding_emit(&f);
	cr_assert_eq(finding_count(SEVERITY_WARN), 2);
}

Test(finding, text_of_a_stale_launch)
{
	struct finding_ref refs[] = { kernel_ref("k_acc", 1, A), kernel_ref("k_acc", 2, A),
				      kernel_ref("k_set", 0, A + MIB) };
	struct finding f = stale(refs, 3);

	refs[2].reason = STALE_GENERATION;
	refs[2].old.size_bytes = 3 << 19;
	refs[2].now = (struct finding_range){
		.base = A + MIB, .size_bytes = 100, .generation = 31, .kind = RANGE_POOL
	};
	cr_assert_str_eq(text_of(&f),
			 "stale-launch: graph exec 3 refers to 2 ranges that are gone: "
			 "0x7f0000000000 (64 MiB device, generation 133169152, freed) "
			 "by kernel k_acc param 1 (+0) and 1 more ref; "
			 "0x7f0000100000 (1.5 MiB device, generation 133169153, replaced; "
			 "now 0x7f0000100000 (100 B pool, generation 31)) "
			 "by kernel k_set param 0 (+0)");
	f.refused = true;
	cr_assert(strstr(text_of(&f), "graph exec 3 was not launched: it refers to 2 ranges"));
}

Test(finding, text_of_many_causes)
{
	struct finding_ref refs[10];
	struct finding f = stale(refs, 10);

	for (unsigned i = 0; i < 10; i++)
		refs[i] = kernel_ref("k", i, A + i * MIB);
	cr_assert(strstr(text_of(&f), "; and 6 more ranges"));
}

Test(finding, text_of_a_free)
{
	struct finding_ref refs[] = { kernel_ref("k_acc", 1, A), kernel_ref("k_acc", 1, A) };
	struct finding f = stale(refs, 2);

	f.kind = FINDING_FREED_WHILE_REFERENCED;
	refs[1].exec_serial = 4;
	refs[1].node_kind = NODE_MEMCPY;
	refs[1].node = 5;
	f.refs_total = 9;
	cr_assert_str_eq(text_of(&f),
			 "freed-while-referenced: 0x7f0000000000 (64 MiB device, generation "
			 "133169152) is freed while 2 graph execs refer to it: graph exec 3 kernel "
			 "k_acc param 1 (+0); graph exec 4 memcpy node 5 destination; "
			 "and 7 more refs");
}

Test(finding, text_of_the_others)
{
	struct finding_ref r = kernel_ref("k", 0, A);
	struct finding f = stale(&r, 1);

	r.reason = STALE_IN_FLIGHT;
	cr_assert(strstr(text_of(&f), "graph exec 3 may still run on 1 range unmapped now: 0x7f"));
	r.reason = STALE_UNDEFINED;
	f.kind = FINDING_CONTENT_UNDEFINED;
	cr_assert(strstr(text_of(&f), "content-undefined: graph exec 3 refers to 1 range mapped "
				      "again and not written since: 0x7f"));
}

/* As snprintf(): the length that it would have, and never beyond the buffer. */
Test(finding, text_is_cut)
{
	struct finding_ref refs[10];
	struct finding f = stale(refs, 10);
	char whole[4096], cut[4096];
	size_t length;

	for (unsigned i = 0; i < 10; i++)
		refs[i] = kernel_ref("k", i, A + i * MIB);
	length = finding_text(&f, whole, sizeof(whole));
	for (size_t size = 0; size <= length + 1; size++) {
		memset(cut, '#', sizeof(cut));
		cr_assert_eq(finding_text(&f, cut, size), length);
		if (size)
			cr_assert_eq(strlen(cut), size - 1);
		cr_assert_eq(cut[size], '#');
		cr_assert(!size || !strncmp(cut, whole, size - 1));
	}
	f.refs_count = 0;
	cr_assert(strstr(text_of(&f), "refers to 0 ranges"));
}
