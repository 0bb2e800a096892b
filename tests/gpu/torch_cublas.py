#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights that only cuBLAS sees: its kernels take one packed buffer. Healthy replays first, then
(with the argument "faulty") a weight is dropped and the graph replayed."""
import sys

import torch

faulty = sys.argv[1:] == ["faulty"]
torch.backends.cuda.matmul.allow_tf32 = False
N = 4096                        # 64 MiB each in fp32: a segment of its own
x = torch.ones(16, N, device="cuda")
weights = [torch.full((N, N), 2.0**-12 * (i + 1), device="cuda") for i in range(4)]


def forward():
    y = x
    for w in weights:
        y = y @ w
    return y


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    forward()
torch.cuda.current_stream().wait_stream(side)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = forward()
for i in range(3):
    weights[0].fill_(2.0**-12 * (i + 1))
    graph.replay()
    print(i, y[0, 0].item())
if faulty:
    addresses = weights[2].data_ptr(), weights[2].nbytes
    print("range w=0x%x:%d" % addresses)
    del weights[2]
    torch.cuda.empty_cache()
    try:
        graph.replay()
        torch.cuda.synchronize()
        print("not refused")
    except RuntimeError as error:
        print("refused:", str(error).splitlines()[0])
