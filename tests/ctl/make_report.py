#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write a report of any size to stdout: make_report.py [--refs N] [--layers N] [--hostile] [--killed]

It tells of an engine whose third reload moved tensors under its decode graphs: a finding for each
layer, refs in all of them together. --hostile puts into every name what must not become markup, a
control sequence or another order of text. --killed leaves the exit line out. The same arguments give
the same bytes.
"""
import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_NS = 1_795_980_000_000_000_000
MIB = 1 << 20
TENSORS = ["qkv_proj.weight", "qkv_proj.scales", "o_proj.weight", "gate_up_proj.weight",
           "down_proj.weight", "down_proj.g_idx", "workspace"]
KERNELS = ["_ZN4vllm6MarlinI13__nv_bfloat16Li4ELi256EEEvPK4int4S3_PS1_S3_iii",
           "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
           "_ZN4vllm18paged_attention_v2ItLi128EEEvPT_PKS1_PKi", "triton_poi_fused_add_rms_norm_0",
           "nvjet_tst_128x64_64x8_2x1_v_bz_TNT"]
HOSTILE = ["</script><script>document.title='owned'</script>", "<img src=x onerror=document.title='owned'>",
           "\x1b[31mred\x1b[0m", "\u202egnp.exe", "__proto__", "a\u0000b", "<!--<script>", "'\"&<>"]


def names(path, macro):
    text = (ROOT / path).read_text(encoding="utf-8")
    return re.findall(rf'^{macro}\(\w+,\s*"([^"]+)"', text, re.M)


class Report:
    def __init__(self, args):
        self.args, self.lines, self.stacks, self.generation = args, 0, 0, 0
        self.time_ns = START_NS
        self.counts = {}

    def name(self, text):
        self.lines += 1
        return f"{HOSTILE[self.lines % len(HOSTILE)]}{text}" if self.args.hostile else text

    def line(self, kind, /, **members):
        self.time_ns += 350_000
        head = {"schema": 1, "type": kind}
        if kind not in ("module", "stack"):
            head["time_ns"] = self.time_ns
        sys.stdout.write(json.dumps({**head, **members}, separators=(",", ":")) + "\n")

    def stack(self, *python):
        self.stacks += 1
        self.line("stack", id=self.stacks, frames=[[1, "0x41b5e"], [1, "0x146f3"], [2, "0x197746c"], [0, "0x7ffd0000"]],
                  python=[[f"/srv/engine/{file}", n, self.name(function)] for file, n, function in python])
        return self.stacks

    def memory(self, base, size, kind, opened, closed=0):
        self.generation += 1
        return {"base": hex(base), "size": size, "generation": self.generation, "kind": kind,
                "stack_open": opened, "stack_close": closed}

    def event(self, what, kind, address, size, serial, stack=0):
        self.line("event", tid=4242, event=what, what=kind, address=hex(address), size=size,
                  serial=serial, stack=stack)

    def count(self, kind, severity):
        self.counts[kind, severity] = self.counts.get((kind, severity), 0) + 1

    def start(self):
        self.line("start", pid=4242, ppid=4200, host=self.name("gpu-07"), rank=0, exe="/usr/bin/python3.12",
                  argv0=self.name("/srv/engine/serve.py"), version="0.1.0", library="/usr/lib/libarena_shim.so",
                  unwinder="libunwind", ld_preload="/usr/lib/libarena_shim.so", driver_version=13000,
                  options={"ARENA_GATE": "warn", "ARENA_STACKS": "all", "ARENA_TRACE": "on"})
        self.line("module", id=1, path="/usr/lib/libc10_cuda.so", build_id="00" * 20)
        self.line("module", id=2, path=self.name("/usr/bin/python3.12"), build_id="")

    def reload(self, number, verdict, layers, refused, findings):
        end = self.time_ns + 41_000_000 * number
        self.line("reload", pid=4242, verdict=verdict, id=number, counts_as=verdict, aborted=False, why="",
                  unsafe=False, generation=number - (verdict != "pass"),
                  scope={"full": True, "layers": [], "sources": [], "role": ""},
                  layers={"committed": layers - refused, "refused": refused, "open": 0},
                  published_bytes=(layers - refused) * 96 * MIB, shadow_peak_bytes=96 * MIB,
                  begin_ns=self.time_ns, end_ns=end,
                  receipts={"sources": layers * 7, "parts": layers * 14, "bytes": layers * 192 * MIB},
                  manifest=True, caches=[{"name": "prefix", "flushed": True}], coverage={}, findings=findings,
                  only_layers=[], only_model=[])
        self.time_ns = end

    def exit(self):
        by_kind = {k: 0 for k in names("arena/findings.def", "FINDING")}
        by_severity = {"info": 0, "warn": 0, "error": 0}
        for (kind, severity), n in self.counts.items():
            by_kind[kind] += n
            by_severity[severity] += n
        coverage = {k: 0 for k in names("shim/coverage.def", "COVERAGE")}
        coverage.update({"host-node": 3, "raw-buffer": 2})
        self.line("exit", pid=4242, verdict="fail", counts_as="fail", findings=by_severity, findings_by_kind=by_kind,
                  findings_repeated=5, findings_left_out=0, lines_lost=0,
                  unproven=["kernel nodes whose packed buffer was read without a layout: 2"], coverage=coverage,
                  reload={"last": "pass", "id": 4, "generation": 3, "unsafe": False, "open": False},
                  ledger={"opened": 900, "closed": 300, "live": 600, "kinds": {"device": {"live": 600, "bytes": 1 << 34}}},
                  graphs={"execs_opened": 35, "nodes": 9100, "refs": 61000, "launches_stale": 4,
                          "nodes_by_kind": {"kernel": 9000, "memcpy": 100}},
                  cupti={"window": "auto", "cross": {"compared": 0, "agreed": 0, "skipped": 0, "nodes": 0,
                                                     "addresses": 0, "reasons": {}}},
                  noted={"raw-buffer": [self.name(KERNELS[4])]}, entries=["cuGraphLaunch", "cuMemAlloc_v2"])


def slot_finding(report, layer, tensor, old, now):
    def binding(r):
        return {"base": r["base"], "generation": r["generation"], "bytes": r["size"], "dtype": "<i4",
                "shape": [r["size"] // 16384, 4096], "strides": [4096, 1], "device": 0, "layout": "marlin",
                "stack_open": r["stack_open"], "stack_close": r["stack_close"]}

    report.count("moved", "error")
    return {"kind": "moved", "severity": "error", "title": "a slot is bound to other memory than live graphs refer to",
            "text": f"{layer}: [moved] {tensor}: was at {old['base']}, is at {now['base']}; 35 graph execs refer to it",
            "layer": layer, "slot": tensor, "source": "", "cache": "", "detail": "", "old": binding(old),
            "new": binding(now), "execs": 35, "inferred": False}


def stale(report, layer, tensor, old, now, refs, stack):
    """Refs of one slot, spread over graphs, nodes and kernels."""
    first = {"arena": layer, "slot": tensor, "slot_base": old["base"], "slot_now": now["base"]}
    rows = [{"exec": 1 + i % 35, "node": 3 + i // 35 % 260, "node_kind": "kernel",
             "kernel": report.name(KERNELS[i % len(KERNELS)]), "param": i % 6, "offset": 8 * (i % 3),
             "confidence": "struct" if i % 3 else "exact", "reason": "slot-moved",
             "value": hex(int(old["base"], 16) + 512 * (i % 64)), "old": old, "now": now, **first}
            for i in range(refs)]
    report.count("stale-launch", "error")
    report.line("finding", id=hex(0x1000 + old["generation"]), key=hex(0x2000 + now["generation"]), kind="stale-launch",
                severity="error", title="a graph launch refers to memory that is not what it captured",
                text=f"stale-launch: graph exec 1 refers to 1 place that has moved: slot {layer}/{tensor} moved "
                f"from {old['base']} to {now['base']}", refused=False, exec=1, handle="0x55deb513cf60", stack=stack,
                refs_total=len(rows), refs=rows)


def write(args):
    report = Report(args)
    report.start()
    load = report.stack(("loader.py", 88, "load_weights"), ("serve.py", 41, "main"))
    process = report.stack(("quant/marlin.py", 212, "process_weights_after_loading"), ("loader.py", 131, "reload_weights"),
                           ("serve.py", 77, "on_update"))
    step = report.stack(("runner.py", 310, "execute_model"), ("serve.py", 102, "decode_loop"))
    old, layers = {}, max(1, args.layers)
    for i in range(layers):
        layer = f"model.layers.{i}"
        for k, tensor in enumerate(TENSORS):
            base = 0x7f2a00000000 + i * 640 * MIB + k * 24 * MIB
            old[layer, tensor] = report.memory(base, (4 + 4 * k) * MIB, "device", load)
            report.event("alloc", "device", base, (4 + 4 * k) * MIB, report.generation, load)
    for graph in range(35):
        report.event("instantiate", "", 0, 260, graph + 1)
        report.event("launch", "", 0, 260, graph + 1)
    report.reload(1, "pass", layers, 0, [])
    report.time_ns += 640_000_000_000
    report.reload(2, "pass", layers, 0, [])
    report.time_ns += 655_000_000_000
    moved = []
    for i in range(layers):
        layer, tensor = f"model.layers.{i}", TENSORS[1 + i % (len(TENSORS) - 1)]
        before = old[layer, tensor]
        now = report.memory(0x7f3c40000000 + i * 128 * MIB, before["size"], "device", process)
        report.event("alloc", "device", int(now["base"], 16), now["size"], now["generation"], process)
        moved.append((report.name(layer), report.name(tensor), before, now))
    report.reload(3, "fail", layers, layers, [slot_finding(report, *m) for m in moved])
    for i, m in enumerate(moved):
        stale(report, *m, args.refs // layers + (i < args.refs % layers), step)
    report.time_ns += 3_000_000_000
    report.reload(4, "pass", layers, 0, [])
    if not args.killed:
        report.exit()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--refs", type=int, default=1000)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hostile", action="store_true")
    parser.add_argument("--killed", action="store_true")
    write(parser.parse_args())
