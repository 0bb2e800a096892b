#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time of one replay of a graph of 256 nodes, and of its instantiation. overhead.py asks for
slices of each."""
import torch

import slices

NODES = 256
x = torch.ones(1024, device="cuda")
stream = torch.cuda.Stream()
newest = None


def capture():
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.stream(stream):     # torch.cuda.graph() collects garbage first
        graph.capture_begin()
        for _ in range(NODES):
            x.mul_(1.0)
        graph.capture_end()
    return graph


def capture_newest():
    global newest
    newest = capture()


x.mul_(1.0)
torch.cuda.synchronize()
first = capture()
first.instantiate()
slices.serve({"torch-replay-256": slices.Measure(first.replay, 8),
              "torch-instantiate-256": slices.Measure(lambda: newest.instantiate(), 1,
                                                      capture_newest)},
             torch.cuda.synchronize)
