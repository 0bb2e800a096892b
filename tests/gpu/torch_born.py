#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""State that lies in memory which a capture allocated: each replay overwrites what a reload loads.

    torch_born.py cache     a scale is made at its first use, which is in the capture, and loaded:
                            the reload is refused or reported; well once the graph is gone
    torch_born.py static    the scale was made before the capture: well
    torch_born.py output    the graph's output hangs on the model, and nobody loads it: well
"""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import arena  # noqa: E402

N, OLD, NEW = 4096, 2.0, 3.0
torch.set_grad_enabled(False)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = self.out = None

    def forward(self, x):
        if self.scale is None:
            self.scale = torch.full((N,), OLD, device="cuda")
        return x * self.scale


def load(model, watch):
    """@return what was said of the reload that loads the scale."""
    try:
        with arena.reload(watch=watch) as r:
            if model.scale is not None:
                model.scale.copy_(torch.full((N,), NEW))
            torch.cuda.synchronize()
    except arena.Refused as refused:
        return f"refused: {refused}"
    return " ".join([r.report["verdict"]] + [f["kind"] for f in r.report["findings"]])


def main(mode):
    model, x, graph = Model(), torch.ones(N, device="cuda"), torch.cuda.CUDAGraph()
    Model()(x)                          # loads the kernels
    if mode == "static":
        model(x)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        model.out = model(x)
    if mode == "output":
        model.scale = None
    watch = arena.watch(model, required=True)
    print("loaded:", load(model, watch))
    graph.replay()
    torch.cuda.synchronize()
    print("after the replay:", model.out[0].item())
    del graph
    print("without the graph:", load(model, watch))


main(sys.argv[1])
