#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The stories that are shown: test_demo.py --shim LIB --sim DIR --victim v_demo --engine ENGINE
                                            --arenactl PROGRAM

v_demo, the smallest engine: alone it serves a wrong token; watched it still does, and the report
names what happened; guarded it is refused. arenactl turns the report into words. The same for
what scripts/demo.sh runs of the decode engine, and over arenas.
"""
import argparse
import os
import subprocess
import sys
import tempfile

ENGINE = ["--family=mla", "--reloads=1", "--pressure"]
# Gate, further options, exit code, what is said of the reload, whether it serves what it should.
STEPS = [
    (None, [], 0, "reload 1 unchecked", False),
    ("warn", [], 0, "reload 1 warned", False),
    ("strict", [], 3, "reload 1 refused", None),
    ("strict", ["--silent"], 3, "serve 1 refused 401", None),
    ("strict", ["--storage=arena"], 0, "reload 1 pass", True),
]
WRONG, REFUSED = "WRONG, and nothing said so", "returned 401 (CUDA_ERROR_ILLEGAL_STATE)"


def run(args, command, gate, report):
    env = {k: v for k, v in os.environ.items() if not k.startswith("ARENA_")}
    env.update(LD_LIBRARY_PATH=args.sim, ARENA_GATE=gate or "warn", ARENA_REPORT=report)
    if gate:
        first = os.environ.get("ARENA_TEST_PRELOAD", "")
        env["LD_PRELOAD"] = " ".join(filter(None, [first, args.shim]))
    p = subprocess.run(command, env=env, text=True, capture_output=True, check=False)
    return p.returncode, p.stdout


def show(args, report, wanted):
    shown = subprocess.run([args.arenactl, "report", "-v", report], text=True,
                           capture_output=True, check=False)
    for words in wanted:
        if words not in shown.stdout:
            yield f"no '{words}' in:\n{shown.stdout}{shown.stderr}"


def check_engine(args, report):
    right = run(args, [args.engine, "--family=mla", "--seed=2"], None, "")[1]
    right = right.partition("serve 0 ")[2].splitlines()[0]
    for gate, options, wanted, words, serves in STEPS:
        code, out = run(args, [args.engine, *ENGINE, *options], gate,
                        report if gate == "warn" else "")
        served = f"serve 1 {right}" in out if "serve 1 batch" in out else None
        if code != wanted or words not in out or served != serves:
            yield f"engine, gate {gate} {options}: exit {code}, serves {served}:\n{out}"
    yield from show(args, report, ("model.layers.0.W_UK_T", "moved", "stale-launch", "decode_bmm"))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("--shim", "--sim", "--victim", "--engine", "--arenactl"):
        parser.add_argument(name, required=True, type=os.path.realpath)
    args = parser.parse_args()
    problems = []
    with tempfile.TemporaryDirectory(prefix="arena-") as directory:
        report = f"{directory}/report.jsonl"
        for gate, words in ((None, WRONG), ("warn", WRONG), ("strict", REFUSED)):
            code, out = run(args, [args.victim], gate, report if gate == "warn" else "")
            if code != 3 or words not in out:
                problems.append(f"gate {gate}: exit {code}, no '{words}' in:\n{out}")
        problems += show(args, report, (
            "freed-while-referenced", "stale-launch", "k_acc", "allocated by", "freed by",
            "load_weights", "fail: a graph launch refers to memory"))
        problems += check_engine(args, f"{directory}/engine.jsonl")
    print("\n".join(problems) or "ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
