# SPDX-License-Identifier: Apache-2.0
"""Times with the library against times without it, so that one percent can be told.

Two runs of one program differ by half, by the core that they got and by who else uses it. So the
programs that are compared live at the same time, are bound to the same core, and take turns in
slices of some milliseconds while the others wait: what counts is the ratio of slices that are
neighbours. Where a program landed in memory still makes a percent; so there are several groups of
such programs, each on a core of its own, and it is they that are drawn in the bootstrap.

A program that takes part (slices.py, tests/victims/slices.h) prints "ready NAME..." with what it
can measure; for each NAME on stdin it runs a slice, waits for the device and prints "slice NAME NS". So
only one of them has work for the GPU at any time."""
import collections
import contextlib
import os
import pathlib
import random
import select
import statistics
import subprocess
import tempfile
import time

GROUPS, PASSES = 16, 3          # of programs; each pass visits every group
START_SECONDS, SLICE_SECONDS = 120, 20      # then a program hangs
CONFIDENCE, DRAWS = 0.95, 2000
Interval = collections.namedtuple("Interval", "ratio low high")
# gate None: without the library. env: more of the environment.
Variant = collections.namedtuple("Variant", "name command gate env", defaults=({},))


class Failed(Exception):
    """A program did not do what it should; the text says what."""


class Program:
    """One of those that take turns."""

    def __init__(self, command, env, folder):
        self.errors = open(os.path.join(folder, "stderr"), "a+")     # never a full pipe
        # Where Python's hashes put things is no matter of the library.
        self.process = subprocess.Popen([str(c) for c in command], cwd=folder, stderr=self.errors,
                                        env={**env, "PYTHONHASHSEED": "0"},
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.unread = b""

    def fail(self, why):
        self.errors.seek(0)
        raise Failed((self.errors.read().strip().splitlines() or [why])[-1][:200])

    def read_line(self, end):
        while b"\n" not in self.unread:
            if not select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]:
                self.fail("no answer in time")
            more = self.process.stdout.read(4096)
            if not more:
                self.fail("it ended too early")
            self.unread += more
        line, self.unread = self.unread.split(b"\n", 1)
        return line.decode(errors="replace").split()

    def expect(self, word, seconds):
        """@return what follows @word in the next line that begins with it."""
        end = time.monotonic() + seconds
        while True:
            line = self.read_line(end)
            if line[:1] == [word]:
                return line[1:]

    def bind(self, core):
        """The thread that measures; what the driver started may run elsewhere."""
        os.sched_setaffinity(self.process.pid, {core})

    def slice_ns(self, name):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(name.encode() + b"\n")
        measured, ns = self.expect("slice", SLICE_SECONDS)
        if measured != name:
            raise Failed(f"asked for {name}, it measured {measured}")
        return float(ns)

    def end(self):
        """Once its stdin is closed."""
        try:
            self.process.wait(timeout=60)     # many end at once
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def take_round(programs, name, draw):
    """Each program's slices of a round: there and back, so that a drift meets all alike."""
    order = draw.sample(sorted(programs), len(programs))
    times = collections.defaultdict(float)
    for variant in order + order[::-1]:
        times[variant] += programs[variant].slice_ns(name) / 2
    return times


def visit(programs, names, seconds, draw, taken):
    """Rounds on one core until @seconds are over, at least one; they are added to @taken."""
    end = time.monotonic() + seconds
    while True:
        for name in names:
            for variant, ns in take_round(programs, name, draw).items():
                taken[name][variant].append(ns)
        if time.monotonic() >= end:
            return


def take(starts, seconds, groups=GROUPS, seed=1):
    """@param starts {variant: start(group) that starts a Program}.
    @return {measure: [{variant: [ns of each round]} of each group]}"""
    running, everything, draw = [], [], random.Random(seed)
    cores = sorted(os.sched_getaffinity(0))
    theirs = cores[1:] or cores         # the first one is ours
    try:
        for number in range(groups):
            running.append({})
            for variant, start in starts.items():
                running[-1][variant] = start(number)
                everything.append(running[-1][variant])
        names = [program.expect("ready", START_SECONDS) for program in everything][0]
        os.sched_setaffinity(0, cores[:1])      # only now: who is started inherits it
        taken = [collections.defaultdict(lambda: collections.defaultdict(list)) for _ in running]
        for number, programs in enumerate(running):
            for program in programs.values():
                program.bind(theirs[number % len(theirs)])
        for turn in range(groups * PASSES):
            visit(running[turn % groups], names, seconds / groups / PASSES, draw,
                  taken[turn % groups])
    except BaseException:
        for program in everything:
            program.process.kill()
        raise
    finally:
        os.sched_setaffinity(0, cores)
        for program in everything:
            program.process.stdin.close()
        for program in everything:
            program.end()
    return {name: [group[name] for group in taken] for name in names}


def compare(suite, variants, seconds, groups=GROUPS):
    """@return what take() returns, and {variant: [lines of each report]}"""
    with tempfile.TemporaryDirectory(prefix="arena-") as top:
        def starter(variant):
            def start(number):
                folder = pathlib.Path(top, variant.name, str(number))
                folder.mkdir(parents=True)
                env = suite.environment(variant.gate, folder, variant.env)
                return Program(variant.command, env, folder)
            return start
        samples = take({v.name: starter(v) for v in variants}, seconds, groups)
        reports = {v.name: [suite.read_reports(v.command, v.gate, pathlib.Path(top, v.name, str(n)))
                            for n in range(groups)] for v in variants}
    return samples, reports


# ---- figures ----

def ratios(groups, variant, plain):
    """@return [[ratio of each round] of each group]"""
    return [[a / b for a, b in zip(group[variant], group[plain])] for group in groups]


def median_ns(groups, variant):
    return statistics.median(ns for group in groups for ns in group[variant])


def centre(groups):
    """In a group the median, as a busy moment is no cost; of these the mean, as each place in
    memory is as likely as another."""
    return statistics.fmean(map(statistics.median, groups))


def interval(groups, seed=1):
    """The ratio, and how far it may be off: groups are drawn with repetition, and in each its
    rounds."""
    draw = random.Random(seed)
    found = sorted(centre([draw.choices(group, k=len(group))
                           for group in draw.choices(groups, k=len(groups))])
                   for _ in range(DRAWS))
    cut = int(DRAWS * (1 - CONFIDENCE) / 2)
    return Interval(centre(groups), found[cut], found[-1 - cut])


def judge(found, budget_percent=None):
    """@return (is it over the budget for certain?, what to say)"""
    percent = [100 * (ratio - 1) for ratio in found]
    said = f"{percent[0]:+.2f} % ({percent[1]:+.2f} to {percent[2]:+.2f})"
    if budget_percent is None:
        return False, said
    word = "within" if percent[2] <= budget_percent else \
        "over" if percent[1] > budget_percent else "undecided at"
    return word == "over", f"{said}, {word} {budget_percent} %"


def tell(groups, variant, plain, budget_percent=None):
    """@return (is it over the budget for certain?, times and ratio in words)"""
    over, said = judge(interval(ratios(groups, variant, plain)), budget_percent)
    return over, (f"{median_ns(groups, plain):.0f} -> {median_ns(groups, variant):.0f} ns, {said}, "
                  f"{sum(len(group[plain]) for group in groups)} rounds")
