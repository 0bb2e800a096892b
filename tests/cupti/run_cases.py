#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All cases with CUPTI as a second source: the verdicts must not change, and the sources agree.

    run_cases.py --shim LIB --sim DIR --cupti DIR --recorder DIR --victims DIR MODE CASE...

Each form runs under strict with ARENA_CUPTI=MODE and the fake libcupti of --cupti. Besides what
run_case.py checks, CUPTI must have been there and the comparison must have been made: in sum.
Exit: 0 all as expected, 1 not.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "e2e"))
import run_case  # noqa: E402


def arguments_of(args, case, expect):
    return run_case.parse_arguments([
        "--shim", args.shim, "--sim", args.sim, "--libraries", args.cupti,
        "--libraries", args.recorder, "--gates", "strict",
        "--env", f"ARENA_CUPTI={args.mode}", "--victim", f"{args.victims}/v_{case}", str(expect)])


def run_form(one, form):
    """(problems or None, the sums of its exit line)"""
    r = run_case.run(one, form, "strict")
    if r.code == run_case.SKIP:
        return None, {}
    last = r.lines[-1] if r.lines else {}
    cupti = last.get("cupti", {})
    sums = {"windows": cupti.get("windows", 0), **{
        key: cupti.get("cross", {}).get(key, 0) for key in ("compared", "agreed", "addresses")}}
    return list(run_case.check(form, r, "strict")), sums


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("shim", "sim", "cupti", "recorder", "victims"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("mode")
    parser.add_argument("cases", nargs="+")
    args = parser.parse_args()
    jobs, bad, total = [], 0, collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for case in args.cases:
            expect = TESTS / "victims" / f"v_{case}.expect"
            one = arguments_of(args, case, expect)
            for form in run_case.parse_expect(expect.read_text()):
                jobs.append((f"{case} {form.name}", pool.submit(run_form, one, form)))
        for name, job in jobs:
            problems, sums = job.result()
            total.update(sums)
            total["forms"] += problems is not None
            bad += bool(problems)
            if problems:
                print(f"FAIL {name}", *problems, sep="\n     ")
    print(args.mode, dict(total))
    if not all(total[key] for key in ("windows", "compared", "addresses")):
        print("CUPTI was not there, or nothing was compared: this proves nothing")
        bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
