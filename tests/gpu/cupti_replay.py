#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time of one replay of a graph of 256 nodes: overhead.py asks for slices. What a window costs
while it is open is over by then: it is paid by the first replays, which are not measured. With
"windows": of the first graph and of the newest, after six further windows: each graph is replayed
until its window is closed before the next is captured."""
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


def capture_and_replay():
    graph = capture()
    for _ in range(WARM_UP):
        graph.replay()
    return graph


x.mul_(1.0)
torch.cuda.synchronize()
graphs = [capture_and_replay() for _ in range(7 if "windows" in sys.argv else 1)]
if "windows" in sys.argv:
    measures = {"cupti-replay-first": graphs[0], "cupti-replay-newest": graphs[-1]}
else:
    measures = {"cupti-replay-256": graphs[0]}
slices.serve({name: slices.Measure(graph.replay, REPLAYS) for name, graph in measures.items()},
             torch.cuda.synchronize)
