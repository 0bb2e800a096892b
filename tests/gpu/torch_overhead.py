#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the library costs a PyTorch program: a torch.empty() loop, an eager decode step, one replay of
the same step as a graph. overhead.py runs it.

PyTorch is loaded once; for each line on stdin, which names two cores, a child is forked that uses
CUDA for the first time, takes times and ends. It prints "measure NAME NS" for each, the median of
many short samples in CPU time (the queue never fills), then "done". The three take turns, so that
a busy moment meets all of them."""
import gc
import os
import statistics
import sys
import time

import torch

LAYERS, WIDTH = 8, 256
SAMPLES = 40


def make_step():
    torch.manual_seed(0)
    weights = [[torch.randn(WIDTH, WIDTH, device="cuda") / 16 for _ in range(4)]
               for _ in range(LAYERS)]
    x = torch.randn(4, WIDTH, device="cuda")
    out = torch.empty_like(x)

    def decode():
        h = x
        for q, k, v, o in weights:
            scores = torch.softmax((h @ q) @ (h @ k).t(), dim=-1)
            h = torch.nn.functional.layer_norm(h + (scores @ (h @ v)) @ o, (WIDTH,))
        out.copy_(h)
    return decode


def capture(decode):
    decode()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decode()
    return graph


def empty():
    torch.empty(1024, device="cuda")


def sample_ns(function, count):
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for _ in range(count):
        function()
    return (time.perf_counter_ns() - start) / count


def measure():
    decode = make_step()
    graph = capture(decode)
    measures = (("torch-empty", empty, 1000), ("torch-decode-step", decode, 3),
                ("torch-decode-replay", graph.replay, 20))
    taken = {name: [] for name, _, _ in measures}
    gc.collect()
    gc.disable()
    for _ in range(SAMPLES):
        for name, function, count in measures:
            taken[name].append(sample_ns(function, count))
    for name, ns in taken.items():
        # The first ones warm up.
        print("measure %s %.1f" % (name, statistics.median(ns[SAMPLES // 8:])))


def main():
    torch.set_grad_enabled(False)
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.sched_setaffinity(0, map(int, line.split()))
                measure()
                sys.stdout.flush()
                status = 0
            finally:
                os._exit(status)
        failed = os.waitpid(child, 0)[1]
        print("failed" if failed else "done", flush=True)


if __name__ == "__main__":
    main()
