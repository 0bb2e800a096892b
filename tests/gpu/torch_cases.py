#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Public reports in their PyTorch form, each with its legal twin: torch_cases.py [CASE...]

A case is a small module that is watched, graphs over its tensors, and a reload that goes wrong (or
right). Checked are the findings by name, and whether each replay is reported - from the report
file - and refused, as ARENA_GATE has it. Exit 1: a case came out otherwise.
"""
import gc
import json
import os
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import arena  # noqa: E402

SIDE = 1 << 10
N = SIDE * SIDE                     # floats: a block, several of which share a segment
SEGMENT = 16 << 20                  # floats: a segment of its own
STRICT = os.environ.get("ARENA_GATE") == "strict"
# Why a launch over a tensor that was replaced is stale: its block may be somebody else's by now.
GONE = {"freed", "generation", "slot-moved", "unmapped"}


def new(value=1.0, count=N):
    return torch.full((count,), float(value), device="cuda")


class Thing:
    """An object that is no module: a kernel, a wrapper, a quantisation config."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Report:
    """What the library wrote since the last look."""

    def __init__(self):
        name = os.environ["ARENA_REPORT"].replace("%p", str(os.getpid()))
        self.path, self.at = pathlib.Path(name), 0

    def findings(self):
        with open(self.path, encoding="utf-8") as f:
            f.seek(self.at)
            text = f.read()
            self.at = f.tell()
        return [line for line in map(json.loads, text.splitlines()) if line["type"] == "finding"]


class Case:
    def __init__(self, name):
        self.module, self.name = torch.nn.Module(), name
        self.out = torch.zeros(N, device="cuda")
        self.report = Report()

    def watch(self):
        """@return {"kind slot"} of the errors that there are since all was well."""
        w = arena.watch(self.module, self.name, required=True)
        return {f"{f['kind']} {f['slot']}" for f in w.findings if f["severity"] == "error"}

    def capture(self, *sources):
        """A graph that adds each source to out."""
        def run():
            for s in sources:
                self.out.add_(s[:N])
        run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        return graph

    def replay(self, graph, stale=0, again=False):
        """@param stale how many different addresses the report must name; 0: it must be silent.
        @param again the report has said it before, and need not repeat it."""
        self.report.findings()
        try:
            graph.replay()
            torch.cuda.synchronize()
            refused = False
        except RuntimeError:
            refused = True
        found = [f for f in self.report.findings() if f["kind"] == "stale-launch"]
        refs = {ref["value"]: ref["reason"] for f in found for ref in f["refs"]}
        self.same("refused", refused, bool(stale) and STRICT)
        self.same("stale addresses", len(refs) or stale * again, stale)
        self.same("reasons beyond", set(refs.values()) - GONE, set())

    def same(self, what, is_, wanted):
        if is_ != wanted:
            raise AssertionError(f"{what}: {is_}, not {wanted}")


# ---- faults, each with its twin that is well ----

def a01(c, fault):
    """The kernel object is rebuilt; a scale is copied back, the config keeps an orphan of it."""
    m = c.module
    m.w1_scale = torch.nn.Parameter(new(), requires_grad=False)
    m.quant_config, m.kernel = Thing(scale=m.w1_scale), Thing(ab_strides=new(8))
    c.watch()
    graph = c.capture(m.kernel.ab_strides, m.w1_scale)
    c.replay(graph)
    orphan = new(2)
    m.w1_scale.copy_(orphan)
    m.quant_config.scale = orphan
    if fault:
        m.kernel = Thing(ab_strides=new(8))
    c.same("findings", c.watch(), {"moved kernel.ab_strides"} if fault else set())
    c.replay(graph, stale=fault)


def a02(c, fault):
    """A lazily built wrapper is dropped; its workspace goes to another tensor."""
    m = c.module
    m.wrapper = Thing(workspace=new(4))
    c.watch()
    graph, base = c.capture(m.wrapper.workspace), m.wrapper.workspace.data_ptr()
    if fault:
        m.wrapper = None
        c.same("findings", c.watch(), {"missing wrapper.workspace"})
        others = [new(1e9)]
        c.replay(graph, stale=1)
        while len(others) == 1 or others[-1].data_ptr() == base:
            others.append(new(4))           # one that is surely elsewhere
        m.wrapper = Thing(workspace=others[-1])
        c.same("findings", c.watch(), {"moved wrapper.workspace"})
    else:
        m.wrapper.workspace.zero_()
        c.same("findings", c.watch(), set())
    c.replay(graph, stale=fault, again=True)


def a03(c, fault):
    """A derived tensor is rebound; an fp32 copy keeps its address, and its old value."""
    m = c.module
    m.kv = torch.nn.Parameter(new().view(SIDE, SIDE), requires_grad=False)
    m.W_UV, m.sinks = m.kv.t().contiguous(), new().bfloat16().float()
    c.watch()
    graph = c.capture(m.W_UV.view(-1), m.sinks)
    kept = m.W_UV
    m.kv.fill_(2)
    if fault:
        m.W_UV = m.kv.t().contiguous()
    else:
        m.W_UV.copy_(m.kv.t())
    c.same("findings", c.watch(), {"moved W_UV"} if fault else set())
    c.replay(graph, stale=fault)
    del kept


def a04(c, fault):
    """Nine scratch tensors in a list of the kernel; six are repaired in place, three are not."""
    m = c.module
    m.kernel = Thing(scratch=[new(i) for i in range(9)])
    c.watch()
    graph = c.capture(*m.kernel.scratch)
    old = list(m.kernel.scratch)
    m.kernel = Thing(scratch=[new(i) for i in range(9)])
    for i in range(6 if fault else 9):
        old[i].copy_(m.kernel.scratch[i])
        m.kernel.scratch[i] = old[i]
    del old
    c.same("findings", c.watch(),
           {f"moved kernel.scratch[{i}]" for i in (6, 7, 8)} if fault else set())
    c.replay(graph, stale=3 * fault)


def a05(c, fault):
    """A shuffled weight replaces the parameter: decode graphs read the old one, prefill the new."""
    m = c.module
    m.w13 = torch.nn.Parameter(new(), requires_grad=False)
    c.watch()
    graph = c.capture(m.w13)
    old = m.w13
    if fault:
        m.w13 = torch.nn.Parameter(new(2), requires_grad=False)
    else:
        m.w13.copy_(new(2))
    c.same("findings", c.watch(), {"moved w13"} if fault else set())
    c.out.add_(m.w13)                   # eager: nobody's business
    c.replay(graph, stale=fault)        # old memory is alive
    del old
    c.replay(graph, stale=fault, again=True)    # and now it is not


def a06(c, fault):
    """No slots at all: the weight is made anew elsewhere; capturing again cures it."""
    w = new(1, SEGMENT)
    graph = c.capture(w)
    c.replay(graph)
    if fault:
        del w
        torch.cuda.empty_cache()
        pad, w = new(0, SEGMENT), new(2, SEGMENT)
        c.replay(graph, stale=1)
        del graph
        gc.collect()
        graph = c.capture(w)
        del pad
    else:
        w.fill_(2)
    c.replay(graph)


def a07(c, fault):
    """contiguous() after each load gives another address, and the old one back to the cache."""
    m = c.module
    m.weight = torch.nn.Parameter(new().view(SIDE, SIDE), requires_grad=False)
    m.W_UV = m.weight.t().contiguous()
    c.watch()
    graph = c.capture(m.W_UV.view(-1))
    m.weight.fill_(2)
    fresh = m.weight.t().contiguous()
    if fault:
        m.W_UV = fresh
    else:
        m.W_UV.copy_(fresh)
    del fresh
    c.same("findings", c.watch(), {"moved W_UV"} if fault else set())
    c.replay(graph, stale=fault)


def a11(c, fault):
    """A buffer that an eager call with more tokens lets grow."""
    m = c.module
    m.zero_residual = new(0, N if fault else 8 * N)
    c.watch()
    graph = c.capture(m.zero_residual)
    if fault:
        m.zero_residual = new(0, 8 * N)
    c.same("findings", c.watch(),
           {"moved zero_residual", "respecified zero_residual"} if fault else set())
    c.replay(graph, stale=fault)


def a11_twin(c, fault):
    """A cache that is dropped and made again where it was: benign under its old name."""
    m = c.module
    m.k = new()
    c.watch()
    graph, base = c.capture(m.k), m.k.data_ptr()
    m.k = None
    m.k = new(2)
    if m.k.data_ptr() != base:
        return                          # the allocator chose another block
    c.same("findings", c.watch(), set())
    c.replay(graph)


def a14(c, fault):
    """An eager operation between two graphs returns fresh memory; the second reads the old."""
    m, source = c.module, new()
    first = c.capture(source)
    m.bridge = c.out * 2
    c.watch()
    second = c.capture(m.bridge)
    for step in range(3):
        c.replay(first)
        if fault:
            m.bridge = c.out * 2        # while the old one is alive: surely elsewhere
        else:
            m.bridge.copy_(c.out * 2)
        c.same("findings", c.watch(), {"moved bridge"} if fault else set())
        junk = torch.full_like(m.bridge, 9.0)
        c.replay(second, stale=fault)
        del junk
        if fault:
            break


def a33(c, fault):
    """The runtime sees the move and records anew; the old graph sleeps."""
    m = c.module
    m.param = new()
    c.watch()
    old_graph = c.capture(m.param)
    c.replay(old_graph)
    old = m.param
    m.param = new(2)
    c.watch()
    graph = c.capture(m.param)
    del old
    for _ in range(3):
        c.replay(graph)
    c.same("findings", c.watch(), set())
    if fault:
        c.replay(old_graph, stale=1)


CASES = {"A01": a01, "A02": a02, "A03": a03, "A04": a04, "A05": a05, "A06": a06, "A07": a07,
         "A11": a11, "A11-twin": a11_twin, "A14": a14, "A33": a33}


def main():
    wrong = 0
    for name in sys.argv[1:] or CASES:
        for fault in (True, False):
            form = f"{name} {'fault' if fault else 'well'}"
            try:
                with torch.no_grad():
                    CASES[name](Case(form.replace(" ", ".")), fault)
                print(f"ok {form}")
            except (AssertionError, RuntimeError) as error:
                wrong += 1
                print(f"WRONG {form}: {type(error).__name__}: {str(error).splitlines()[0]}")
            gc.collect()
            torch.cuda.empty_cache()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
