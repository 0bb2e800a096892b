#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time of one replay of a graph of 256 nodes; with "windows", also of the newest and of the
first graph after each of six further captures. What a window costs while it is open is over by
then: it is paid by the first replays, which are not measured.

    cupti_replay.py [--lock FILE] [windows]

Of processes that share a lock file, all start at once, which takes them long, and measure one by
one, when all have started."""
import fcntl
import statistics
import sys
import time

lock = open(sys.argv[sys.argv.index("--lock") + 1], "w") if "--lock" in sys.argv else None
if lock:
    fcntl.flock(lock, fcntl.LOCK_SH)

import torch  # noqa: E402  (the start that others wait for)

NODES = 256
REPLAYS = 20                    # between two synchronisations: the queue never fills
x = torch.ones(1024, device="cuda")


def capture():
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(NODES):
            x.mul_(1.0)
    return graph


def replay_ns(graph):
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for _ in range(REPLAYS):
        graph.replay()
    return (time.perf_counter_ns() - start) / REPLAYS


def measure(name, graph, warm_up, samples):
    for _ in range(warm_up):
        replay_ns(graph)
    print("measure %s %.1f" % (name, statistics.median(replay_ns(graph) for _ in range(samples))))


x.mul_(1.0)
torch.cuda.synchronize()
if lock:
    fcntl.flock(lock, fcntl.LOCK_EX)    # given back by the end of the process
first = capture()
measure("cupti-replay-256", first, 20, 60)
for i in range(1, 7) if "windows" in sys.argv else ():
    newest = capture()
    measure(f"cupti-newest-after-window-{i}", newest, 10, 20)
    measure(f"cupti-first-after-window-{i}", first, 2, 20)
