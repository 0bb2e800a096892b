#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A graph whose nodes other libraries add: cupti_nodes.py block|conv|cub|nccl. The replay must give
what the eager step gave, and two sources of captured addresses must agree on it."""
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F

torch.manual_seed(0)
half = {"device": "cuda", "dtype": torch.float16}


def block():
    """A transformer block: cuBLAS for the projections, fused attention."""
    width, heads = 512, 8
    w = {name: torch.randn(shape, **half) / 32 for name, shape in (
        ("qkv", (3 * width, width)), ("out", (width, width)), ("up", (4 * width, width)),
        ("down", (width, 4 * width)))}
    one = torch.ones(width, **half)

    def step(x):
        q, k, v = F.linear(F.layer_norm(x, (width,), one), w["qkv"]).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + F.linear(a, w["out"])
        return x + F.linear(F.gelu(F.linear(F.layer_norm(x, (width,), one), w["up"])), w["down"])

    return step, torch.randn(2, 128, width, **half)


def conv():
    """cuDNN."""
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.ReLU(),
                              torch.nn.Conv2d(64, 64, 3, padding=1)).to(**half)
    return net, torch.randn(4, 3, 64, 64, **half)


def cub():
    """Sorts and scans."""
    return lambda x: torch.cumsum(torch.sort(x).values, 0), torch.randn(1 << 18, device="cuda")


def nccl():
    """A group of one rank."""
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)

    def step(x):
        everything = torch.empty_like(x)
        dist.all_gather_into_tensor(everything, x * 2)
        dist.all_reduce(everything)
        return everything + 1

    return step, torch.randn(1 << 16, device="cuda")


@torch.no_grad()
def main():
    step, x = {"block": block, "conv": conv, "cub": cub, "nccl": nccl}[sys.argv[1]]()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            expected = step(x)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # The group's watchdog makes calls of its own on another thread.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        got = step(x)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    close = torch.allclose(got.float(), expected.float(), rtol=1e-2, atol=1e-2)
    print(sys.argv[1], "as eager" if close else "NOT as eager")
    del graph, got
    if dist.is_initialized():
        dist.destroy_process_group()
    return 0 if close else 1


if __name__ == "__main__":
    sys.exit(main())
