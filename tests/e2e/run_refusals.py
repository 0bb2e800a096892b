#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which driver calls of the library itself fail in programs that are well: tools that report
failing calls (compute-sanitizer) would lay them to the program.

    run_refusals.py --shim LIB --sim DIR --victims DIR [--counts] NAME...

Every form of each case that ends with verdict "pass" is run alone and with the library, on a
driver that says what each call returned. What fails only with the library must be the question
for one parameter too many, once a kernel; with --counts not even that: this driver tells how many
parameters a kernel has.
Exit: 0 all as expected, 1 not, 77 no form could be told.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import run_case

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT_S = 60
# A CUfunction that is none, or a parameter behind the last.
KNOWN = {("cuFuncGetParamInfo", 1), ("cuKernelGetParamInfo", 1), ("cuFuncGetParamInfo", 400),
         ("cuFuncGetParamCount", 400), ("cuFuncGetName", 400)}


def forms_of(names):
    for name in names:
        text = (HERE.parent / "victims" / f"v_{name}.expect").read_text()
        for form in run_case.parse_expect(text):
            verdict = form.verdict[0] if form.verdict else run_case.default_verdict(form)
            if verdict == "pass" and not form.findings and "racing" not in form.flags:
                yield name, form.name


def failures(args, name, form, shim):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ARENA_", "SIM_"))}
    env.update(LD_LIBRARY_PATH=args.sim, SIM_TRACE="1", ARENA_GATE="strict", ARENA_LOG="error",
               ARENA_REPORT="")
    env.pop("LD_PRELOAD", None)
    if shim:
        first = os.environ.get("ARENA_TEST_PRELOAD", "")
        env["LD_PRELOAD"] = " ".join(filter(None, [first, args.shim]))
    with tempfile.TemporaryDirectory(prefix="arena-") as folder:
        p = subprocess.run([pathlib.Path(args.victims, f"v_{name}"), form], env=env, cwd=folder,
                           text=True, timeout=TIMEOUT_S, capture_output=True, check=False)
    calls = re.findall(r"^sim: (\w+) = (\d+)$", p.stderr, re.M)
    kernels = sum(call in ("cuModuleGetFunction", "cuLibraryGetKernel") and rc == "0"
                  for call, rc in calls)
    return p.returncode, kernels, collections.Counter(
        (call, int(rc)) for call, rc in calls if rc != "0")


def problems_of(args, name, form):
    """None: this driver cannot tell the story."""
    code, _, alone = failures(args, name, form, False)
    if code == run_case.SKIP:
        return None
    under_code, kernels, under = failures(args, name, form, True)
    ours = under - alone
    problems = [f"exit {under_code}, alone {code}"] if under_code != code else []
    problems += [f"{call} fails with {rc}, {n} times" for (call, rc), n in sorted(ours.items())
                 if args.counts or (call, rc) not in KNOWN]
    if any(n > kernels for n in ours.values()):
        problems.append(f"{dict(ours)}, but the program has {kernels} kernels")
    return problems


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("shim", "sim", "victims"):
        parser.add_argument(f"--{name}", required=True, type=os.path.realpath)
    parser.add_argument("--counts", action="store_true")
    parser.add_argument("names", nargs="+")
    args = parser.parse_args()
    forms = list(forms_of(args.names))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda form: problems_of(args, *form), forms))
    told = bad = 0
    for form, problems in zip(forms, results):
        told += problems is not None
        for p in problems or []:
            bad += 1
            print(f"FAIL {' '.join(form)}: {p}")
    print(f"{told} forms")
    return 1 if bad else 0 if told else run_case.SKIP


if __name__ == "__main__":
    sys.exit(main())
