# SPDX-License-Identifier: Apache-2.0
"""The sections `blocks` and `blocks_times` of run.py: what moves inside PyTorch's caching allocator is
found there, and what is well stays silent; what the events cost."""
import re

import overhead

SECTION = "blocks"
# Further variants that COST_ALSO may name: is it the events, or what a window of CUPTI left behind?
COST_ALSO = {"cupti-off": {"ARENA_CUPTI": "off"}, "blocks-off": {"ARENA_BLOCKS": "off"}}
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


# How the reload ends that loads the scale. The replay after it gives what was loaded, if the scale
# is not the graph's own.
BORN = {"cache": {"strict": "refused: .*born-in-capture. scale ", "warn": "fail born-in-capture$"},
        "static": {"strict": "pass$", "warn": "pass$"},
        "output": {"strict": "pass$", "warn": "pass$"}}
BORN.update((mode, {"strict": "pass born-in-capture$", "warn": "pass born-in-capture$"})
            for mode in ("cast", "fill", "foreach", "cleared"))


def run_born(suite):
    for mode, ends in BORN.items():
        for gate, end in ends.items():
            result = suite.run(suite.python("torch_born.py", mode), gate)
            wanted = [f"^loaded: {end}", f"^after the replay: {'3.0' if mode == 'static' else '2.0'}$",
                      "^without the graph: pass$"]
            problems = [f"did not say '{w}' (exit {result.code}, {last_line(result.out)} "
                        f"{last_line(result.err)})" for w in wanted
                        if not re.search(w, result.out, re.M)]
            said = re.search("^loaded: (.*)$", result.out, re.M)
            suite.add(SECTION, f"born in a capture, {mode}, {gate}",
                      None if "ModuleNotFoundError" in result.err else problems,
                      said[1] if said else "")


def run_times(suite):
    command = suite.python("torch_overhead.py")
    try:
        also = overhead.asked_also(COST_ALSO)
        samples, reports = overhead.compare(
            suite, [overhead.Variant("plain", command, None),
                    *(overhead.Variant(name, command, "strict", COST_ALSO.get(name, {}))
                      for name in ("strict", *also))],
            overhead.asked_number("COST_SECONDS", overhead.SECONDS),
            overhead.asked_number("COST_GROUPS", overhead.GROUPS))
    except overhead.Failed as failed:
        missing = "ModuleNotFoundError" in str(failed)
        suite.add(SECTION, "cost", None if missing else [str(failed)])
        return
    tell_groups(suite, samples, reports["strict"])
    for name, groups in samples.items():
        over, said = overhead.tell(groups, "strict", "plain", BUDGET_PERCENT[name])
        suite.figures[name] = groups
        suite.add(SECTION, name, [said] if over else [], said)
        for other in also:
            suite.add(SECTION, f"{name}, {other}", [], overhead.tell(groups, other, "plain")[1])


def tell_groups(suite, samples, reports):
    at_work = sum(any(line["type"] == "exit" for line in lines) for lines in reports)
    problems = [] if at_work == len(reports) else \
        [f"the library was at work in {at_work} of {len(reports)} processes"]
    problems += [f"cut short: {samples.failed}"] if samples.failed else []
    suite.add(SECTION, "cost", problems, f"{len(reports)} groups of processes, {samples.cores}")
    for variant, uses in samples.uses.items():
        suite.add(SECTION, f"cost, {variant}", [], uses)


def run(suite):
    run_well(suite)
    run_faulty(suite)
    run_async(suite)
    run_born(suite)
