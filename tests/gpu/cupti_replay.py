#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time of one replay of a graph of 256 nodes: overhead.py asks for slices. What a window costs
while it is open is over by then: it is paid by the first replays, which are not measured. With
"windows", instead: of the newest and of the first graph after each of six further captures."""
import sys

import torch

import slices

NODES = 256
REPLAYS = 8                     # between two synchronisations: the queue never fills
WARM_UP = 400                   # more than a window stays open for
x = torch.ones(1024, device="cuda")


def capture():
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(NODES):
            x.mul_(1.0)
    return graph


def replays_of(graph):
    return slices.Measure(graph.replay, REPLAYS)


def say(name, graph):
    for _ in range(WARM_UP):
        graph.replay()
    print("measure %s %.1f" % (name, slices.slice_ns(replays_of(graph), torch.cuda.synchronize)))


x.mul_(1.0)
torch.cuda.synchronize()
first = capture()
for _ in range(WARM_UP):
    first.replay()
if "windows" in sys.argv:
    for i in range(1, 7):
        newest = capture()
        say(f"cupti-newest-after-window-{i}", newest)
        say(f"cupti-first-after-window-{i}", first)
else:
    slices.serve({"cupti-replay-256": replays_of(first)}, torch.cuda.synchronize)
