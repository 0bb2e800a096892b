#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that says what it does with nothing but NVTX ranges, and moves what a graph reads in a
reload: the library hears of the reload, infers the move, and names who allocated both."""
import torch

N = 1024
nvtx = torch.cuda.nvtx


def derive(weight):
    return weight.t().contiguous()


def capture(derived, out):
    torch.mul(derived, 2.0, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(derived, 2.0, out=out)
    return graph


def replay(graph):
    try:
        graph.replay()
        torch.cuda.synchronize()
        return "replayed"
    except RuntimeError as error:
        return "refused: " + str(error).splitlines()[0]


weight = torch.ones(N, N, device="cuda")
derived, out = derive(weight), torch.zeros(N, N, device="cuda")
graph = capture(derived, out)
print("before", replay(graph), out[0, 0].item())

nvtx.range_push("a range of the program's own")
nvtx.range_push("arena:reload full")
with nvtx.range("arena:layer model.layers.0"):
    weight.fill_(3.0)
    fresh = derive(weight)
    print(f"moved {derived.data_ptr():#x} {fresh.data_ptr():#x}")
    derived = fresh
nvtx.range_pop()
nvtx.range_pop()

print("after", replay(graph))
del graph
graph = capture(derived, out)
print("again", replay(graph), out[0, 0].item())
