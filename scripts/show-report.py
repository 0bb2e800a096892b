#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print the findings of a report for a human: show-report.py REPORT.jsonl

Native frames are resolved with addr2line where the files are on this machine.
"""
import json
import shutil
import subprocess
import sys

FRAMES = 3


def resolve(path, offset):
    """A frame is where its call returns to: the call itself is just before it."""
    if shutil.which("addr2line"):
        call = hex(int(offset, 16) - 1)
        p = subprocess.run(["addr2line", "-fse", path, call], text=True, capture_output=True,
                           check=False)
        name, _, place = p.stdout.strip().partition("\n")
        if p.returncode == 0 and name not in ("", "??"):
            return f"{name} ({place})"
    return f"{path.rsplit('/', 1)[-1]}+{offset}"


def stack_text(stacks, modules, number):
    """Python frames where there are any: the native ones below them are the interpreter's."""
    stack = stacks.get(number, {})
    frames = [f"{function} ({file}:{n})" for file, n, function in stack.get("python", [])[:FRAMES]]
    frames = frames or [resolve(modules[m], offset) if m in modules else offset
                        for m, offset in stack.get("frames", [])[:FRAMES]]
    return " <- ".join(frames) or "not known"


def owner(label, r, stacks, modules):
    if not r:
        return
    print(f"    {label}: {r['base']}, {r['size'] / 2**20:g} MiB of {r['kind']} memory, "
          f"generation {r['generation']}")
    print(f"        allocated by {stack_text(stacks, modules, r['stack_open'])}")
    if r["stack_close"]:
        print(f"        freed by     {stack_text(stacks, modules, r['stack_close'])}")


def show(finding, stacks, modules):
    print(f"  [{finding['severity']}] {finding['text']}")
    for ref in finding["refs"]:
        print(f"    held by: graph exec {ref['exec']}, node {ref['node']}, "
              f"{ref['kernel'] or ref['node_kind']}, parameter {ref['param']}")
        owner("old", ref["old"], stacks, modules)
        owner("now", ref["now"], stacks, modules)


def show_slot(finding, stacks, modules):
    print(f"  [{finding['severity']}] {finding['text']}")
    for side in ("old", "new"):
        binding = finding[side]
        if binding and binding["stack_open"]:
            print(f"    {side}: {binding['base']}, allocated by "
                  f"{stack_text(stacks, modules, binding['stack_open'])}")
        if binding and binding["stack_close"]:
            print(f"        freed by {stack_text(stacks, modules, binding['stack_close'])}")


def main():
    stacks, modules = {}, {}
    with open(sys.argv[1], encoding="utf-8") as report:
        for line in map(json.loads, report):
            if line["type"] == "module":
                modules[line["id"]] = line["path"]
            elif line["type"] == "stack":
                stacks[line["id"]] = line
            elif line["type"] == "finding":
                show(line, stacks, modules)
            elif line["type"] in ("reload", "verify"):
                for finding in line["findings"]:
                    show_slot(finding, stacks, modules)
            elif line["type"] == "exit":
                print(f"  verdict of the process: {line['verdict']}")


if __name__ == "__main__":
    main()
