#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/count-tests.py makes of logs: exit 0 if every one is counted as it should be.

Usage: count.py COUNT_TESTS
"""
import json
import subprocess
import sys
import tempfile

GOOD = {"name": "a", "result": "OK", "stdout": "ok 1\n"}
BAD = {"name": "b", "result": "FAIL", "returncode": 1, "stdout": "ok 1\nnot ok 2\n# b\n"}
SILENT = {"name": "c", "result": "TIMEOUT", "stdout": None}
SKIPPED = {"name": "d", "result": "SKIP"}

# A log, builds that are broken, exit code, what is printed, what is not.
CASES = [
    ([GOOD, SKIPPED], 0, 0, ["1 passed, 0 failed, 1 skipped"], ["--"]),
    ([GOOD], 1, 1, ["1 passed, 1 failed, 0 skipped"], []),
    ([], 0, 1, ["0 passed, 0 failed, 0 skipped"], []),
    ([GOOD, BAD], 0, 1, ["-- b: FAIL, exit 1", "not ok 2", "1 passed, 1 failed"], ["    ok", "# b"]),
    ([SILENT, GOOD], 0, 1, ["-- c: TIMEOUT", "1 passed, 1 failed, 0 skipped"], []),
    ([GOOD, '{"name": "e", "resu'], 0, 1, ["cut short", "1 passed, 1 failed"], []),
    (None, 0, 1, ["the build ran no test", "0 passed, 1 failed"], []),
]


def complaints(program, log, broken, code, has, has_not):
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/testlog.json"
        if log is not None:
            with open(path, "w", encoding="utf-8") as f:
                f.writelines((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in log)
        p = subprocess.run([sys.executable, program, str(broken), path], text=True,
                           capture_output=True, check=False)
    if p.returncode != code or p.stderr:
        yield f"{log}: exit {p.returncode}: {p.stderr}"
    for text in has:
        if text not in p.stdout:
            yield f"{log}: no '{text}' in: {p.stdout}"
    for text in has_not:
        if text in p.stdout:
            yield f"{log}: '{text}' in: {p.stdout}"


def main() -> int:
    found = [c for case in CASES for c in complaints(sys.argv[1], *case)]
    for line in found:
        print(line)
    return 1 if found else 0


sys.exit(main())
