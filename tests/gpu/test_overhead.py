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

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import overhead  # noqa: E402

overhead.DRAWS = 400

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


def make_groups(effect, seed, groups=overhead.GROUPS, rounds=25):
    """Ratios as a machine gives them: pairs of programs differ by where they lie, rounds by 1.5 %, and
    one in twenty meets a busy moment."""
    draw = random.Random(seed)
    shifts = [draw.gauss(0, 0.004) for _ in range(groups)]
    return [[(1 + effect) * (1 + shift + draw.gauss(0, 0.015)) *
             (draw.uniform(0.7, 1.4) if draw.random() < 0.05 else 1) for _ in range(rounds)]
            for shift in shifts]


class Figures(unittest.TestCase):
    def test_covers_the_truth(self):
        """In nearly all of many runs, the true ratio lies in the interval."""
        hits = 0
        for seed in range(40):
            found = overhead.interval(make_groups(0.005, seed))
            hits += found.low <= 1.005 <= found.high
            self.assertTrue(found.low <= found.ratio <= found.high)
        self.assertGreaterEqual(hits, 34)

    def test_one_percent_is_told(self):
        """No effect is within 1 %, one of 3 % over it, and one of 1 % hardly ever said to be over."""
        words = {effect: [overhead.judge(overhead.interval(make_groups(effect, seed)), 1)
                          for seed in range(20)] for effect in (0.0, 0.01, 0.03)}
        self.assertGreaterEqual(sum("within 1 %" in text for _, text in words[0.0]), 18)
        self.assertGreaterEqual(sum(over for over, _ in words[0.03]), 18)
        self.assertLessEqual(sum(over for over, _ in words[0.01]), 2)

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
        groups = [{"plain": [100, 200], "under": [101, 202]}, {"plain": [400], "under": [404]}]
        self.assertEqual(overhead.tell(groups, "under", "plain", 2),
                         (False, "200 -> 202 ns, +1.00 % (+1.00 to +1.00), within 2 %, 3 rounds"))


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
        taken = overhead.take(self.starts(), 1.0, groups=1)
        self.assertGreater(len(taken["a"][0]["P"]), 2 * overhead.PASSES)

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
                    self.assertGreater(min(groups[0]["one"]), 0, name)


if __name__ == "__main__":
    ProgramsInC.commands = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
