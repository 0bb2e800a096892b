#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Healthy PyTorch: graphs of 40 batch sizes in one pool, as a serving engine captures them: largest
first, temporaries freed in the capture, results known by their address only, the cache emptied in
between, replays in any order; a second model whose input is the result of the first; the graphs
dropped, the pool given back, its memory used by others, and all of it once more."""
import gc

import torch

SIZES = [8 * i for i in range(40, 0, -1)]
WIDTH = 256
torch.manual_seed(0)
torch.set_grad_enabled(False)


def forward(weights, x):
    for w in weights:
        x = torch.relu(x @ w) + x.mean(dim=1, keepdim=True)
    return x


def capture(pool, function):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        result = function()
    return graph, result


def view(address, rows):
    """What a weak reference is: a tensor that does not own its memory."""

    class Memory:
        __cuda_array_interface__ = {"shape": (rows, WIDTH), "typestr": "<f4",
                                    "data": (address, False), "version": 3}

    return torch.as_tensor(Memory(), device="cuda")


def life(weights, buffer):
    pool = torch.cuda.graph_pool_handle()
    entries = {}
    for n in SIZES:
        forward(weights, buffer[:n])            # warm-up, outside the pool
        gc.collect()
        torch.cuda.empty_cache()
        graph, y = capture(pool, lambda n=n: forward(weights, buffer[:n]))
        head, z = capture(pool, lambda y=y: (y * 2.0).sum(dim=1, keepdim=True).expand(-1, WIDTH) + y)
        entries[n] = graph, head, y.data_ptr(), z.data_ptr()
        del y, z
    wrong = 0
    for turn in range(3):
        for i in range(len(SIZES)):
            n = SIZES[(i * 7 + turn) % len(SIZES)]
            graph, head, _, at = entries[n]
            buffer.copy_(torch.randn_like(buffer))
            graph.replay()
            head.replay()
            y = forward(weights, buffer[:n])
            want = (y * 2.0).sum(dim=1, keepdim=True).expand(-1, WIDTH) + y
            wrong += not torch.allclose(view(at, n), want, atol=1e-2, rtol=1e-2)
    print("replays that differ", wrong)
    torch.cuda.synchronize()
    entries.clear()
    gc.collect()
    torch.cuda.empty_cache()
    # The addresses of the pool go to ordinary tensors.
    others = [torch.ones(1 << 20, device="cuda") for _ in range(16)]
    print("others", sum(t[0].item() for t in others))


def main():
    weights = [torch.randn(WIDTH, WIDTH, device="cuda") / 16 for _ in range(3)]
    buffer = torch.zeros(SIZES[0], WIDTH, device="cuda")
    for _ in range(2):
        life(weights, buffer)
    print("ok")


if __name__ == "__main__":
    main()
