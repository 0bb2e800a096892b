# SPDX-License-Identifier: Apache-2.0
"""The programs' side of overhead.py: slices on request. tests/victims/slices.h is the same in C."""
import collections
import gc
import statistics
import sys
import time

SLICE_NS = 20_000_000
LONGEST = 4                     # times its length, for a slice on a busy core
BURSTS_LEAST = 8
SPIN, QUIET = 1000, 1.1         # rounds of a loop; quiet: at most this much over the least it took
# once is timed, @count calls of it in a burst; before is not: it makes what once needs.
Measure = collections.namedtuple("Measure", "once count before", defaults=(lambda: None,))
_least = float("inf")


def spin_ns():
    """How fast is the core now? What shares it with us, in another thread of the core or another
    machine, makes everything slower by half."""
    global _least
    start = time.perf_counter_ns()
    for _ in range(SPIN):
        pass
    took = time.perf_counter_ns() - start
    _least = min(_least, took)
    return took


def burst(measure, settle):
    """@return (ns of one, the slowest spin around it)"""
    measure.before()
    settle()
    before = spin_ns()
    start = time.perf_counter_ns()
    for _ in range(measure.count):
        measure.once()
    took = time.perf_counter_ns() - start
    return took / measure.count, max(before, spin_ns())


def slice_ns(measure, settle, length_ns=SLICE_NS):
    """The median of bursts in CPU time: between two of them the device becomes idle, so the queue
    never fills. Those on a quiet core count, if there are enough. The first tenth warms up: the
    caches were another's."""
    quiet, loud, start = [], [], time.perf_counter_ns()
    while True:
        ns, spin = burst(measure, settle)
        taken = time.perf_counter_ns() - start
        if taken >= length_ns / 10:
            (quiet if spin <= QUIET * _least else loud).append(ns)
        enough = len(quiet) >= BURSTS_LEAST
        if (quiet or loud) and taken >= length_ns * (1 if enough else LONGEST):
            break
    settle()
    return statistics.median(quiet if enough else quiet + loud)


def serve(measures, settle):
    """Answer until stdin ends. @param settle waits for the device."""
    for measure in measures.values():
        slice_ns(measure, settle)
    gc.collect()
    gc.disable()
    print("ready", *measures, flush=True)
    for line in sys.stdin:
        name = line.strip()
        print("slice", name, "%.2f" % slice_ns(measures[name], settle), flush=True)
