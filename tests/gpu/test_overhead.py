#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""overhead.py without a GPU: its figures over made-up times, and its way to talk to programs. Given
programs in C, one that answers on any driver each, it asks those, too."""
import os
import pathlib
import random
import sys
import tempfile
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import overhead  # noqa: E402

overhead.LOOK_SECONDS = 0.01

# It says who was asked in a file, and a time that tells its core.
PROGRAM = """
import os, sys, time
me, how, factor = sys.argv[1:]
print("noise\\nready a b", flush=True)
for number, line in enumerate(sys.stdin):
    name, = line.split()
    with open(os.environ["ASKED"], "a") as f:
        f.write(f"{name}{me}")
    if how == "dies" and number == 1:
        sys.exit("it died")
    if how == "hangs" and number == 1:
        time.sleep(60)
    if how == "errs" and number == 1:
        print("slice c 5", flush=True)
    core, = os.sched_getaffinity(0)
    print("slice", name, {"a": 100 * float(factor), "b": core + 7}[name], flush=True)
"""
SERVER = """
import slices
made = []
measure = slices.Measure(lambda: made.append(1), 3, lambda: made.append(0))
slices.serve({"x": measure, "y": measure}, lambda: None)
assert [0, 1, 1, 1] * (len(made) // 4) == made, made
print("ended", flush=True)
"""
REPORTING = """
import os, sys
with open("report", "w") as f:
    f.write(os.environ["GATE"])
print("ready a", flush=True)
for line in sys.stdin:
    print("slice a 5", flush=True)
"""


def make_groups(effect, seed, groups=72, rounds=16):
    """Slices as a machine gives them: its cores are fast or slow and change from one slice to the
    next now and then, programs differ by where they lie, one slice in ten meets a busy moment."""
    draw, found = random.Random(seed), []
    for _ in range(groups):
        slow = draw.random() < 0.4
        lies = {v: 1e6 * (1 + cost) * draw.gauss(1, 0.015) for v, cost in (("P", 0), ("U", effect))}
        times = {"P": [], "U": []}
        for _ in range(rounds):
            slices = {"P": [], "U": []}
            for variant in "PUUP":
                slow ^= draw.random() < 0.08
                busy = draw.uniform(1, 1.4) if draw.random() < 0.1 else 1
                core = 1.8 if slow else 1
                slices[variant].append(lies[variant] * core * draw.gauss(1, 0.025) * busy)
            for variant, pair in slices.items():
                times[variant].append(tuple(pair))
        found.append(times)
    return found


def interval_of(groups):
    return overhead.interval(overhead.ratios(groups, "U", "P"))


class Figures(unittest.TestCase):
    def test_covers_the_truth(self):
        """In nearly all of many runs, the true ratio lies in the interval, and that is narrow."""
        found = [interval_of(make_groups(0.005, seed)) for seed in range(40)]
        self.assertTrue(all(f.low <= f.ratio <= f.high for f in found))
        self.assertGreaterEqual(sum(f.low <= 1.005 <= f.high for f in found), 34)
        self.assertLess(max(f.high - f.low for f in found), 0.02)

    def test_one_percent_is_told(self):
        """No effect is within 1 %, one of 2.5 % over it, and one of 1 % hardly ever said to be
        over."""
        words = {effect: [overhead.judge(interval_of(make_groups(effect, seed)), 1)
                          for seed in range(20)] for effect in (0.0, 0.01, 0.025)}
        self.assertGreaterEqual(sum("within 1 %" in text for _, text in words[0.0]), 17)
        self.assertGreaterEqual(sum(over for over, _ in words[0.025]), 17)
        self.assertLessEqual(sum(over for over, _ in words[0.01]), 2)

    def test_unsteady_rounds_do_not_count(self):
        """A core that slowed down between the slices of a round tells nothing of the library."""
        steady, broken = [(100, 100)] * 4, [(100, 180)]
        self.assertEqual(overhead.ratios([{"P": steady + broken, "U": steady + [(180, 180)]}],
                                         "U", "P"), [[1.0] * 4])
        # On a machine that never rests, the steadier half is all there is.
        self.assertEqual(overhead.ratios([{"P": [(100, 200), (100, 130), (100, 150)],
                                           "U": [(150, 150), (230, 230), (125, 125)]}], "U", "P"),
                         [[2.0, 1.0]])

    def test_groups_are_what_counts(self):
        """Two groups that differ leave the ratio open, however many rounds they had; one alone
        proves nothing; one wild group of twenty changes little."""
        two = overhead.interval([[1.0] * 1000, [1.04] * 1000])
        self.assertGreater(two.high - two.low, 0.2)
        self.assertEqual(overhead.interval([[1.5] * 9])[1:], (0, float("inf")))
        groups = [[0.99, 1.0, 1.01], [1.001]] * 10
        wild = overhead.interval(groups[:-1] + [[1.3]])
        self.assertAlmostEqual(wild.ratio, overhead.interval(groups).ratio, delta=0.0005)
        self.assertLess(wild.high, 1.002)

    def test_students_distribution(self):
        for freedom, quantile in ((3, 3.182), (7, 2.365), (57, 2.002)):
            self.assertAlmostEqual(overhead.t_quantile(0.975, freedom), quantile, delta=0.01 * quantile)

    def test_words(self):
        of = overhead.Interval
        self.assertEqual(overhead.judge(of(1.004, 1.001, 1.009), 1),
                         (False, "+0.40 % (+0.10 to +0.90), within 1 %"))
        self.assertEqual(overhead.judge(of(1.012, 0.999, 1.02), 1),
                         (False, "+1.20 % (-0.10 to +2.00), undecided at 1 %"))
        self.assertEqual(overhead.judge(of(1.03, 1.02, 1.04), 1),
                         (True, "+3.00 % (+2.00 to +4.00), over 1 %"))
        self.assertEqual(overhead.judge(of(2, 1.5, 3)), (False, "+100.00 % (+50.00 to +200.00)"))

    def test_neighbours_are_compared(self):
        """A core that is twice as slow, or becomes so, changes nothing."""
        groups = [{"plain": [(100, 100), (200, 200)], "under": [(101, 101), (202, 202)]},
                  {"plain": [(400, 400)], "under": [(404, 404)]}]
        self.assertEqual(overhead.tell(groups, "under", "plain", 2),
                         (False, "200 ns, +2, +1.00 % (+1.00 to +1.00), within 2 %, 2 groups, "
                                 "3 of 3 rounds steady"))


class Asked(unittest.TestCase):
    def tearDown(self):
        for name in ("COST_GROUPS", "COST_ALSO"):
            os.environ.pop(name, None)

    def test_numbers(self):
        self.assertEqual(overhead.asked_number("COST_GROUPS", 16), 16)
        os.environ["COST_GROUPS"] = "72"
        self.assertEqual(overhead.asked_number("COST_GROUPS", 16), 72)
        for text in ("many", "-1", "0", "1.5"):
            os.environ["COST_GROUPS"] = text
            with self.assertRaisesRegex(overhead.Failed, f"COST_GROUPS={text}: .* unset it"):
                overhead.asked_number("COST_GROUPS", 16)

    def test_variants(self):
        """Those of another section are left to it."""
        self.assertEqual(overhead.asked_also(["always"]), [])
        os.environ["COST_ALSO"] = "blocks-off,always"
        self.assertEqual(overhead.asked_also(["always", "alone"]), ["always"])
        os.environ["COST_ALSO"] = "never"
        with self.assertRaisesRegex(overhead.Failed, "COST_ALSO=never: no such variant; known are "):
            overhead.asked_also(["always"])


class CoresChosen(unittest.TestCase):
    def make(self, siblings, slow):
        class Made(overhead.Cores):
            def siblings(self, core):
                return siblings(core)

        with mock.patch("os.sched_getaffinity", lambda _: set(range(16))):
            cores = Made()
        for core in cores.theirs:
            cores.seen[core] = [100, 180 if core in slow else 105] * 5
        return cores

    def test_the_quietest(self):
        cores = self.make(lambda core: {core}, set(range(16)) - {3, 9, 10, 14})
        self.assertEqual(sorted(cores.choose()), [3, 9, 10, 14])
        self.assertEqual(cores.tell({3, 2}),
                         "2 of 16 cores, quiet for 50 to 100 % of the time, all for 63 %")

    def test_no_siblings(self):
        """Nor that of the script's own core."""
        cores = self.make(lambda core: {core, core ^ 1}, set(range(16)) - {2, 3, 8, 9})
        chosen = cores.choose()
        self.assertNotIn(1, cores.theirs)
        self.assertEqual(len({core // 2 for core in chosen}), len(chosen))
        self.assertEqual(len({2, 3, 8, 9} & set(chosen)), 2)

    def test_reads_the_topology(self):
        with tempfile.TemporaryDirectory() as folder:
            cores = overhead.Cores()
            with mock.patch("overhead.TOPOLOGY", folder + "/{}"):
                for text, found in (("0,8\n", {0, 8}), ("0-1\n", {0, 1}), ("?\n", {0})):
                    pathlib.Path(folder, "0").write_text(text)
                    self.assertEqual(cores.siblings(0), found)
                self.assertEqual(cores.siblings(5), {5})


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.asked = self.folder / "asked"

    def program(self, *arguments):
        env = {**os.environ, "ASKED": str(self.asked), "PYTHONPATH": str(HERE)}
        return overhead.Program(arguments, env, self.folder)

    def starts(self, how="well"):
        return {me: lambda _, me=me, factor=factor: self.program(
            sys.executable, "-c", PROGRAM, me, how, factor) for me, factor in (("P", "1"), ("U", "1.5"))}

    def test_takes_turns(self):
        taken = overhead.take(self.starts(), 0, groups=4)
        self.assertEqual([overhead.ratios(taken[name], "U", "P") for name in "ab"],
                         [[[factor] * overhead.PASSES] * 4 for factor in (1.5, 1.0)])
        asked = self.asked.read_text()
        rounds = [asked[i:i + 8] for i in range(0, len(asked), 8)]
        orders = {"aPaUaUaP", "aUaPaPaU", "bPbUbUbP", "bUbPbPbU"}
        self.assertEqual(set(rounds), orders)
        self.assertEqual(len(rounds), 2 * 4 * overhead.PASSES)

    def test_has_a_core_of_its_own(self):
        cores, seen = os.sched_getaffinity(0), []
        if len(cores) == 1:
            self.skipTest("one core")

        class Seen(overhead.Program):
            def slice_ns(self, name):
                seen.append((os.sched_getaffinity(0), os.sched_getaffinity(self.process.pid)))
                return super().slice_ns(name)

            def end(self):
                seen.append((os.sched_getaffinity(0), set()))
                super().end()

        self.program = lambda *arguments: Seen(
            arguments, {**os.environ, "ASKED": str(self.asked), "PYTHONPATH": str(HERE)}, self.folder)
        overhead.take(self.starts(), 0, groups=3)
        for ours, theirs in seen:
            self.assertEqual(ours & theirs, set())
            self.assertEqual(ours, {min(cores)} if theirs else cores)
        self.assertEqual(os.sched_getaffinity(0), cores)

    def test_goes_on_until_time_is_over(self):
        taken = overhead.take(self.starts(), 2.0, groups=1)
        self.assertGreater(len(taken["a"][0]["P"]), 2 * overhead.PASSES)

    def take_in_waves(self, starts, alive, groups):
        """There is time for all waves, but none is spent on further rounds."""
        visit = overhead.visit
        with mock.patch("overhead.ALIVE", alive), \
                mock.patch("overhead.visit", lambda p, names, end, *rest: visit(p, names, 0, *rest)):
            return overhead.take(starts, 1000, groups)

    def test_waves(self):
        """No more programs at a time than there is room for; each wave has as many groups."""
        taken = self.take_in_waves(self.starts(), alive=4, groups=5)
        self.assertEqual(len(taken["a"]), 5)
        self.assertIsNone(taken.failed)
        self.assertIn("page faults", taken.uses["P"])
        self.assertIn("of the time", taken.cores)

    def test_no_wave_after_the_end(self):
        with mock.patch("overhead.ALIVE", 2):
            self.assertEqual(len(overhead.take(self.starts(), 0, groups=5)["a"]), 1)

    def test_a_later_wave_fails(self):
        """What was measured before stays."""
        starts = self.starts()
        ends = self.starts("dies")
        both = {me: lambda n, me=me: (ends if n else starts)[me](n) for me in starts}
        taken = self.take_in_waves(both, alive=2, groups=2)
        self.assertEqual((len(taken["a"]), taken.failed), (1, "it died"))

    def test_what_a_program_says_last(self):
        self.addCleanup(setattr, overhead, "SLICE_SECONDS", overhead.SLICE_SECONDS)
        for how, seconds, said in (("hangs", 2, "no answer in time"), ("dies", 60, "it died"),
                                   ("errs", 60, "asked for a, it measured c")):
            overhead.SLICE_SECONDS = seconds
            with self.assertRaisesRegex(overhead.Failed, said):
                overhead.take(self.starts(how), 0, groups=1)

    def test_python_serves_slices(self):
        program = self.program(sys.executable, "-c", SERVER)
        self.assertEqual(program.expect("ready", 60), ["x", "y"])
        self.assertGreater(program.slice_ns("y"), 0)
        program.process.stdin.close()
        program.expect("ended", 60)
        program.end()

    def test_folders_of_reports(self):
        class Suite:
            environment = staticmethod(lambda gate, folder, env: {**os.environ, **env, "GATE": str(gate)})
            read_reports = staticmethod(lambda command, gate, folder: (folder / "report").read_text())

        command = [sys.executable, "-c", REPORTING]
        samples, reports = overhead.compare(
            Suite, [overhead.Variant("plain", command, None),
                    overhead.Variant("under", command, "strict", {"GATES": "x"})], 0, groups=2)
        self.assertEqual(overhead.ratios(samples["a"], "under", "plain"), [[1.0] * 3] * 2)
        self.assertEqual(reports, {"plain": ["None"] * 2, "under": ["strict"] * 2})


class ProgramsInC(unittest.TestCase):
    commands = []

    def test_serve_slices(self):
        for command in self.commands:
            with self.subTest(command), tempfile.TemporaryDirectory() as folder:
                taken = overhead.take({"one": lambda _: overhead.Program(
                    command.split(","), os.environ, folder)}, 0, groups=1)
                self.assertIn("replay-256", taken)
                for name, groups in taken.items():
                    self.assertGreater(min(map(min, groups[0]["one"])), 0, name)


if __name__ == "__main__":
    ProgramsInC.commands = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
