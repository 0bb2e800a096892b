# SPDX-License-Identifier: Apache-2.0
"""Times with the library against times without it, so that one percent can be told.

Two processes of one program differ by several percent, by where they land in memory and on which
cores; the same holds for two runs of a whole machine. So there are many short processes of both
kinds, which take turns in the order A B B A on the same cores, and what counts is the ratio of
neighbours: its median, and an interval of 95 % by bootstrap. What is started anew for each pair is a
fork of a program that is loaded already; of these there are several pairs too, each at addresses of
its own, and it is they that are drawn in the bootstrap, for forks of one are alike."""
import collections
import contextlib
import os
import random
import re
import statistics
import subprocess
import time

PARENTS, FORKS = 8, 4           # pairs of loaded programs; pairs of forks of each
CONFIDENCE, DRAWS = 0.95, 4000
Interval = collections.namedtuple("Interval", "median low high")


class Failed(Exception):
    """A program did not do what it should; the text says what."""


class Parent:
    """A loaded program that forks one child for each measurement."""

    def __init__(self, command, env, cwd):
        self.errors = open(os.path.join(cwd, f"stderr-{id(self)}"), "w+")   # never a full pipe
        self.process = subprocess.Popen([str(c) for c in command], env=env, cwd=cwd, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors)

    def expect(self, end):
        """@return the lines before @end."""
        lines = []
        for line in self.process.stdout:
            if line.strip() == end:
                return lines
            lines.append(line.strip())
            if lines[-1] == "failed":
                break
        self.errors.seek(0)
        raise Failed((self.errors.read().strip().splitlines() or ["no answer"])[-1][:200])

    def measure(self, cores):
        """@return {name: ns}."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(" ".join(map(str, cores)) + "\n")
            self.process.stdin.flush()
        lines = "\n".join(self.expect("done"))
        return {name: float(ns) for name, ns in re.findall(r"^measure (\S+) (\S+)$", lines, re.M)}

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def cores_of(number):
    """Two of this process's, other ones for each pair."""
    cores = sorted(os.sched_getaffinity(0))
    return [cores[(2 * number + i) % len(cores)] for i in range(2)]


def take_pairs(start, seconds):
    """@param start start(under) starts a Parent. @return {name: [[ratio, ...] of each pair of
    parents]}, {name: ([plain ns], [under ns])}; fewer if @seconds are over."""
    parents = [(start(False), start(True)) for _ in range(PARENTS)]
    ratios = collections.defaultdict(lambda: [[] for _ in range(PARENTS)])
    samples = collections.defaultdict(lambda: ([], []))
    try:
        for pair in parents:
            for parent in pair:
                parent.expect("ready")
        end = time.monotonic() + seconds
        for turn in range(PARENTS * FORKS):
            number = turn % PARENTS
            if time.monotonic() > end:
                break
            order = (0, 1) if (turn + turn // PARENTS) % 2 == 0 else (1, 0)
            taken = {under: parents[number][under].measure(cores_of(number)) for under in order}
            for name, plain in taken[0].items():
                ratios[name][number].append(taken[1][name] / plain)
                for under in order:
                    samples[name][under].append(taken[under][name])
    finally:
        for pair in parents:
            for parent in pair:
                parent.end()
    return ratios, samples


def median_of(groups):
    return statistics.median(ratio for group in groups for ratio in group)


def interval(groups, seed=1):
    """The median of all ratios, and how far it may be off: groups are drawn with repetition, and in
    each its ratios."""
    groups = [group for group in groups if group]
    draw = random.Random(seed)
    medians = sorted(
        median_of([draw.choices(group, k=len(group)) for group in draw.choices(groups, k=len(groups))])
        for _ in range(DRAWS))
    cut = int(DRAWS * (1 - CONFIDENCE) / 2)
    return Interval(median_of(groups), medians[cut], medians[-1 - cut])


def judge(found, budget_percent):
    """@return (is it over the budget for certain?, what to say)"""
    percent = [100 * (ratio - 1) for ratio in found]
    word = "within" if percent[2] <= budget_percent else \
        "over" if percent[1] > budget_percent else "undecided at"
    return word == "over", (f"{percent[0]:+.2f} % ({percent[1]:+.2f} to {percent[2]:+.2f}), "
                            f"{word} {budget_percent} %")
