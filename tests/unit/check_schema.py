#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Validate reports against reports/schema.json, and the schema against the program.

    check_schema.py SCHEMA --sample PROGRAM    a report with every type of line, then damaged ones
    check_schema.py SCHEMA REPORT...           reports from elsewhere

Exit: 0 valid, 1 not, 77 no python3-jsonschema.
"""
import argparse
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("skip: no python3-jsonschema")
    sys.exit(77)


def problems_of(validator, lines):
    for number, line in enumerate(lines, 1):
        for error in validator.iter_errors(line):
            where = "/".join(str(p) for p in error.absolute_path)
            yield f"line {number} ({line.get('type')}): {where}: {error.message}"
    yield from problems_of_order(lines)


def problems_of_order(lines):
    """What a line refers to is above it."""
    stacks, modules = {0}, {0}
    if not lines or lines[0]["type"] != "start":
        yield "the first line is not a start line"
    for number, line in enumerate(lines, 1):
        if line["type"] == "start":
            stacks, modules = {0}, {0}
        elif line["type"] == "module":
            modules.add(line["id"])
        elif line["type"] == "stack":
            stacks.add(line["id"])
            if not {frame[0] for frame in line["frames"]} <= modules:
                yield f"line {number}: a frame in an unknown module"
        else:
            if not set(stack_ids(line)) <= stacks:
                yield f"line {number}: an unknown stack"


def stack_ids(line):
    yield line.get("stack", 0)
    for of, sides in (("refs", ("old", "now")), ("findings", ("old", "new"))):
        listed = line.get(of, [])
        for one in listed if isinstance(listed, list) else []:
            for side in sides:
                if one[side]:
                    yield one[side]["stack_open"]
                    yield one[side]["stack_close"]


def damaged(line):
    """Copies of one line, each with one thing wrong."""
    for key in line:
        without = copy.deepcopy(line)
        del without[key]
        yield f"without {key}", without
        if key not in ("schema", "type"):
            other = copy.deepcopy(line)
            other[key] = {"wrong": []} if not isinstance(line[key], dict) else "wrong"
            yield f"{key} of another type", other
    yield "an unknown key", {**line, "unknown": 1}
    yield "another schema", {**line, "schema": 2}
    if line.get("refs"):
        for key in line["refs"][0]:
            other = copy.deepcopy(line)
            del other["refs"][0][key]
            yield f"a ref without {key}", other
    for key in ("address", "handle", "key"):
        if key in line:
            yield f"{key} without 0x", {**line, key: "7f00"}


def check_damaged(validator, lines):
    for line in lines:
        for what, bad in damaged(line):
            if validator.is_valid(bad):
                yield f"{line['type']}: accepted {what}"


def check_names(schema, names):
    """The lists in the schema are those of the program."""
    for key, expected in names.items():
        listed = schema["$defs"][key]["enum"]
        if sorted(listed) != sorted(expected):
            yield f"$defs/{key} is {sorted(listed)}, the program has {sorted(expected)}"


def read(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines() if line]


def check_sample(schema, validator, program):
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "sample.jsonl")
        out = subprocess.run([program, path], check=True, stdout=subprocess.PIPE, text=True).stdout
        lines = read(path)
    types = {line["type"] for line in lines}
    missing = set(schema["properties"]["type"]["enum"]) - types
    if missing:
        yield f"the sample has no line of type {sorted(missing)}"
    yield from problems_of(validator, lines)
    yield from check_damaged(validator, lines)
    yield from check_names(schema, json.loads(out))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--sample")
    parser.add_argument("schema")
    parser.add_argument("reports", nargs="*")
    args = parser.parse_args()
    schema = json.loads(pathlib.Path(args.schema).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    problems = list(check_sample(schema, validator, args.sample)) if args.sample else []
    for report in args.reports:
        problems += [f"{report}: {p}" for p in problems_of(validator, read(report))]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
