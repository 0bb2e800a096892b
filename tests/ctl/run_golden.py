#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run the command lines of a session and compare what they print with what it says.

A session is read like a terminal: "$ COMMAND" runs in this folder; what follows are the lines of
stdout, then those of stderr, each after "! ", then "= CODE". Lines that begin with # before a
command are comments. Usage:

    run_golden.py [--update] ARENACTL SESSION...

--update writes the sessions anew: read the difference before it is believed.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIMIT_S = 60


def normalise(text, scratch):
    """What differs between machines and versions, and says nothing about the tool."""
    text = text.replace(scratch, "SCRATCH").replace(str(HERE) + "/", "")
    text = re.sub(r"\barenactl \d+\.\d+\.\d+\b", "arenactl VERSION", text)
    return text


def blocks(path):
    """(comments, command) of each block; the rest is what was expected."""
    comments = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("$ "):
            yield comments, line[2:]
            comments = []
        elif line.startswith("#") or not line:
            comments.append(line)
        else:
            comments = []


def run(command, arenactl, scratch):
    env = {"PATH": f"{Path(arenactl).resolve().parent}:/usr/bin:/bin", "LC_ALL": "C.UTF-8",
           "SCRATCH": scratch, "TERM": "dumb", "HOME": scratch}
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
        if name in os.environ:
            env[name] = os.environ[name]
    p = subprocess.run(["/bin/bash", "-c", command], cwd=HERE, env=env, capture_output=True,
                       stdin=subprocess.DEVNULL, timeout=LIMIT_S, check=False)
    out = normalise(p.stdout.decode("utf-8", "backslashreplace"), scratch)
    err = normalise(p.stderr.decode("utf-8", "backslashreplace"), scratch)
    lines = [f"$ {command}"] + out.splitlines() + [f"! {line}" for line in err.splitlines()]
    return lines + [f"= {p.returncode}"]


def session(path, arenactl):
    lines = []
    with tempfile.TemporaryDirectory(prefix="arena-golden-") as scratch:
        for comments, command in blocks(path):
            lines += comments + run(command, arenactl, scratch)
    return lines


def compare(path, got):
    want = path.read_text(encoding="utf-8").splitlines()
    if got == want:
        return True
    import difflib
    for line in difflib.unified_diff(want, got, str(path.name), "what arenactl did", lineterm=""):
        print(line)
    return False


def main(argv):
    update = argv[1:2] == ["--update"]
    arenactl, *paths = argv[1 + update:]
    good = True
    for path in map(Path, paths):
        got = session(path, arenactl)
        if update:
            path.write_text("\n".join(got) + "\n", encoding="utf-8")
        else:
            good = compare(path, got) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
