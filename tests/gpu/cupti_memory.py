#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory that a graph reads and that is gone before its first replay: freed inside the capture that
reads it (cupti_memory.py inside), or between the capture and the instantiation (between). Both
must be refused under strict, whoever recorded the nodes."""
import sys

import torch

N = 16 << 20                    # 64 MiB: a segment of its own


def main():
    out = torch.zeros(1024, device="cuda")
    w = torch.ones(N, device="cuda")
    torch.add(out, w[:1024], out=out)
    torch.cuda.synchronize()
    print("range w=0x%x:%d" % (w.data_ptr(), w.nbytes))
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        torch.add(out, w[:1024], out=out)
        if sys.argv[1] == "inside":
            del w
    if sys.argv[1] == "inside":
        graph.instantiate()
        torch.cuda.empty_cache()
    else:
        del w
        torch.cuda.empty_cache()
        graph.instantiate()
    try:
        graph.replay()
        torch.cuda.synchronize()
        print("not refused")
    except RuntimeError as error:
        print("refused:", type(error).__name__, "|", str(error).splitlines()[0])


main()
