#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ids of findings are the same in another run: test_ids.py ARENACTL SHIM SIM-DIR VICTIM...

Each form of each victim is run twice, the second time with other addresses, another pid and another
environment. arenactl must read both reports without a complaint, and find the same (kind, id).
"""
import csv
import os
import pathlib
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "e2e"))
import run_case  # noqa: E402

# Launched by several threads, or not defined by the program: what is found may differ.
LEAVE_OUT = {"racing", "unordered"}


def run(victim, form, shim, sim, folder, extra):
    report = pathlib.Path(folder, "report.jsonl")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ARENA_", "SIM_"))}
    first = os.environ.get("ARENA_TEST_PRELOAD", "")
    env.update(LD_PRELOAD=" ".join(filter(None, [first, shim])), LD_LIBRARY_PATH=sim,
               ARENA_GATE="strict", ARENA_REPORT=str(report), **extra)
    p = subprocess.run([victim, form], env=env, cwd=folder, text=True, capture_output=True,
                       timeout=120, check=False)
    return None if p.returncode == run_case.SKIP or not report.exists() else report


def findings(arenactl, report):
    p = subprocess.run([arenactl, "report", "-a", "--no-symbols", "--format=csv", "-f", "kind,id", report],
                       text=True, capture_output=True, check=False)
    if p.returncode or p.stderr:
        raise ValueError(f"arenactl report returned {p.returncode}: {p.stderr}")
    return sorted({tuple(row.values()) for row in csv.DictReader(p.stdout.splitlines())})


def compare(arenactl, shim, sim, victim, form):
    """None: cannot be told here; else the findings of two runs."""
    answers = []
    for extra in ({}, {"ARENA_STACKS": "off", "FILLER": "x" * 5000}):
        with tempfile.TemporaryDirectory(prefix="arena-") as folder:
            report = run(victim, form.name, shim, sim, folder, extra)
            if report is None:
                return None
            answers.append(findings(arenactl, report))
    return answers


def main(argv):
    arenactl, shim, sim, *victims = map(os.path.realpath, argv[1:])
    bad = compared = 0
    for victim in victims:
        expect = TESTS / "victims" / (pathlib.Path(victim).name + ".expect")
        forms = run_case.parse_expect(expect.read_text()) if expect.exists() else []
        for form in forms:
            answers = None if LEAVE_OUT & form.flags else compare(arenactl, shim, sim, victim, form)
            if answers is None:
                continue
            compared += len(answers[0])
            if answers[0] != answers[1]:
                bad += 1
                print(f"{pathlib.Path(victim).name} {form.name}: the ids differ\n"
                      f"    {answers[0]}\n    {answers[1]}")
    print(f"{compared} findings compared")
    return 1 if bad or not compared else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
