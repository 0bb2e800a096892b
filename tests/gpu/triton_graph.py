#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Triton kernel captured in a PyTorch graph; its launcher finds the driver on its own."""
import torch
import triton
import triton.language as tl


@triton.jit
def scale_add(out, x, y, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) * 3 + tl.load(y + at, mask=mask), mask=mask)


n = 1 << 20
x = torch.ones(n, device="cuda")
y = torch.full((n,), 2.0, device="cuda")
out = torch.empty(n, device="cuda")


def run():
    scale_add[(triton.cdiv(n, 1024),)](out, x, y, n, block=1024)


run()
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    run()
for i in range(4):
    x.fill_(float(i))
    graph.replay()
    print(i, out.sum().item())
