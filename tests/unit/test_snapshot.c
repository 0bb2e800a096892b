/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots against what slots are bound to later (design rules 1, 4 to 7): the cases and the
 * traps. */
#include "slots.h"

#include "arena/slab.h"
#include "arena/snapshot.h"
#include "seed.h"

#define A 0x7f0000000000ull
#define B 0x7f1000000000ull
#define C 0x7f2000000000ull
#define R 0x700000000000ull /* a reservation */
#define G 0x100ull	    /* handle of an exec */

TestSuite(snapshot, .init = world_start);

static struct arena_snapshot *snap;
static struct slot_findings found;

/* SNAP() of the cases. */
static void take(void)
{
	snapshot_free(snap);
	cr_assert_eq(snapshot_take(NULL, &snap), 0);
}

/* VFY(): how many findings. */
static uint32_t verify(void)
{
	slot_findings_free(&found);
	cr_assert_eq(snapshot_verify(snap, NULL, &found), 0);
	slot_findings_normalise(&found);
	return found.count;
}

/* Is there exactly one finding of @kind for "model/@name", and is it @severity? */
static bool tells(enum finding_kind kind, const char *name, enum severity severity)
{
	unsigned hits = 0;

	for (uint32_t i = 0; i < found.count; i++) {
		const struct slot_finding *f = &found.list[i];

		if (f->kind != kind || strcmp(interned(f->name), name) != 0)
			continue;
		cr_expect_eq(f->severity, severity, "%s %s is %s", finding_kind_name(kind), name,
			     severity_name(f->severity));
		hits += f->severity == severity;
	}
	return hits == 1;
}

static const char *text_of(uint32_t i)
{
	static char buf[2048];

	cr_assert_eq(slot_finding_text(&found.list[i], buf, sizeof(buf)), strlen(buf));
	return buf;
}

Test(snapshot, nothing_happened)
{
	world_alloc(A);
	bind("w", A);
	world_exec(G, KERNEL(1, 1, A));
	take();
	cr_assert_eq(verify(), 0);
	bind("w", A);
	cr_assert_eq(verify(), 0, "bound again to the same");
	exec_close(G);
	cr_assert_eq(verify(), 0);
}

/* Slots share ranges or not; nothing is bound anew, one range goes. */
Test(snapshot, one_range_of_several_is_gone)
{
	world_alloc(A);
	world_alloc(B);
	world_alloc(C);
	bind_bytes("a", ARENA_BOUND, A, 64);
	bind_bytes("a2", ARENA_BOUND, A + 64, 64);
	bind_bytes("nobody's", ARENA_BOUND, A + 512 * MIB, 64);
	bind_bytes("b", ARENA_BOUND, B, 64);
	bind_bytes("c", ARENA_BOUND, C, 64);
	bind_bytes("b2", ARENA_BOUND, B + 64, 64);
	world_exec(G, KERNEL(1, 1, A, B, B + 64, C));
	take();
	cr_assert_eq(verify(), 0);
	world_free(B);
	cr_assert_eq(verify(), 2);
	cr_assert(tells(FINDING_MISSING, "b", SEVERITY_ERROR));
	cr_assert(tells(FINDING_MISSING, "b2", SEVERITY_ERROR));
	world_free(C);
	cr_assert_eq(verify(), 3);
	world_free(A);
	cr_assert_eq(verify(), 5);
}

/* A01, A05: a kernel object was rebuilt, the old memory freed or not. */
Test(snapshot, moved)
{
	world_alloc(A);
	world_alloc(C);
	bind("moe.ab_strides", A);
	bind("w1.scale", C);
	world_exec(G, KERNEL(1, 1, A, C));
	take();
	world_alloc(B);
	bind("moe.ab_strides", B);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_MOVED, "moe.ab_strides", SEVERITY_ERROR));
	cr_assert_eq(found.list[0].execs_count, 1);
	cr_assert_eq(found.list[0].old_base, A);
	cr_assert_eq(found.list[0].new_base, B);
	world_free(A);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_MOVED, "moe.ab_strides", SEVERITY_ERROR));
	bind("moe.ab_strides", A);
	exec_close(G);
	cr_assert(!tells(FINDING_MOVED, "w1.scale", SEVERITY_ERROR));
}

/* A02: an object is dropped with its workspace, then made anew elsewhere. */
Test(snapshot, object_dropped_then_made_anew)
{
	world_alloc(A);
	bind_object("b12x.wrapper", 1, BASES(A));
	world_exec(G, KERNEL(1, 1, A));
	take();
	world_free(A);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_MISSING, "b12x.wrapper", SEVERITY_ERROR));
	world_alloc(B);
	bind_object("b12x.wrapper", 2, BASES(B));
	cr_assert_eq(verify(), 2);
	cr_assert(tells(FINDING_MOVED, "b12x.wrapper", SEVERITY_ERROR));
	cr_assert(tells(FINDING_REPLACED, "b12x.wrapper", SEVERITY_ERROR));
	cr_assert_eq(found.list[0].old_base, A);
	cr_assert_eq(found.list[0].new_base, B);
}

/* Something inside a third-party object was allocated again. */
Test(snapshot, object_reallocates_inside)
{
	world_alloc(A);
	world_alloc(B);
	bind_object("wrapper", 1, BASES(A, B));
	world_exec(G, KERNEL(1, 1, A));
	world_exec(G + 1, KERNEL(2, 2, B));
	take();
	cr_assert_eq(verify(), 0);
	world_free(B);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_MOVED, "wrapper", SEVERITY_ERROR));
	world_alloc(B);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_REPLACED, "wrapper", SEVERITY_ERROR));
	exec_close(G + 1);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_REPLACED, "wrapper", SEVERITY_INFO), "nobody reads it");
}

/* A rebuilt wrapper that got its old workspaces back. */
Test(snapshot, object_with_the_same_memory)
{
	world_alloc(A);
	bind_object("wrapper", 1, BASES(A));
	take();
	bind_object("wrapper", 2, BASES(A));
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_REPLACED, "wrapper", SEVERITY_INFO));
	world_exec(G, KERNEL(1, 1, A));
	verify();
	cr_assert(tells(FINDING_REPLACED, "wrapper", SEVERITY_WARN));
	registry_lock();
	binding_clear(slot_of("wrapper", ARENA_OBJECT, 8));
	registry_unlock();
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_MISSING, "wrapper", SEVERITY_WARN), "its memory lives");
}

/* A07: the buggy one, and its fixed twin. */
Test(snapshot, derived_tensor)
{
	world_alloc(A);
	world_alloc(B);
	bind("W_UV", B);
	world_exec(G, KERNEL(1, 1, B));
	take();
	bind("W_UV", B);
	cr_assert_eq(verify(), 0);
	world_alloc(C);
	bind("W_UV", C);
	world_free(B);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_MOVED, "W_UV", SEVERITY_ERROR));
}

/* A09: a workspace grows; the old one is freed, or retired. */
Test(snapshot, scratch_grows)
{
	world_alloc(A);
	world_alloc(B);
	bind_bytes("ws", ARENA_SCRATCH, A, MIB / 2);
	world_exec(G, KERNEL(1, 1, A));
	take();
	bind_bytes("ws", ARENA_SCRATCH, B, MIB);
	cr_assert_eq(verify(), 0);
	world_free(A);
	cr_assert_eq(verify(), 2);
	cr_assert(tells(FINDING_MOVED, "ws", SEVERITY_ERROR));
	cr_assert(tells(FINDING_RESPECIFIED, "ws", SEVERITY_ERROR));
	exec_close(G);
	cr_assert_eq(verify(), 2);
	cr_assert(tells(FINDING_MOVED, "ws", SEVERITY_INFO));
}

/* A11: the same address came back, and the slot was bound to it; or was not. */
Test(snapshot, replaced)
{
	world_alloc(A);
	bind("k", A);
	world_exec(G, KERNEL(1, 1, A));
	take();
	world_free(A);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_MISSING, "k", SEVERITY_ERROR));
	world_alloc(A);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_REPLACED, "k", SEVERITY_ERROR));
	bind("k", A);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_REPLACED, "k", SEVERITY_WARN));
	bind_bytes("k", ARENA_BOUND, A, MIB / 2);
	cr_assert_eq(verify(), 2);
	cr_assert(tells(FINDING_REPLACED, "k", SEVERITY_ERROR));
	cr_assert(tells(FINDING_RESPECIFIED, "k", SEVERITY_ERROR));
	exec_close(G);
	bind("k", A);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_REPLACED, "k", SEVERITY_INFO));
}

/* What a graph captured before memory came back at its address means the slot ever after. */
Test(snapshot, replaced_before)
{
	world_alloc(A);
	bind("k", A);
	world_exec(G, KERNEL(1, 1, A));
	for (int i = 0; i < 3; i++) {
		world_free(A);
		world_alloc(A);
		bind("k", A);
	}
	take();
	cr_assert_eq(verify(), 0);
	world_alloc(B);
	bind("k", B);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_MOVED, "k", SEVERITY_ERROR));
	cr_assert_eq(found.list[0].execs_count, 1);
	world_exec(G + 1, KERNEL(2, 2, B));
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_MOVED, "k", SEVERITY_INFO), "captured again since");
	exec_close(G + 1);
	bind("k", A);
	cr_assert_eq(verify(), 0, "it came back");
	world_free(A);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_MISSING, "k", SEVERITY_ERROR));
	world_alloc(A);
	bind_bytes("k", ARENA_BOUND, A, MIB / 2);
	cr_assert_eq(verify(), 2);
	cr_assert(tells(FINDING_REPLACED, "k", SEVERITY_ERROR));
	exec_close(G);
	bind("k", B);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_MOVED, "k", SEVERITY_INFO), "nobody reads it");
}

/* The same, when what was bound there at the snapshot was forgotten, for no graph means it. */
Test(snapshot, replaced_and_forgotten)
{
	world_alloc(A);
	bind("k", A);
	world_exec(G, KERNEL(1, 1, A));
	world_free(A);
	world_alloc(A);
	bind("k", A);
	take();
	world_alloc(B);
	bind("k", B);
	world_alloc(B + MIB);
	world_alloc(B + 2 * MIB);
	for (uint64_t i = 0; i < 4000; i++) {
		store_relaxed(&binding_born, load_relaxed(&binding_clock));
		bind("other", B + (1 + i % 2) * MIB);
	}
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_MOVED, "k", SEVERITY_ERROR));
	bind_bytes("k", ARENA_BOUND, A, MIB / 2);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_RESPECIFIED, "k", SEVERITY_ERROR));
}

/* A16 v2: the same place, another spec. */
Test(snapshot, respecified)
{
	world_alloc(A);
	bind_bytes("k.src", ARENA_BOUND, A, 4096);
	take();
	bind_bytes("k.src", ARENA_BOUND, A, 8192);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_RESPECIFIED, "k.src", SEVERITY_WARN), "no graph has it");
	take();
	world_exec(G, KERNEL(1, 1, A));
	bind_bytes("k.src", ARENA_BOUND, A, 4096);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_RESPECIFIED, "k.src", SEVERITY_ERROR));
	world_exec(G + 1, KERNEL(2, 2, A));
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_RESPECIFIED, "k.src", SEVERITY_INFO), "captured again since");
}

/* A25: lazy slots, and moves that nobody captured. */
Test(snapshot, lazy_and_eager)
{
	world_alloc(A);
	world_alloc(B);
	world_alloc(C);
	take();
	bind("lazy", A);
	cr_assert_eq(verify(), 0);
	world_exec(G, KERNEL(1, 1, A));
	cr_assert_eq(verify(), 0);
	take();
	bind("lazy", B);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_MOVED, "lazy", SEVERITY_ERROR));
	bind("lazy", A);
	bind("eager", C);
	take();
	bind("eager", B);
	world_free(C);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_MOVED, "eager", SEVERITY_INFO));
}

/* A slot that was known by name before it had memory. */
Test(snapshot, bound_for_the_first_time)
{
	registry_lock();
	slot_of("later", ARENA_VALUE, MIB);
	registry_unlock();
	take();
	cr_assert_eq(verify(), 0);
	world_alloc(A);
	bind("later", A);
	cr_assert_eq(verify(), 0);
}

/* A28: an exec that is gone refers to nothing. */
Test(snapshot, exec_is_gone)
{
	world_alloc(A);
	world_alloc(B);
	bind("w", A);
	world_exec(G, KERNEL(1, 1, A));
	world_exec(G + 1, KERNEL(1, 1, A));
	take();
	bind("w", B);
	verify();
	cr_assert_eq(found.list[0].execs_count, 2);
	exec_close(G);
	verify();
	cr_assert(tells(FINDING_MOVED, "w", SEVERITY_ERROR));
	exec_close(G + 1);
	verify();
	cr_assert(tells(FINDING_MOVED, "w", SEVERITY_INFO));
}

/* A30: values are copied, temporaries come and go. */
Test(snapshot, static_buffers)
{
	world_alloc(A);
	world_alloc(B);
	bind("w", A);
	bind("in", B);
	world_exec(G, KERNEL(1, 1, A, B));
	take();
	world_alloc(C);
	world_free(C);
	cr_assert_eq(verify(), 0);
}

/* A31: mapped again at the same place; while it is not mapped nobody is told either. */
Test(snapshot, remapped)
{
	world_open(R, 64 * MIB, RANGE_RESERVED);
	world_map(R, 2 * MIB);
	bind("act", R);
	bind_object("wrapper", 1, BASES(R));
	world_exec(G, KERNEL(1, 1, R));
	take();
	world_unmap(R, 2 * MIB);
	cr_assert_eq(verify(), 0);
	take();
	world_map(R, 2 * MIB);
	cr_assert_eq(verify(), 0, "asleep when the snapshot was taken");
	world_unmap(R, 2 * MIB);
	world_free(R);
	cr_assert_eq(verify(), 2);
	cr_assert(tells(FINDING_MISSING, "act", SEVERITY_ERROR));
	cr_assert(tells(FINDING_MISSING, "wrapper", SEVERITY_ERROR));
}

/* A33: recorded again; the old exec sleeps on dead memory. */
Test(snapshot, re_recorded)
{
	world_alloc(A);
	bind("param", A);
	world_exec(G, KERNEL(1, 1, A));
	take();
	world_alloc(B);
	bind("param", B);
	world_exec(G + 1, KERNEL(2, 2, B));
	world_free(A);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_MOVED, "param", SEVERITY_INFO));
	exec_close(G + 1);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_MOVED, "param", SEVERITY_ERROR), "nobody recorded it again");
}

Test(snapshot, ping_pong)
{
	world_alloc(A);
	world_alloc(B);
	bind("cur", A);
	world_exec(G, KERNEL(1, 1, A));
	take();
	bind("cur", B);
	world_exec(G + 1, KERNEL(2, 2, B));
	for (int i = 0; i < 3; i++) {
		bind("cur", B);
		verify();
		cr_assert(tells(FINDING_MOVED, "cur", SEVERITY_INFO));
		bind("cur", A);
		cr_assert_eq(verify(), 0);
	}
}

/* One exec that has both, the new one by chance, was not captured under the new binding. */
Test(snapshot, an_exec_of_both)
{
	world_alloc(A);
	world_alloc(B);
	bind("w", A);
	world_exec(G, KERNEL(1, 1, A, B));
	take();
	bind("w", B);
	verify();
	cr_assert(tells(FINDING_MOVED, "w", SEVERITY_ERROR));
}

/* Nor was one that had the memory before the slot was bound to it. */
Test(snapshot, an_exec_from_before)
{
	world_alloc(A);
	world_alloc(B);
	bind("w", A);
	world_exec(G, KERNEL(1, 1, A));
	world_exec(G + 1, KERNEL(2, 2, B));
	take();
	bind("w", B);
	verify();
	cr_assert(tells(FINDING_MOVED, "w", SEVERITY_ERROR));
	cr_assert_eq(found.list[0].execs_count, 1);
}

/* What counts is who refers to the old memory, under whatever spec. */
Test(snapshot, captured_under_another_spec)
{
	world_alloc(A);
	world_alloc(B);
	bind_bytes("w", ARENA_BOUND, A, 4096);
	take();
	bind_bytes("w", ARENA_BOUND, A, 8192);
	world_exec(G, KERNEL(1, 1, A));
	bind_bytes("w", ARENA_BOUND, B, 8192);
	verify();
	cr_assert(tells(FINDING_MOVED, "w", SEVERITY_ERROR));
}

/* Refs to the rest of the range, and of nodes that are disabled, do not count. */
Test(snapshot, who_refers)
{
	world_alloc(A);
	world_alloc(B);
	bind_bytes("w", ARENA_BOUND, A + 4096, 4096);
	world_exec(G, KERNEL(1, 1, A, A + 8192));
	world_exec(G + 1, KERNEL(2, 2, A + 4096));
	exec_set_enabled(G + 1, 2, false);
	take();
	bind_bytes("w", ARENA_BOUND, B, 4096);
	verify();
	cr_assert(tells(FINDING_MOVED, "w", SEVERITY_INFO));
	exec_set_enabled(G + 1, 2, true);
	verify();
	cr_assert(tells(FINDING_MOVED, "w", SEVERITY_ERROR));
}

Test(snapshot, unbound)
{
	world_alloc(A);
	bind("w", A);
	take();
	unbind("w");
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_MISSING, "w", SEVERITY_INFO));
	world_exec(G, KERNEL(1, 1, A));
	bind("w", A);
	cr_assert_eq(verify(), 0);
	world_exec(G + 1, KERNEL(2, 2, A));
	unbind("w");
	verify();
	cr_assert(tells(FINDING_MISSING, "w", SEVERITY_WARN));
	world_free(A);
	verify();
	cr_assert(tells(FINDING_MISSING, "w", SEVERITY_ERROR));
}

/* Slots of one arena are compared alone. */
Test(snapshot, one_arena)
{
	struct slot *s;

	world_alloc(A);
	world_alloc(B);
	world_exec(G, KERNEL(1, 1, A));
	s = bind("w", A);
	registry_lock();
	cr_assert_not_null(registry_open("other"));
	registry_unlock();
	take();
	bind("w", B);
	slot_findings_free(&found);
	registry_lock();
	struct arena *other = registry_open("other");
	registry_unlock();
	cr_assert_eq(snapshot_verify(snap, other, &found), 0);
	cr_assert_eq(found.count, 0);
	cr_assert_eq(snapshot_verify(snap, s->arena, &found), 0);
	cr_assert_eq(found.count, 1);
}

/* ---- sets and text ---- */

Test(snapshot, text)
{
	world_alloc(A);
	world_alloc(B);
	bind_bytes("W_UV", ARENA_BOUND, A, 4096);
	world_exec(G, KERNEL(1, 1, A));
	take();
	bind_bytes("W_UV", ARENA_BOUND, B, 8192);
	cr_assert_eq(verify(), 2);
	cr_assert_str_eq(text_of(0),
			 "model: [moved] W_UV: was at 0x7f0000000000 (generation 1), is at "
			 "0x7f1000000000 (generation 2); 1 graph exec refers to it");
	cr_assert_str_eq(text_of(1),
			 "model: [respecified] W_UV: was bytes=4096 device=0, is bytes=8192 "
			 "device=0; 1 graph exec refers to it");
	world_free(B);
	take();
	verify();
	cr_assert_str_eq(text_of(0),
			 "model: [missing] W_UV: was at 0x7f1000000000 (generation 2), is "
			 "at nothing: its memory is gone");
}

static struct slot_finding finding_at(const char *path, const char *name, uint64_t base)
{
	return (struct slot_finding){
		.kind = FINDING_MOVED, .path = intern(path), .name = intern(name), .old_base = base
	};
}

/* Rule 10: sets, not counts. */
Test(snapshot, sets)
{
	struct slot_findings a = { 0 }, b = { 0 }, out = { 0 };
	uint64_t seed = seed_start("sets");
	char name[16];

	for (unsigned i = 0; i < 3000; i++) {
		struct slot_finding f;
		uint64_t n = seed_below(&seed, 500);

		snprintf(name, sizeof(name), "s%03lu", (unsigned long)n);
		f = finding_at(n % 2 ? "x" : "w", name, 1);
		f.execs_count = i;
		f.severity = (enum severity)(i % SEVERITY_COUNT);
		cr_assert_eq(slot_findings_add(i % 2 ? &a : &b, &f), 0);
	}
	slot_findings_normalise(&a);
	slot_findings_normalise(&b);
	for (uint32_t i = 1; i < a.count; i++) {
		int order = strcmp(interned(a.list[i - 1].path), interned(a.list[i].path));

		cr_assert(order < 0 || (order == 0 && strcmp(interned(a.list[i - 1].name),
							     interned(a.list[i].name)) < 0));
	}
	cr_assert_leq(a.count, 500);
	cr_assert_eq(slot_findings_minus(&a, &a, &out), 0);
	cr_assert_eq(out.count, 0);
	cr_assert_eq(slot_findings_minus(&a, &b, &out), 0);
	for (uint32_t i = 0; i < out.count; i++)
		for (uint32_t k = 0; k < b.count; k++)
			cr_assert_neq(out.list[i].name, b.list[k].name);
	cr_assert_gt(out.count, 0);
	cr_assert_lt(out.count, a.count);
	slot_findings_free(&a);
	slot_findings_free(&b);
	slot_findings_free(&out);
	cr_assert_eq(a.count, 0);
}

/* What a snapshot pins is let go with it. */
Test(snapshot, keeps_nothing)
{
	uint64_t before = 0;

	for (int i = 0; i < 2000; i++) {
		world_alloc(A);
		bind("w", A);
		take();
		world_free(A);
		verify();
		if (i == 1500)
			before = slab_bytes();
	}
	cr_assert_leq(slab_bytes(), before);
}

/* ---- what is found wrong is compared with what it was ---- */

static void bind_two_and_capture(void)
{
	world_alloc(A);
	world_alloc(B);
	world_alloc(C);
	world_alloc(C + MIB);
	bind("w", A);
	bind("v", B);
	world_exec(G, KERNEL(1, 1, A));
	take();
}

static void take_again(void)
{
	struct arena_snapshot *older = snap;

	cr_assert(snapshot_keep(older, &found));
	cr_assert_eq(snapshot_take(older, &snap), 0);
	snapshot_free(older);
}

Test(snapshot, wrong_slots_keep_their_marks)
{
	bind_two_and_capture();
	bind("w", C);
	bind("v", C + MIB);
	cr_assert_eq(verify(), 2);
	cr_assert(tells(FINDING_MOVED, "w", SEVERITY_ERROR));
	cr_assert(tells(FINDING_MOVED, "v", SEVERITY_INFO));
	for (int i = 0; i < 3; i++) {
		take_again();
		cr_assert_eq(verify(), 1, "what no graph holds is taken as it is");
		cr_assert(tells(FINDING_MOVED, "w", SEVERITY_ERROR));
	}
	bind("w", A);
	cr_assert_eq(verify(), 0);
	cr_assert_not(snapshot_keep(snap, &found));
}

/* Nothing was bound since, but the memory is gone; then the graph is, too. */
Test(snapshot, dead_memory_stays_missing)
{
	bind_two_and_capture();
	world_free(A);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(verify(), 1);
		cr_assert(tells(FINDING_MISSING, "w", SEVERITY_ERROR));
		take_again();
	}
	exec_close(G);
	verify();
	cr_assert(tells(FINDING_MISSING, "w", SEVERITY_INFO));
	cr_assert_not(snapshot_keep(snap, &found));
}

/* A slot that comes by where another one was captured, and leaves, moved for no graph. */
Test(snapshot, visitor_moves_for_no_graph)
{
	bind_two_and_capture();
	bind("v", A);
	take();
	bind("v", B);
	cr_assert_eq(verify(), 1);
	cr_assert(tells(FINDING_MOVED, "v", SEVERITY_INFO));
}

/* The ranges of an object are copied, and still what they were. */
Test(snapshot, wrong_object_keeps_its_ranges)
{
	world_alloc(A);
	world_alloc(B);
	bind_object("wrapper", 1, BASES(A));
	world_exec(G, KERNEL(1, 1, A));
	take();
	bind_object("wrapper", 2, BASES(B));
	for (int i = 0; i < 3; i++) {
		verify();
		cr_assert(tells(FINDING_REPLACED, "wrapper", SEVERITY_ERROR));
		take_again();
	}
}
