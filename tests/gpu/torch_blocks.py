#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tensors that move inside PyTorch's caching allocator: no driver call is made.

    torch_blocks.py healthy     derived tensors refreshed in place, graphs captured again, tensors
                                dropped before the graphs that read them: no finding
    torch_blocks.py rebound     W_UV is computed anew and the old tensor dropped; another one takes
                                its memory, and the replay would compute with that
    torch_blocks.py workspace   a workspace grows between captures: the earlier graph is dead
"""
import sys

import torch

N = 512
torch.manual_seed(0)
torch.set_grad_enabled(False)


def derive(kv):
    """What post-load processing keeps of a weight: a tensor of its own."""
    return kv.t().contiguous()


def capture(step):
    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def say_range(name, tensor):
    print("range %s=0x%x:%d" % (name, tensor.data_ptr(), tensor.nbytes))


class Layer:
    def __init__(self):
        self.kv = torch.randn(N, N, device="cuda")
        self.w_uv = derive(self.kv)
        self.x = torch.randn(16, N, device="cuda")
        self.out = torch.zeros(16, N, device="cuda")
        self.graph = capture(self.step)

    def step(self):
        torch.add(self.x @ self.w_uv, self.x, out=self.out)

    def right(self):
        """Is what the last replay left what the weight of now gives?"""
        torch.cuda.synchronize()
        return torch.allclose(self.out, self.x @ self.kv.t() + self.x, atol=1e-3, rtol=1e-3)


def healthy():
    layers = [Layer() for _ in range(4)]
    for turn in range(20):
        for layer in layers:
            layer.kv.copy_(torch.randn(N, N, device="cuda"))
            layer.w_uv.copy_(derive(layer.kv))      # the temporary goes at once
        if turn == 10:                              # captured again, as after a resize
            for layer in layers:
                layer.graph = None
                layer.w_uv = derive(layer.kv)
                layer.graph = capture(layer.step)
        for layer in layers:
            layer.graph.replay()
        print(turn, all(layer.right() for layer in layers))
    torch.cuda.empty_cache()
    for layer in layers:                            # tensors first, then the graph
        layer.kv = layer.w_uv = layer.x = layer.out = None
        layer.graph = None
    x = torch.ones(16, device="cuda")
    graph = capture(lambda: x.mul_(1.0))
    graph.replay()
    print("ended", x.sum().item())


def refused(replay):
    """What a replay that must be refused says."""
    try:
        replay()
        torch.cuda.synchronize()
        print("not refused")
        return False
    except RuntimeError as error:
        print("refused:", type(error).__name__, "|", str(error).splitlines()[0])
        return True


def rebound():
    layer = Layer()
    layer.graph.replay()
    print("healthy replay", layer.right())
    say_range("w", layer.w_uv)
    old = layer.w_uv.data_ptr()
    layer.kv.copy_(torch.randn(N, N, device="cuda"))
    fresh = derive(layer.kv)
    layer.w_uv = fresh                              # the old tensor is dropped here
    junk = torch.full((N, N), 9.0, device="cuda")
    print("its memory is taken", junk.data_ptr() == old)
    before = layer.out.clone()
    if refused(layer.graph.replay):
        torch.cuda.synchronize()
        print("no wrong token", torch.equal(layer.out, before))
        layer.graph = None
        layer.graph = capture(layer.step)
        layer.graph.replay()
        print("captured again", layer.right())
    else:
        print("right", layer.right())


def workspace():
    out = torch.zeros(1024, device="cuda")
    ws, graphs = None, []
    for size in (1 << 16, 1 << 18, 1 << 20):
        ws = None
        ws = torch.zeros(size, device="cuda")
        if not graphs:
            say_range("w", ws)
        source = ws[:1024]
        torch.add(out, source, out=out)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            torch.add(out, source, out=out)
        del source
        graphs.append(graph)
    graphs[-1].replay()
    torch.cuda.synchronize()
    print("the newest graph is well", out[0].item() == 0.0)
    refused(graphs[0].replay)


if __name__ == "__main__":
    {"healthy": healthy, "rebound": rebound, "workspace": workspace}[sys.argv[1]]()
