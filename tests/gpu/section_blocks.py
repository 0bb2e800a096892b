# SPDX-License-Identifier: Apache-2.0
"""The section `blocks` of run.py: what moves inside PyTorch's caching allocator is found there, what
is well stays silent, and what the events cost."""
import pathlib
import re
import statistics
import tempfile

import overhead

SECTION = "blocks"
COST_SECONDS = 65               # at most, after some 10 in which PyTorch is loaded
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


# How the reload ends that loads the scale, and what the replay after it gives.
BORN = {"cache": {"strict": "refused: .*born-in-capture. scale ", "warn": "fail born-in-capture$"},
        "static": {"strict": "pass$", "warn": "pass$"},
        "output": {"strict": "pass$", "warn": "pass$"}}
BORN_OUT = {"cache": "2.0", "static": "3.0", "output": "2.0"}


def run_born(suite):
    for mode, ends in BORN.items():
        for gate, end in ends.items():
            result = suite.run(suite.python("torch_born.py", mode), gate)
            wanted = [f"^loaded: {end}", f"^after the replay: {BORN_OUT[mode]}$",
                      "^without the graph: pass$"]
            problems = [f"did not say '{w}' (exit {result.code}, {last_line(result.out)} "
                        f"{last_line(result.err)})" for w in wanted
                        if not re.search(w, result.out, re.M)]
            said = re.search("^loaded: (.*)$", result.out, re.M)
            suite.add(SECTION, f"born in a capture, {mode}, {gate}",
                      None if "ModuleNotFoundError" in result.err else problems,
                      said[1] if said else "")


def run_cost(suite):
    with tempfile.TemporaryDirectory(prefix="arena-") as directory:
        def start(under):
            return overhead.Parent(suite.python("torch_overhead.py"),
                                   suite.environment("strict" if under else None, directory, None),
                                   directory)
        try:
            ratios, samples = overhead.take_pairs(start, COST_SECONDS)
        except overhead.Failed as failed:
            missing = "ModuleNotFoundError" in str(failed)
            suite.add(SECTION, "cost", None if missing else [str(failed)])
            return
        reports = len(list(pathlib.Path(directory).glob("*.jsonl")))
    pairs = max((len(under) for _, under in samples.values()), default=0)
    suite.add(SECTION, "cost", [] if pairs and reports >= pairs else
              [f"the library was at work in {reports} of {pairs} processes"],
              f"{pairs} pairs of processes")
    for name, (plain, under) in samples.items():
        over, said = overhead.judge(overhead.interval(ratios[name]), BUDGET_PERCENT[name])
        said = f"{statistics.median(plain):.0f} -> {statistics.median(under):.0f} ns, {said}"
        suite.figures[name] = {"plain_ns": plain, "shim_ns": under, "ratios": ratios[name]}
        suite.add(SECTION, name, [said] if over else [], said)


def run(suite):
    run_well(suite)
    run_faulty(suite)
    run_async(suite)
    run_born(suite)
    run_cost(suite)
