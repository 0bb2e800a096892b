#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Healthy PyTorch: graphs that share a pool, replayed in any order, with temporaries, memory that
comes and goes around them, new values copied into static inputs, a graph that is dropped."""
import gc

import torch

torch.manual_seed(0)
static = torch.zeros(1 << 20, device="cuda")
weight = torch.full((1 << 20,), 2.0, device="cuda")


def step(n):
    t = static[:n] * weight[:n] + 1
    u = torch.nn.functional.relu(t - 3)
    return u + t


def warm_up():
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for n in (1 << 20, 1 << 16, 1 << 10):
            step(n)
    torch.cuda.current_stream().wait_stream(side)


def capture():
    pool = torch.cuda.graph_pool_handle()
    graphs = []
    for n in (1 << 20, 1 << 16, 1 << 10):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            result = step(n)
        graphs.append((graph, result))
    return graphs


def churn():
    junk = [torch.empty(k << 20, dtype=torch.uint8, device="cuda") for k in (1, 30, 70)]
    del junk
    torch.cuda.empty_cache()


warm_up()
graphs = capture()
for round_ in range(5):
    static.copy_(torch.full((1 << 20,), float(round_)))
    churn()
    for i in (2, 0, 1, 0):
        graphs[i][0].replay()
        print(round_, i, graphs[i][1].sum().item())
graphs.pop(1)
gc.collect()
churn()
graphs[0][0].replay()
print("kept", graphs[0][1].sum().item())
del graphs
gc.collect()
churn()
fresh = capture()
fresh[0][0].replay()
print("captured again", fresh[0][1].sum().item())
