# SPDX-License-Identifier: Apache-2.0
"""The section `client` of run.py: the Python client on real models. An HF decoder through 200
reloads, one that moves what its graphs read, the same compiled; the gate over two processes of one
GPU; public reports in their PyTorch form."""
import re

SECTION = "client"
SKIP = 77
ONE_THREAD = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}


def last_line(text):
    return (text.strip().splitlines() or [""])[-1][:200]


def ended(result, wanted):
    """@return problems of a program that must say @wanted; None: it cannot run here."""
    if result.code == SKIP or "ModuleNotFoundError" in result.err:
        return None
    problems = [] if result.code == 0 else [f"exit {result.code} {last_line(result.err)}"]
    if not re.search(wanted, result.out, re.M):
        problems.append(f"did not say '{wanted}' but '{last_line(result.out)}'")
    return problems


def findings(result):
    """Texts of findings: those of launches and frees, and those in lines of reloads."""
    lines = [line for line in result.lines if line["type"] == "finding"]
    lines += [f for line in result.lines if line["type"] == "reload" for f in line["findings"]]
    return [f["text"] for f in lines]


def run_well(suite, mode, wanted):
    result = suite.run(suite.python("torch_client.py", mode), "strict", ONE_THREAD, timeout=180)
    problems = ended(result, wanted)
    if problems is not None:
        problems += [f"finding: {text}" for text in findings(result)[:3]]
    suite.add(SECTION, f"HF decoder, {mode}", problems,
              f"{last_line(result.out)}, {result.seconds:.0f} s")


def run_moved(suite, gate):
    # Blocks that are allocated outside of reloads have a stack only on request.
    result = suite.run(suite.python("torch_client.py", "moved"), gate, {"ARENA_STACKS": "all"},
                       timeout=120)
    strict = gate == "strict"
    problems = ended(result, r"^captured again: (\d+) of \1 equal$")
    if problems is None:
        suite.add(SECTION, f"HF decoder, moved, {gate}", None)
        return
    problems += ended(result, r"^the reload was " + ("refused" if strict else "reported"))
    problems += ended(result, r"^8 replays refused, 0 " if strict else r"^0 replays refused, ")
    moved = re.findall(r"^moved (\S+) (0x\w+) (0x\w+)$", result.out, re.M)
    for path, old, new in moved or [("no line", "0x0", "0x0")]:
        problems += find_slot(result, path, old, new)
    said = re.search(r"^\d+ replays refused.*$", result.out, re.M)
    suite.add(SECTION, f"HF decoder, moved, {gate}", problems,
              f"{len(moved)} found by path; {said[0] if said else ''}")
    suite.add(SECTION, f"HF decoder, Python stacks, {gate}", stack_problems(result, moved))


def moves(result, path):
    return [f for line in result.lines if line["type"] == "reload" for f in line["findings"]
            if (f["layer"], f["slot"], f["kind"]) == (path, "W_UV", "moved")]


def find_slot(result, path, old, new):
    """The reload names the slot with both addresses; a launch names it with kernel and parameter."""
    told = [f for f in moves(result, path) if f["severity"] == "error"]
    if not any((f["old"]["base"], f["new"]["base"]) == (old, new) for f in told):
        yield f"{path}: not in a reload's findings with {old} and {new}"
    refs = [ref for line in result.lines if line.get("kind") == "stale-launch"
            for ref in line["refs"] if (ref.get("arena"), ref.get("slot")) == (path, "W_UV")]
    if not any(ref["kernel"] and (ref["slot_base"], ref["slot_now"]) == (old, new)
               for ref in refs):
        yield f"{path}: no launch names it with kernel, {old} and {new}"


def stack_problems(result, moved):
    """Who made the old tensor, and who the new one, in Python."""
    stacks = {line["id"]: line for line in result.lines if line["type"] == "stack"}
    for path, _, _ in moved:
        told = moves(result, path)
        for side, function in (("old", "__init__"), ("new", "derive")):
            frames = [frame for f in told for frame in
                      stacks.get((f[side] or {}).get("stack_open"), {}).get("python", [])]
            if not any(f[0].endswith("torch_client.py") and f[2] == function for f in frames):
                return [f"{path}: the {side} one has no Python frame of {function}()"]
    return [] if moved else ["nothing moved"]


def run_gate(suite):
    for gate in ("warn", "strict"):
        result = suite.run(suite.python("torch_gate.py"), gate, timeout=240)
        problems = ended(result, "^ok dead rank 1")
        wrong = re.findall(r"^WRONG .*$", result.out, re.M)
        suite.add(SECTION, f"gate of two processes, {gate}",
                  None if problems is None else problems + wrong, f"{result.seconds:.0f} s")


def run_cases(suite):
    for gate in ("warn", "strict"):
        result = suite.run(suite.python("torch_cases.py"), gate, timeout=180)
        if "ModuleNotFoundError" in result.err:
            suite.add(SECTION, f"cases in PyTorch, {gate}", None)
            continue
        for word, name, text in re.findall(r"^(ok|WRONG) (\S+ \w+)(.*)$", result.out, re.M):
            suite.add(SECTION, f"{name}, {gate}", [] if word == "ok" else [text.lstrip(": ")])
        if not re.search(r"^(ok|WRONG) A33 well", result.out, re.M):
            suite.add(SECTION, f"cases in PyTorch, {gate}",
                      [f"exit {result.code} {last_line(result.err)}"])


def run(suite):
    run_well(suite, "healthy", r"^200 reloads in place: (\d+) of \1 steps equal, 2 different")
    run_well(suite, "compile", r"^compiled: (\d+) of \1 steps equal$")
    for gate in ("strict", "warn"):
        run_moved(suite, gate)
    run_gate(suite)
    run_cases(suite)
