#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each block event costs a PyTorch program: a torch.empty() loop, an eager decode step, one
replay of the same step as a graph. CPU time; the queue never fills.

Printed is the least of the medians of several rounds: what else the machine does only adds. The
three take turns, so that a busy moment meets all of them."""
import gc
import statistics
import time

import torch

LAYERS, WIDTH = 8, 256
ROUNDS, SAMPLES = 12, 15
torch.manual_seed(0)
torch.set_grad_enabled(False)
weights = [[torch.randn(WIDTH, WIDTH, device="cuda") / 16 for _ in range(4)] for _ in range(LAYERS)]
x = torch.randn(4, WIDTH, device="cuda")
out = torch.empty_like(x)


def empty_loop():
    for _ in range(2000):
        torch.empty(1024, device="cuda")


def decode():
    h = x
    for q, k, v, o in weights:
        scores = torch.softmax((h @ q) @ (h @ k).t(), dim=-1)
        h = torch.nn.functional.layer_norm(h + (scores @ (h @ v)) @ o, (WIDTH,))
    out.copy_(h)


def steps():
    for _ in range(5):
        decode()


def replays():
    for _ in range(20):
        graph.replay()


def median_ns(function, count):
    taken = []
    for _ in range(SAMPLES):
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        function()
        taken.append((time.perf_counter_ns() - start) / count)
    return statistics.median(taken)


decode()
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    decode()
MEASURES = (("torch-empty", empty_loop, 2000), ("torch-decode-step", steps, 5),
            ("torch-decode-replay", replays, 20))
gc.collect()
gc.disable()
for _, function, count in MEASURES:
    median_ns(function, count)                          # warm
least = {}
for _ in range(ROUNDS):
    for name, function, count in MEASURES:
        least[name] = min(median_ns(function, count), least.get(name, float("inf")))
for name, ns in least.items():
    print("measure %s %.1f" % (name, ns))
