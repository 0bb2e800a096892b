#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time of one replay of a graph of 256 nodes, and of its instantiation for each node."""
import statistics
import time

import torch

NODES = 256
REPLAYS = 50                    # between two synchronisations: the queue never fills
x = torch.ones(1024, device="cuda")


def capture():
    graph = torch.cuda.CUDAGraph(keep_graph=True)
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


x.mul_(1.0)
torch.cuda.synchronize()
graphs, instantiate = [], []
for _ in range(12):
    graphs.append(capture())
    begin = time.perf_counter_ns()
    graphs[-1].instantiate()
    instantiate.append((time.perf_counter_ns() - begin) / NODES)
for _ in range(20):
    replay_ns(graphs[0])
samples = [replay_ns(graphs[0]) for _ in range(100)]
print("measure torch-replay-256 %.1f" % statistics.median(samples))
print("measure torch-instantiate-node %.1f" % statistics.median(instantiate[2:]))
