#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model that is built twice in a MemPool whose memory is that of slots: it lies where it lay, and
the graph that was captured from the first one serves the second."""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import arena  # noqa: E402

N = 4 << 20                     # 16 MiB of floats: a segment of its own
ALLOCATOR = arena.torch_allocator()


def build(value):
    pool = torch.cuda.MemPool(ALLOCATOR and ALLOCATOR.allocator())
    with arena.layer("model"), arena.tag("weights"), torch.cuda.use_mem_pool(pool):
        weights = [torch.full((N,), value + i, device="cuda") for i in range(3)]
    return pool, weights


def capture(weights, out):
    torch.add(weights[0][:1024], weights[2][:1024], out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.add(weights[0][:1024], weights[2][:1024], out=out)
    return graph


out = torch.zeros(1024, device="cuda")
pool, weights = build(1.0)
first = [w.data_ptr() for w in weights]
graph = capture(weights, out)
graph.replay()
torch.cuda.synchronize()
print("first", out[0].item())           # 1 + 3

del weights, pool
pool, weights = build(5.0)
print("same place", [w.data_ptr() for w in weights] == first)
graph.replay()
torch.cuda.synchronize()
print("second", out[0].item())          # 5 + 7
