#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""State that lies in memory which a capture allocated: each replay overwrites what a reload loads.

    torch_born.py cache     a scale is made at its first use, which is in the capture, and loaded:
                            the reload is refused or reported; well once the graph is gone
    torch_born.py cast      the same, but it is loaded by a kernel: by a copy_() that converts,
    torch_born.py fill      by fill_(),
    torch_born.py foreach   by _foreach_copy_(): the reload passes with a warning
    torch_born.py static    the scale was made before the capture: well, loaded by all of these
    torch_born.py output    the graph's output hangs on the model, and nobody loads it: well
    torch_born.py cleared   the output is cleared in the reload: a warning
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


def copy(scale):
    scale.copy_(torch.full((N,), NEW))


def cast(scale):
    scale.copy_(torch.full((N,), NEW, device="cuda", dtype=torch.float64))


def fill(scale):
    scale.fill_(NEW)


def foreach(scale):
    torch._foreach_copy_([scale], [torch.full((N,), NEW, device="cuda")])


WRITES = {"cache": [copy], "cast": [cast], "fill": [fill], "foreach": [foreach],
          "static": [copy, cast, fill, foreach], "output": [], "cleared": []}


def load(model, watch, mode):
    """@return what was said of the reload that loads the scale."""
    try:
        with arena.reload(watch=watch) as r:
            for write in WRITES[mode]:
                write(model.scale)
            if mode == "cleared":
                model.out.zero_()
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
    if mode in ("output", "cleared"):
        model.scale = None
    watch = arena.watch(model, required=True)
    print("loaded:", load(model, watch, mode))
    graph.replay()
    torch.cuda.synchronize()
    print("after the replay:", model.out[0].item())
    del graph
    print("without the graph:", load(model, watch, mode))


main(sys.argv[1])
