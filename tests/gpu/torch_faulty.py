#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A reload that moves what a graph reads, as a serving engine has it: the captured weight is
dropped, the cache emptied, a new weight loaded, the graph replayed. Under strict the replay is an
ordinary exception, and the process goes on: it captures again and serves."""
import torch

N = 16 << 20                    # 64 MiB: a segment of its own


def capture(w, out):
    torch.add(out, w[:1024], out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.add(out, w[:1024], out=out)
    return graph


out = torch.zeros(1024, device="cuda")
w = torch.ones(N, device="cuda")
graph = capture(w, out)
out.zero_()
graph.replay()
torch.cuda.synchronize()
print("healthy replay", out[0].item())
print("range w=0x%x:%d" % (w.data_ptr(), w.nbytes))

del w
torch.cuda.empty_cache()
try:
    graph.replay()
    torch.cuda.synchronize()
    print("not refused")
except RuntimeError as error:
    print("refused:", type(error).__name__, "|", str(error).splitlines()[0])
    del graph
    w = torch.full((N,), 5.0, device="cuda")
    graph = capture(w, out)
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    print("captured again", out[0].item())
