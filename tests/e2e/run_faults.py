#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Let each driver call of one story fail in turn, with and without the library.

    run_faults.py --shim LIB --sim DIR --victim PROGRAM

For every call that the program makes itself: what it prints and how it ends must be the same with
the library and without it (the buggy form: the same up to the launch that is refused). For every
call that only the library makes: the program must not notice. In no run may the library crash,
or report what the story does not contain.
Exit: 0 all as expected, 1 not.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TIMEOUT_S = 60
ALLOWED = {"healthy": set(), "buggy": {"freed-while-referenced", "stale-launch"}}
REFUSED = "call cuGraphLaunch 401"

Outcome = collections.namedtuple("Outcome", "code out err kinds calls")


def run(args, form, shim, fault=None):
    with tempfile.TemporaryDirectory(prefix="arena-") as directory:
        counts = pathlib.Path(directory, "counts")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("ARENA_", "SIM_"))}
        env.update(LD_LIBRARY_PATH=args.sim, SIM_COUNTS=str(counts), ARENA_GATE="strict",
                   ARENA_REPORT=f"{directory}/%p.jsonl", ARENA_LOG="error")
        env.pop("LD_PRELOAD", None)
        if shim:
            first = os.environ.get("ARENA_TEST_PRELOAD", "")
            env["LD_PRELOAD"] = " ".join(filter(None, [first, args.shim]))
        if fault:
            env["SIM_FAIL"] = fault
        p = subprocess.run([args.victim, form], env=env, cwd=directory, text=True,
                           timeout=TIMEOUT_S, capture_output=True, check=False)
        return Outcome(p.returncode, p.stdout, p.stderr, finding_kinds(directory), calls(counts))


def finding_kinds(directory):
    kinds = set()
    for report in pathlib.Path(directory).glob("*.jsonl"):
        for line in report.read_text().splitlines():
            kinds.add(json.loads(line).get("kind"))
    return kinds - {None}


def calls(path):
    if not path.exists():
        return {}
    pairs = (line.split()[:2] for line in path.read_text().splitlines())
    return {name: int(count) for name, count in pairs if int(count)}


def until_refused(out):
    return out.split(REFUSED)[0]


def compare(form, plain, under):
    """The program's view: the same in both, as far as nothing was refused."""
    if REFUSED in under.out:
        if until_refused(under.out) != until_refused(plain.out)[:len(until_refused(under.out))]:
            yield "it said something else before the refused launch"
    elif (plain.code, plain.out) != (under.code, under.out):
        yield f"exit {plain.code} -> {under.code}; {difference(plain.out, under.out)}"
    yield from health(form, under)


def health(form, under):
    """What must hold in every run with the library."""
    if under.code < 0:
        yield f"ended by signal {-under.code}: {under.err.strip()}"
    if re.search(r"runtime error:|Sanitizer", under.err):
        yield f"a sanitizer speaks: {under.err.strip()}"
    if under.kinds - ALLOWED[form]:
        yield f"invented: {sorted(under.kinds - ALLOWED[form])}"


def difference(a, b):
    for x, y in zip(a.splitlines() + ["<end>"], b.splitlines() + ["<end>"]):
        if x != y:
            return f"'{x}' -> '{y}'"
    return "the same output"


def check_own(args, form, fault):
    """A call of the program fails."""
    return list(compare(form, run(args, form, False, fault), run(args, form, True, fault)))


def check_hidden(args, form, fault, good):
    """A call that only the library makes fails."""
    under = run(args, form, True, fault)
    if (good.code, good.out) != (under.code, under.out) and REFUSED not in good.out:
        return [f"the program noticed: {difference(good.out, under.out)}"]
    return list(health(form, under))


def jobs_of(args, form):
    """Yields (fault, function): every nth call of every row."""
    plain, good = run(args, form, False), run(args, form, True)
    for row, count in plain.calls.items():
        for n in range(1, count + 1):
            fault = f"{row}:{n}"
            yield fault, lambda f=fault: check_own(args, form, f)
    for row, count in good.calls.items():
        if row not in plain.calls:
            for n in range(1, count + 1):
                fault = f"{row}:{n}"
                yield fault, lambda f=fault: check_hidden(args, form, f, good)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("--shim", "--sim", "--victim"):
        parser.add_argument(name, required=True, type=os.path.realpath)
    args = parser.parse_args()
    bad = total = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for form in ALLOWED:
            running = [(fault, pool.submit(job)) for fault, job in jobs_of(args, form)]
            for fault, job in running:
                problems = job.result()
                total += 1
                bad += bool(problems)
                for p in problems:
                    print(f"FAIL {form} SIM_FAIL={fault}: {p}")
    print(f"{total} faults, {bad} not as expected")
    return 1 if bad or not total else 0


if __name__ == "__main__":
    sys.exit(main())
