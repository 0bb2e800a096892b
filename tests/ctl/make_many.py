#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process that passes, with COUNT different findings of a SEVERITY: make_many.py COUNT SEVERITY"""
import json
import pathlib
import sys

DATA = pathlib.Path(__file__).resolve().parent / "data"
PER_LINE = 100


def main(argv):
    count, severity = int(argv[1]), argv[2]
    start, verify, *rest = (DATA / "pass.jsonl").read_text(encoding="utf-8").splitlines()
    finding = next(f for line in (DATA / "slots.jsonl").read_text(encoding="utf-8").splitlines()
                   for f in json.loads(line).get("findings", []) if isinstance(f, dict))
    print(start)
    for first in range(0, count, PER_LINE):
        line = json.loads(verify)
        line["findings"] = [{**finding, "severity": severity, "slot": f"slot{n}"}
                            for n in range(first, min(count, first + PER_LINE))]
        print(json.dumps(line, separators=(",", ":")))
    print("\n".join(rest))


if __name__ == "__main__":
    main(sys.argv)
