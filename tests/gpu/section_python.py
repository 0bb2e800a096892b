# SPDX-License-Identifier: Apache-2.0
"""The section `python` of run.py: what stock PyTorch can say and use without a patch. NVTX ranges,
moves inferred with Python stacks, a MemPool on slots."""
import re

SECTION = "python"


def last_line(text):
    return (text.strip().splitlines() or [""])[-1][:200]


def missing(result):
    return "ModuleNotFoundError" in result.err


def inferred(result, old, new):
    """The finding of the reload that says it."""
    told = [f for line in result.lines if line["type"] == "reload" for f in line["findings"]
            if f["inferred"]]
    return next((f for f in told if f["old"]["base"] == old and f["new"]["base"] == new), None)


def functions(result, binding):
    stacks = {line["id"]: line for line in result.lines if line["type"] == "stack"}
    return [name for _, _, name in stacks.get(binding["stack_open"], {}).get("python", [])]


def nvtx_problems(result, gate):
    reloads = [line for line in result.lines if line["type"] == "reload"]
    moved = re.search(r"^moved (0x\w+) (0x\w+)$", result.out, re.M)
    if result.code or not moved:
        return [f"exit {result.code} {last_line(result.err)}"]
    if not reloads:
        return ["the NVTX range of the reload was not seen"]
    f = inferred(result, moved[1], moved[2])
    if not f:
        texts = [f["text"] for line in reloads for f in line["findings"]]
        return [f"no inferred move from {moved[1]} to {moved[2]}: {texts[:2]}"]
    problems = [f"the {side} one has no Python frame of derive(): {functions(result, f[side])}"
                for side in ("old", "new") if "derive" not in functions(result, f[side])]
    after = "after refused" if gate == "strict" else "after replayed"
    return problems + [f"did not say '{wanted}'" for wanted in ("before replayed 2.0", after,
                                                                "again replayed 6.0")
                       if wanted not in result.out]


def run_nvtx(suite, gate):
    # Blocks that are allocated outside of reloads have a stack only on request.
    result = suite.run(suite.python("torch_nvtx.py"), gate, {"ARENA_STACKS": "all"})
    suite.add(SECTION, f"NVTX, inferred moves, {gate}",
              None if missing(result) else nvtx_problems(result, gate), last_line(result.out))


def run_pool(suite, gate):
    result = suite.run(suite.python("torch_mempool.py"), gate)
    problems = [f"exit {result.code} {last_line(result.err)}"] if result.code else []
    problems += [f"did not say '{wanted}'" for wanted in ("first 4.0", "same place True",
                                                          "second 12.0")
                 if wanted not in result.out]
    problems += [f"finding: {line['text']}" for line in result.lines
                 if line["type"] == "finding"][:2]
    suite.add(SECTION, f"MemPool on slots, {gate}", None if missing(result) else problems,
              last_line(result.out))


def run(suite):
    for gate in ("warn", "strict"):
        run_nvtx(suite, gate)
        run_pool(suite, gate)
