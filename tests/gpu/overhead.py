# SPDX-License-Identifier: Apache-2.0
"""Times with the library against times without it, so that one percent can be told.

Two runs of one program differ by half, by the core that they got and by who else uses it. So the
programs that are compared live at the same time, are bound to the same quiet core, and take turns
in slices of some milliseconds while the others wait: what counts is the ratio of slices that are
neighbours, if the core stayed as it was. Where a program landed in memory still makes a percent; so
there are many groups of such programs, and the interval is made of how much they differ.

A program that takes part (slices.py, tests/victims/slices.h) prints "ready NAME..." with what it
can measure; for each NAME on stdin it runs a slice, waits for the device and prints "slice NAME
NS". So only one of them has work for the GPU at any time.

COST_GROUPS and COST_SECONDS give a section more groups and time, COST_ALSO more variants."""
import collections
import contextlib
import math
import os
import pathlib
import random
import re
import select
import statistics
import subprocess
import tempfile
import time

GROUPS, SECONDS = 16, 60        # of programs; for all of it, with their starts
ALIVE, PASSES = 48, 3           # programs at a time; each pass visits every group that is alive
START_SECONDS, SLICE_SECONDS = 120, 20      # then a program hangs
CORES_LEAST, LOOK_SECONDS, QUIET = 0.25, 0.1, 1.1     # the part that is used; quiet: over the least
STEADY, TRIM, CONFIDENCE = 0.1, 0.1, 0.95
TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
Interval = collections.namedtuple("Interval", "ratio low high")
ALSO = ("cupti-off", "blocks-off", "always", "alone")     # what the sections know
# gate None: without the library. env: more of the environment.
Variant = collections.namedtuple("Variant", "name command gate env", defaults=({},))


class Failed(Exception):
    """A program did not do what it should; the text says what."""


class Samples(dict):
    """{measure: [{variant: [(ns, ns) of each round]} of each group]}"""
    cores = ""                  # which were used
    uses = None                 # {variant: what it used of the system in a slice}
    failed = None               # why there are fewer groups


# ---- what the user asks for ----

def asked_number(name, default, least=1):
    """@return the number in the environment, or a default."""
    text = os.environ.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) < least:
        raise Failed(f"{name}={text}: not a whole number from {least} on; unset it or correct it")
    return int(text)


def asked_also(known):
    """@return which of a section's further variants COST_ALSO names."""
    names = [name for name in os.environ.get("COST_ALSO", "").split(",") if name]
    for name in names:
        if name not in ALSO:
            raise Failed(f"COST_ALSO={name}: no such variant; known are {', '.join(ALSO)}")
    return [name for name in names if name in known]


# ---- programs ----

class Program:
    """One of those that take turns."""

    def __init__(self, command, env, folder):
        self.errors = open(os.path.join(folder, "stderr"), "a+")     # never a full pipe
        # Where Python's hashes put things is no matter of the library.
        self.process = subprocess.Popen([str(c) for c in command], cwd=folder, stderr=self.errors,
                                        env={**env, "PYTHONHASHSEED": "0"},
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.unread, self.slices = b"", 0

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

    def uses(self):
        """@return (page faults of the process, times its main thread lost its core)"""
        try:
            own = pathlib.Path("/proc", str(self.process.pid))
            faults = (own / "stat").read_text().rpartition(")")[2].split()[7]
            lost = re.search(r"^nonvoluntary_ctxt_switches:\s*(\d+)", (own / "status").read_text(),
                             re.M)
            return int(faults), int(lost[1]) if lost else 0
        except (OSError, IndexError):
            return 0, 0

    def slice_ns(self, name):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(name.encode() + b"\n")
        measured, ns = self.expect("slice", SLICE_SECONDS)
        if measured != name:
            raise Failed(f"asked for {name}, it measured {measured}")
        self.slices += 1
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


# ---- cores ----

def spin_ns():
    start = time.perf_counter_ns()
    for _ in range(5000):
        pass
    return time.perf_counter_ns() - start


class Cores:
    """Which of them are quiet: what shares a core with us, in another thread of it or in another
    machine, makes everything slower by half. The first is this script's own."""

    def __init__(self):
        self.all = sorted(os.sched_getaffinity(0))
        near = self.siblings(self.all[0])
        # Those that share the script's core only if there is nothing else.
        self.theirs = [c for c in self.all if c not in near] or self.all[1:] or self.all
        self.seen = {core: [] for core in self.theirs}

    def siblings(self, core):
        """@return the core and what shares it, as far as the system tells."""
        with contextlib.suppress(OSError, ValueError):
            text = pathlib.Path(TOPOLOGY.format(core)).read_text().strip()
            ends = [part.split("-") for part in text.split(",")]
            return {c for e in ends for c in range(int(e[0]), int(e[-1]) + 1)}
        return {core}

    def look(self):
        """Spin on one after the other; nothing else of ours runs. What was seen before counts,
        too."""
        for core in self.theirs:
            os.sched_setaffinity(0, {core})
            end = time.monotonic() + LOOK_SECONDS
            while not self.seen[core] or time.monotonic() < end:
                self.seen[core].append(spin_ns())
        os.sched_setaffinity(0, self.all[:1])

    def quiet(self):
        """@return {core: the part of its time in which it was quiet}"""
        least = min(map(min, self.seen.values()))
        return {core: sum(ns <= QUIET * least for ns in seen) / len(seen)
                for core, seen in self.seen.items()}

    def choose(self):
        """@return the quickest on the average, and never two that share a core."""
        chosen = []
        for core in sorted(self.theirs, key=lambda c: statistics.fmean(self.seen[c])):
            if len(chosen) < max(1, CORES_LEAST * len(self.theirs)) and \
                    not self.siblings(core) & set(chosen):
                chosen.append(core)
        return chosen

    def tell(self, used):
        percent = {core: 100 * part for core, part in self.quiet().items()}
        least, most = (pick(percent[core] for core in used) for pick in (min, max))
        return (f"{len(used)} of {len(self.all)} cores, quiet for {least:.0f} to {most:.0f} % "
                f"of the time, all for {statistics.fmean(percent.values()):.0f} %")


# ---- turns ----

def take_round(programs, name, draw):
    """Each program's slices of a round: there and back, so that a drift meets all alike."""
    order = draw.sample(sorted(programs), len(programs))
    times = collections.defaultdict(tuple)
    for variant in order + order[::-1]:
        times[variant] += (programs[variant].slice_ns(name),)
    return times


def visit(programs, names, end, draw, taken):
    """Rounds on one core until @end, at least one; they are added to @taken."""
    while True:
        for name in names:
            for variant, ns in take_round(programs, name, draw).items():
                taken[name][variant].append(ns)
        if time.monotonic() >= end:
            return


class Taking:
    """Waves of groups, one after the other: a machine has no room for all of them."""

    def __init__(self, starts, seconds, seed=1):
        self.starts, self.draw = starts, random.Random(seed)
        self.end = time.monotonic() + seconds
        self.cores, self.used, self.names = Cores(), set(), []
        self.taken, self.uses, self.slices = [], collections.Counter(), collections.Counter()

    def wave(self, numbers, end):
        running, everything = [], []
        try:
            for number in numbers:
                running.append({})
                for variant, start in self.starts.items():
                    running[-1][variant] = start(number)
                    everything.append(running[-1][variant])
            self.names = [p.expect("ready", START_SECONDS) for p in everything][0]
            before = {p: p.uses() for p in everything}
            self.measure(running, end)
            for programs in running:
                for variant, p in programs.items():
                    for what, a, b in zip(("faults", "lost"), p.uses(), before[p]):
                        self.uses[variant, what] += a - b
                    self.slices[variant] += p.slices
        except BaseException:
            for program in everything:
                program.process.kill()
            raise
        finally:
            os.sched_setaffinity(0, self.cores.all)     # what is started inherits it
            for program in everything:
                program.process.stdin.close()
            for program in everything:
                program.end()

    def measure(self, running, end):
        """PASSES visits to each group; the cores are looked at before each pass."""
        taken = [collections.defaultdict(lambda: collections.defaultdict(list)) for _ in running]
        left = len(running) * PASSES
        for turn in range(left):
            if turn % len(running) == 0:
                self.cores.look()
                chosen = self.cores.choose()
                self.used |= set(chosen)
            number, now = turn % len(running), time.monotonic()
            for program in running[number].values():
                program.bind(chosen[turn % len(chosen)])
            visit(running[number], self.names, now + (end - now) / (left - turn), self.draw,
                  taken[number])
        self.taken += taken

    def run(self, groups):
        """@return Samples of all waves that there was time for, at least one."""
        waves = -(-groups // max(1, ALIVE // len(self.starts)))
        samples = Samples()
        for wave in range(waves):
            now = time.monotonic()
            try:
                self.wave(range(groups * wave // waves, groups * (wave + 1) // waves),
                          now + (self.end - now) / (waves - wave))
            except Failed as failed:
                if not self.taken:
                    raise
                samples.failed = str(failed)
                break
            if time.monotonic() >= self.end:
                break
        samples.update((name, [group[name] for group in self.taken]) for name in self.names)
        samples.cores = self.cores.tell(self.used)
        samples.uses = {v: f"a slice has {self.uses[v, 'faults'] / n:.1f} page faults and loses "
                           f"its core {self.uses[v, 'lost'] / n:.1f} times"
                        for v, n in self.slices.items()}
        return samples


def take(starts, seconds, groups=GROUPS, seed=1):
    """@param starts {variant: start(group) that starts a Program}. @return Samples"""
    return Taking(starts, seconds, seed).run(groups)


def compare(suite, variants, seconds, groups=GROUPS):
    """@return what take() returns, and {variant: [lines of each group's reports]}"""
    with tempfile.TemporaryDirectory(prefix="arena-") as top:
        def starter(variant):
            def start(number):
                folder = pathlib.Path(top, variant.name, str(number))
                folder.mkdir(parents=True)
                env = suite.environment(variant.gate, folder, variant.env)
                return Program(variant.command, env, folder)
            return start
        samples = take({v.name: starter(v) for v in variants}, seconds, groups)
        there = range(max(map(len, samples.values())))
        reports = {v.name: [suite.read_reports(v.command, v.gate, pathlib.Path(top, v.name, str(n)))
                            for n in there] for v in variants}
    return samples, reports


# ---- figures ----

def ratios(groups, variant, plain):
    """@return [[ratio of each round that counts] of each group]. One does not in which the core
    changed: the two slices of a program differ. If it did in most, the steadier half counts."""
    found = []
    for group in groups:
        rounds = [(max(abs(math.log(a[0] / a[1])), abs(math.log(b[0] / b[1]))), sum(a) / sum(b))
                  for a, b in zip(group[variant], group[plain])]
        most = max(STEADY, statistics.median(change for change, _ in rounds))
        found.append([ratio for change, ratio in rounds if change <= most])
    return found


def t_quantile(p, freedom):
    """Of Student's distribution: Cornish and Fisher's series, within 1 % from 3 degrees on."""
    z = statistics.NormalDist().inv_cdf(p)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2) + \
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)


def interval(groups):
    """The ratio, and how far it may be off. Each group counts as one, with its median, as a busy
    moment is no cost; further rounds do not tell where else its programs could lie. Of the groups
    the trimmed mean, with Yuen's interval: a tenth at either end may be anything."""
    logs = sorted(math.log(statistics.median(group)) for group in groups)
    n, cut = len(logs), int(TRIM * len(logs))
    centre = statistics.fmean(logs[cut:n - cut])
    if n - 2 * cut < 2:
        return Interval(math.exp(centre), 0, math.inf)
    held = [logs[min(max(i, cut), n - cut - 1)] for i in range(n)]
    error = statistics.stdev(held) / ((1 - 2 * cut / n) * math.sqrt(n))
    half = error * t_quantile((1 + CONFIDENCE) / 2, n - 2 * cut - 1)
    return Interval(*(math.exp(centre + d) for d in (0, -half, half)))


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
    """@return (is it over the budget for certain?, time, what is added, and ratio in words)"""
    found = ratios(groups, variant, plain)
    held = interval(found)
    over, said = judge(held, budget_percent)
    # Not the variant's own median: that of other rounds, it may contradict the ratio.
    before = statistics.median(ns for group in groups for pair in group[plain] for ns in pair)
    return over, (f"{before:.0f} ns, {before * (held[0] - 1):+.0f}, {said}, "
                  f"{len(groups)} groups, {sum(map(len, found))} of "
                  f"{sum(len(group[plain]) for group in groups)} rounds steady")
