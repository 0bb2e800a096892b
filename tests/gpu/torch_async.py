#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Healthy PyTorch on the cudaMallocAsync allocator: temporaries of a capture become allocation and
free nodes; results go to memory from outside (this allocator refuses to free them otherwise)."""
import torch

torch.manual_seed(0)
x = torch.rand(1 << 20, device="cuda")
weight = torch.full((1 << 20,), 2.0, device="cuda")
out = torch.empty_like(x)


def step():
    t = x * weight + 1
    u = torch.nn.functional.relu(t - 1.5)
    out.copy_(u + t)
    del t, u


step()
torch.cuda.synchronize()
graphs = []
for _ in range(3):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graphs.append(graph)
for round_ in range(4):
    x.fill_(float(round_))
    junk = [torch.empty(k << 20, dtype=torch.uint8, device="cuda") for k in (1, 30, 70)]
    del junk
    torch.cuda.empty_cache()
    for i in (2, 0, 1, 0):
        out.zero_()
        graphs[i].replay()
        print(round_, i, out.sum().item())
# The interpreter would free the tensors first, while the graphs still refer to them: a warning.
del graph, graphs
