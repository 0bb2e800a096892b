#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Let each driver call of a story of reloads fail in turn; the story checks itself.

    run_slot_faults.py --shim LIB --sim DIR --victim PROGRAM

Most of the calls are made by the library, inside of put, commit and end. The program tries again
when a reload fails, and must come to its end. Where the call that fails is its own, it ends
there, and says which call it was.
Exit: 0 all as expected, 1 not.
"""
import argparse
import concurrent.futures
import os
import re
import sys

import run_faults

CALLS_MAX = 6               # of one entry point, evenly spaced: the rest are of the same kind
LOST_MAX = 17 << 20         # a block of shadows whose free the driver refused, and tables


def own_call_failed(fault, outcome):
    told = re.search(r": (cu\w+)\(.*: 2 CUDA_ERROR_OUT_OF_MEMORY", outcome.err)
    return outcome.code == 1 and told and fault.startswith(told[1])


def lost_bytes(outcome):
    told = re.search(r"^value lost (\d+)$", outcome.out, re.M)
    return int(told[1]) if told else 0


def check(args, fault):
    outcome = run_faults.run(args, "story", True, fault)
    if re.search(r"runtime error:|Sanitizer", outcome.err):
        yield f"a sanitizer speaks: {outcome.err.strip()}"
    elif outcome.code and not own_call_failed(fault, outcome):
        yield f"exit {outcome.code}: {outcome.err.strip()}"
    elif lost_bytes(outcome) > LOST_MAX:
        yield f"{lost_bytes(outcome)} bytes of device memory are lost"
    if outcome.kinds:
        yield f"findings {sorted(outcome.kinds)}"


def faults_of(calls):
    for row, count in sorted(calls.items()):
        step = max(1, count / CALLS_MAX)
        yield from (f"{row}:{int(i * step) + 1}" for i in range(int(count / step)))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("--shim", "--sim", "--victim"):
        parser.add_argument(name, required=True, type=os.path.realpath)
    args = parser.parse_args()
    good = run_faults.run(args, "story", True)
    bad = total = 0
    if good.code or lost_bytes(good) or "value lost 0" not in good.out:
        print(f"FAIL without a fault: {good.out} {good.err.strip()}")
        return 1
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = list(faults_of(good.calls))
        for fault, problems in zip(faults, pool.map(lambda f: list(check(args, f)), faults)):
            total += 1
            bad += bool(problems)
            for p in problems:
                print(f"FAIL SIM_FAIL={fault}: {p}")
    print(f"{total} faults, {bad} not as expected")
    return 1 if bad or not total else 0


if __name__ == "__main__":
    sys.exit(main())
