#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the library costs a PyTorch program: a torch.empty() loop, an eager decode step, one replay of
the same step as a graph. overhead.py asks for slices of each."""
import torch

import slices

LAYERS, WIDTH = 8, 256


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


torch.set_grad_enabled(False)
step = make_step()
slices.serve({"torch-empty": slices.Measure(empty, 200),
              "torch-decode-step": slices.Measure(step, 1),
              "torch-decode-replay": slices.Measure(capture(step).replay, 8)},
             torch.cuda.synchronize)
