# SPDX-License-Identifier: Apache-2.0
"""The programs' side of overhead.py: slices on request. tests/victims/slices.h is the same in C."""
import collections
import gc
import sys
import time

SLICE_NS = 20_000_000
# once is timed, @count calls of it in a burst; before is not: it makes what once needs.
Measure = collections.namedtuple("Measure", "once count before", defaults=(lambda: None,))


def burst_ns(measure, settle):
    measure.before()
    settle()
    start = time.perf_counter_ns()
    for _ in range(measure.count):
        measure.once()
    return (time.perf_counter_ns() - start) / measure.count


def slice_ns(measure, settle, length_ns=SLICE_NS):
    """The lower quartile of bursts in CPU time, as a burst is late by chance but never early.
    Between two of them the device becomes idle, so the queue never fills. The first tenth warms
    up: the caches were another's."""
    found, taken, start = [], 0, time.perf_counter_ns()
    while not found or taken < length_ns:
        ns = burst_ns(measure, settle)
        taken = time.perf_counter_ns() - start
        if taken >= length_ns / 10:
            found.append(ns)
    settle()
    return sorted(found)[len(found) // 4]


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
