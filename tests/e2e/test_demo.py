#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The story of scripts/demo.sh: test_demo.py --shim LIB --sim DIR --victim v_demo

Alone the engine serves a wrong token; watched it still does, and the report names what happened;
guarded it is refused. show-report.py turns the report into words.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WRONG, REFUSED = "WRONG, and nothing said so", "returned 401 (CUDA_ERROR_ILLEGAL_STATE)"


def engine(args, gate, report):
    env = {k: v for k, v in os.environ.items() if not k.startswith("ARENA_")}
    env.update(LD_LIBRARY_PATH=args.sim, ARENA_GATE=gate or "warn", ARENA_REPORT=report)
    if gate:
        first = os.environ.get("ARENA_TEST_PRELOAD", "")
        env["LD_PRELOAD"] = " ".join(filter(None, [first, args.shim]))
    p = subprocess.run([args.victim], env=env, text=True, capture_output=True, check=False)
    return p.returncode, p.stdout


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("--shim", "--sim", "--victim"):
        parser.add_argument(name, required=True, type=os.path.realpath)
    args = parser.parse_args()
    problems = []
    with tempfile.TemporaryDirectory(prefix="arena-") as directory:
        report = f"{directory}/report.jsonl"
        for gate, words in ((None, WRONG), ("warn", WRONG), ("strict", REFUSED)):
            code, out = engine(args, gate, report if gate == "warn" else "")
            if code != 3 or words not in out:
                problems.append(f"gate {gate}: exit {code}, no '{words}' in:\n{out}")
        shown = subprocess.run([sys.executable, ROOT / "scripts" / "show-report.py", report],
                               text=True, capture_output=True, check=False)
    for words in ("freed-while-referenced", "stale-launch", "k_acc", "allocated by", "freed by",
                  "verdict of the process: fail"):
        if words not in shown.stdout:
            problems.append(f"no '{words}' in:\n{shown.stdout}{shown.stderr}")
    print("\n".join(problems) or "ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
