#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""overhead.py without a GPU: its figures over made-up processes, and its way to talk to programs."""
import os
import pathlib
import random
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import overhead  # noqa: E402

PROGRAM = """
import os, sys
print("ready", flush=True)
for number, line in enumerate(sys.stdin):
    assert len(line.split()) == 2 and set(map(int, line.split())) <= os.sched_getaffinity(0)
    if sys.argv[1] == "dies" and number == 1:
        sys.exit("it died")
    if sys.argv[1] == "fails" and number == 1:
        print("cause", file=sys.stderr, flush=True)
        print("failed", flush=True)
        continue
    print("noise\\nmeasure a", 100 * float(sys.argv[2]), "\\nmeasure b 7.5", flush=True)
    print("done", flush=True)
"""


def make_groups(effect, seed, parents=8, forks=4):
    """Ratios as a machine gives them: parents differ by 2 %, forks of one by 1 %."""
    draw = random.Random(seed)
    shifts = [draw.gauss(0, 0.004) for _ in range(parents)]
    return [[(1 + effect) * (1 + shift + draw.gauss(0, 0.004)) for _ in range(forks)]
            for shift in shifts]


class Figures(unittest.TestCase):
    def test_covers_the_truth(self):
        """In nearly all of many runs, the true ratio lies in the interval."""
        hits = 0
        for seed in range(40):
            found = overhead.interval(make_groups(0.005, seed))
            hits += found.low <= 1.005 <= found.high
            self.assertTrue(found.low <= found.median <= found.high)
        self.assertGreaterEqual(hits, 34)

    def test_one_percent_is_told(self):
        """No effect is within 1 %, and 2.5 % is over it, in nearly all runs."""
        words = [overhead.judge(overhead.interval(make_groups(effect, seed)), 1)
                 for effect in (0.0, 0.025) for seed in range(20)]
        self.assertGreaterEqual(sum("within 1 %" in text for _, text in words[:20]), 18)
        self.assertGreaterEqual(sum(over for over, _ in words[20:]), 18)

    def test_words(self):
        of = overhead.Interval
        self.assertEqual(overhead.judge(of(1.004, 1.001, 1.009), 1),
                         (False, "+0.40 % (+0.10 to +0.90), within 1 %"))
        self.assertEqual(overhead.judge(of(1.012, 0.999, 1.02), 1),
                         (False, "+1.20 % (-0.10 to +2.00), undecided at 1 %"))
        self.assertEqual(overhead.judge(of(1.03, 1.02, 1.04), 1),
                         (True, "+3.00 % (+2.00 to +4.00), over 1 %"))

    def test_an_empty_group_is_left_out(self):
        self.assertEqual(overhead.interval([[1.0], [], [1.0]]), (1.0, 1.0, 1.0))


overhead.DRAWS = 800


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, how="well"):
        return lambda under: overhead.Parent(
            [sys.executable, "-c", PROGRAM, how, "1.5" if under else "1"], dict(os.environ),
            self.folder)

    def test_pairs(self):
        ratios, samples = overhead.take_pairs(self.start(), 60)
        self.assertEqual(ratios["a"], [[1.5] * overhead.FORKS] * overhead.PARENTS)
        self.assertEqual(ratios["b"], [[1.0] * overhead.FORKS] * overhead.PARENTS)
        self.assertEqual(samples["a"][1], [150.0] * overhead.FORKS * overhead.PARENTS)
        self.assertEqual(overhead.interval(ratios["a"]).low, 1.5)

    def test_time_is_over(self):
        ratios, _ = overhead.take_pairs(self.start(), 0)
        self.assertEqual(dict(ratios), {})

    def test_what_a_program_says_last(self):
        for how, said in (("dies", "it died"), ("fails", "cause")):
            with self.assertRaisesRegex(overhead.Failed, said):
                overhead.take_pairs(self.start(how), 60)


if __name__ == "__main__":
    unittest.main()
