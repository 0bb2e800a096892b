#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Examples of manual pages print what the pages say: test_manual.py [--update] ARENACTL PAGE...

In a literal block, "$ COMMAND" is run in a folder with tests/ctl/data (torch.jsonl is the report of
an H200), and its stdout must be the lines up to the next command. The lines after "$ cat FILE" are
written into the file instead.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

DATA = pathlib.Path(__file__).resolve().parent / "data"


def run(command, arenactl, folder):
    env = {"PATH": f"{pathlib.Path(arenactl).resolve().parent}:/usr/bin:/bin", "LC_ALL": "C.UTF-8",
           "TERM": "dumb"}
    p = subprocess.run(["/bin/bash", "-c", command], cwd=folder, env=env, text=True,
                       capture_output=True, timeout=60, check=False)
    return p.stdout.splitlines()


def examples(lines):
    """(place of a command, place behind its output) in the literal blocks."""
    inside, begin = False, None
    for n, line in enumerate(lines):
        fence = line == "```"
        if begin is not None and (fence or line.startswith("$ ")):
            yield begin, n
            begin = None
        inside ^= fence
        if inside and line.startswith("$ "):
            begin = n


def answers(page, arenactl, folder):
    """The lines of the page, with what the commands print now."""
    lines, out, done = page.read_text(encoding="utf-8").splitlines(), [], 0
    for begin, end in examples(lines):
        command, said = lines[begin][2:], lines[begin + 1:end]
        if command.startswith("cat "):
            (folder / command[4:]).write_text("\n".join(said) + "\n", encoding="utf-8")
        else:
            said = [line.replace("\\", "\\\\") for line in run(command, arenactl, folder)]
        out += lines[done:begin + 1] + said
        done = end
    return lines, out + lines[done:]


def main(argv):
    update = argv[1] == "--update"
    arenactl, *pages = argv[1 + update:]
    differs = 0
    with tempfile.TemporaryDirectory(prefix="arena-manual-") as scratch:
        folder = pathlib.Path(scratch)
        for report in DATA.glob("*.jsonl"):
            shutil.copy(report, folder / report.name.replace("h200-torch", "torch"))
        for page in map(pathlib.Path, pages):
            lines, now = answers(page, arenactl, folder)
            if update:
                page.write_text("\n".join(now) + "\n", encoding="utf-8")
            elif lines != now:
                differs += 1
                print(f"{page.name}: an example prints something else: {set(now) ^ set(lines)}")
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
