#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Add up Meson's test logs: what the tests that failed had to say, then 'N passed, N failed,
N skipped'; exit 1 on any failure.

Usage: count-tests.py BROKEN_BUILDS TESTLOG.json...   (Meson hides the runners' closing lines.)
"""
import json
import sys

GOOD = {"OK", "EXPECTEDFAIL"}
SKIP = {"SKIP", "IGNORED"}
LINES_MAX = 15          # of each stream of a test


def tell(path, test):
    """What passed and the headings of TAP are no reason."""
    print(f"-- {test['name']}: {test['result']}, exit {test.get('returncode')} ({path})")
    for stream in ("stdout", "stderr"):
        lines = [line for line in (test.get(stream) or "").splitlines()
                 if line.strip() and not line.startswith(("ok ", "#"))]
        for line in lines[-LINES_MAX:]:
            print("   ", line[:200])


def main() -> int:
    failed = int(sys.argv[1])
    passed = skipped = 0
    for path in sys.argv[2:]:
        try:
            lines = open(path, encoding="utf-8").read().splitlines()
        except OSError as error:
            print(f"count-tests: {path}: {error.strerror}: the build ran no test")
            failed += 1
            continue
        for line in lines:
            try:
                test = json.loads(line)
            except ValueError:
                print(f"count-tests: {path}: a line is cut short: its test did not end")
                failed += 1
                continue
            result = test["result"]
            if result in GOOD:
                passed += 1
            elif result in SKIP:
                skipped += 1
            else:
                failed += 1
                tell(path, test)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


sys.exit(main())
