# SPDX-License-Identifier: Apache-2.0
"""The section `blocks` of run.py: what moves inside PyTorch's caching allocator is found there, what
is well stays silent, and what the events cost."""
import collections
import re

SECTION = "blocks"
PAIRS = 4                       # of processes, each some seconds: all within a minute
BUDGET_PERCENT = {"torch-empty": 5, "torch-decode-step": 1, "torch-decode-replay": 1}
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
# Not PYTORCH_NO_CUDA_MEMORY_CACHING: an allocation in a capture fails there, also without us.
ALLOCATORS = {"default": {}, "expandable": EXPANDABLE,
              "async": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}}
BLOCKS_SEEN = ("default", "expandable")


def last_line(text):
    return (text.strip().splitlines() or [""])[-1][:200]


def exits(result):
    return [line for line in result.lines if line["type"] == "exit"]


def run_well(suite):
    for program, arguments in (("torch_blocks.py", ["healthy"]), ("torch_pool40.py", [])):
        for name in BLOCKS_SEEN:
            suite.add(SECTION, *suite.stock_program(
                f"{program} {' '.join(arguments)}, {name}", suite.python(program, *arguments),
                ALLOCATORS[name]))


def problems_of(suite, result, gate, mode):
    """A stale launch names the range w, as a block; strict refuses it before a wrong token."""
    problems = suite.caught(result, "w")
    kinds = {ref["old"]["kind"] for line in result.lines if line.get("kind") == "stale-launch"
             for ref in line["refs"]}
    if kinds != {"block"}:
        problems.append(f"{gate}: it rests on {' '.join(sorted(kinds)) or 'nothing'}, not on blocks")
    warned = [line for line in result.lines if line.get("kind") == "freed-while-referenced"]
    if not warned:
        problems.append(f"{gate}: nothing was said of the free")
    if gate == "strict":
        wanted = ["refused:"] + (["no wrong token True", "captured again True"]
                                 if mode == "rebound" else [])
        problems += [f"strict: did not say '{w}' (exit {result.code}, {last_line(result.out)} "
                     f"{last_line(result.err)})" for w in wanted if w not in result.out]
    return problems


def run_faulty(suite):
    for mode in ("rebound", "workspace"):
        for name in BLOCKS_SEEN:
            problems, said = [], ""
            for gate in ("strict", "warn"):
                result = suite.run(suite.python("torch_blocks.py", mode), gate, ALLOCATORS[name])
                if "ModuleNotFoundError" in result.err:
                    problems = None
                    break
                problems += problems_of(suite, result, gate, mode)
                refused = re.search(r"^refused: .*$", result.out, re.M)
                said = refused[0] if refused else said
            suite.add(SECTION, f"{mode}, {name}", problems, said)


def run_async(suite):
    """This allocator tells no blocks: no launch is stale. (Its frees are the driver's, and a tensor
    that goes before its graph is told at once.)"""
    result = suite.run(suite.python("torch_blocks.py", "healthy"), "warn", ALLOCATORS["async"])
    found = [line["text"] for line in result.lines if line.get("kind") == "stale-launch"]
    missing = "ModuleNotFoundError" in result.err
    suite.add(SECTION, "healthy, async", None if missing or result.code else found,
              f"exit {result.code} {last_line(result.err) if result.code else ''}"
              f"{'/'.join(e['verdict'] for e in exits(result))}")


def run_cost(suite):
    plain, under, lines = collections.defaultdict(list), collections.defaultdict(list), []
    for _ in range(PAIRS):
        for gate, samples in ((None, plain), ("strict", under)):
            result = suite.run(suite.python("torch_block_cost.py"), gate)
            lines = result.lines or lines
            if "ModuleNotFoundError" in result.err:
                suite.add(SECTION, "cost", None)
                return
            for name, ns in re.findall(r"^measure (\S+) (\S+)$", result.out, re.M):
                samples[name].append(float(ns))
    for name, samples in plain.items():
        a, b = min(samples), min(under[name] or [float("inf")])
        percent = 100 * (b / a - 1)
        suite.figures[name] = {"plain_ns": samples, "shim_ns": under[name]}
        problems = [] if percent <= BUDGET_PERCENT[name] else \
            [f"{a:.0f} -> {b:.0f} ns, {percent:+.1f} %, budget {BUDGET_PERCENT[name]} %"]
        suite.add(SECTION, name, problems, f"{a:.0f} -> {b:.0f} ns, {percent:+.1f} %")
    if not plain:
        suite.add(SECTION, "cost", ["no figures"])


def run(suite):
    run_well(suite)
    run_faulty(suite)
    run_async(suite)
    run_cost(suite)
