#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reload story with reports, descriptors and options as a hostile world has them.

    run_outside.py --shim LIB [--sim DIR] --victim v_demo

Whatever becomes of the report, the program must say the same and end the same; what is in the
report must be whole lines. Exit: 0 or 1.
"""
import argparse
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile

TIMEOUT_S = 60


class World:
    """One folder, one way to start the victim."""

    def __init__(self, args, directory):
        self.args, self.directory = args, pathlib.Path(directory)
        self.problems = []

    def run(self, env=(), before=None, gate="strict", **how):
        full = {k: v for k, v in os.environ.items() if not k.startswith(("ARENA_", "SIM_"))}
        first = os.environ.get("ARENA_TEST_PRELOAD", "")
        full["LD_PRELOAD"] = " ".join(filter(None, [first, self.args.shim]))
        if self.args.sim:
            full["LD_LIBRARY_PATH"] = self.args.sim
        full["ARENA_GATE"] = gate
        full["ARENA_REPORT"] = str(self.directory / "report")
        full.update(env)
        how.setdefault("stderr", subprocess.PIPE)
        p = subprocess.run([self.args.victim], env=full, cwd=self.directory, text=True,
                           stdout=subprocess.PIPE, timeout=TIMEOUT_S, preexec_fn=before, **how)
        p.lines = [s for s in (p.stderr or "").splitlines() if s.startswith("arena[")]
        return p

    def take(self):
        """The text of the report, which is removed; nothing if there is none."""
        path = self.directory / "report"
        text = path.read_text() if path.exists() else ""
        path.unlink(missing_ok=True)
        return text

    def report(self):
        return [json.loads(s) for s in self.take().splitlines() if s]

    def verdict(self):
        """None without an exit line."""
        lines = self.report()
        return lines[-1].get("verdict") if lines else None

    def expect(self, good, what):
        if not good:
            self.problems.append(what)


def words(text):
    """What the victim said, without addresses."""
    return [" ".join(w for w in line.split() if not w.startswith("0x"))
            for line in text.splitlines()]


def same(world, p, plain, what):
    world.expect(p.returncode == plain.returncode, f"{what}: exit {p.returncode}, "
                                                   f"not {plain.returncode}: {p.stderr}")
    world.expect(words(p.stdout) == words(plain.stdout), f"{what}: the program said {p.stdout}")


def check_places(world, plain):
    """Places that cannot be written: the same run, one line that names the option."""
    os.mkfifo(world.directory / "fifo")
    for place in ("/dev/full", "/no/such/folder/report", str(world.directory), "fifo"):
        p = world.run({"ARENA_REPORT": place})
        same(world, p, plain, place)
        told = [s for s in p.lines if "ARENA_REPORT: cannot write" in s]
        world.expect(len(told) == 1, f"{place}: said {len(told)} times: {p.stderr}")
        world.expect(any("verdict fail" in s for s in p.lines), f"{place}: no verdict: {p.stderr}")
    p = world.run({"ARENA_REPORT": ""})
    same(world, p, plain, "no report")
    world.expect(len(p.lines) == 1, f"no report: {p.stderr}")
    world.expect(sorted(f.name for f in world.directory.iterdir()) == ["fifo"], "files were left")


def check_descriptors(world, plain):
    """Closed and broken standard descriptors, a file size limit."""
    same(world, world.run(before=lambda: os.close(2)), plain, "closed stderr")
    world.expect(world.verdict() == "fail", "closed stderr: no report")
    reader, writer = os.pipe()
    os.close(reader)
    p = world.run(before=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL), stderr=writer)
    os.close(writer)
    same(world, p, plain, "stderr without a reader")
    world.report()

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))
    p = world.run(before=limit)
    same(world, p, plain, "file size limit")
    text = world.take()
    world.expect(0 < len(text) <= 700, f"file size limit: {len(text)} bytes")


def check_appends(world, plain):
    """A second process appends; half a line of a killed one does not spoil the next."""
    world.run()
    with open(world.directory / "report", "a", encoding="utf-8") as f:
        f.write('{"schema":1,"type":"sta')
    world.run()
    text = world.take()
    torn = [s for s in text.splitlines() if s and not s.endswith("}")]
    world.expect(torn == ['{"schema":1,"type":"sta'], f"torn lines: {torn}")
    world.expect(text.count('"type":"exit"') == 2, "two processes, not two exit lines")


def check_gates(world, plain):
    p = world.run(gate="abort")
    lines = world.report()
    world.expect(p.returncode == 86, f"abort: exit {p.returncode}")
    world.expect([s["type"] for s in lines][-2:] == ["finding", "exit"] and
                 lines[-1]["verdict"] == "fail", "abort: report not whole")
    p = world.run(gate="off")
    world.expect(not p.lines and not world.report(), f"off: said or wrote something: {p.stderr}")


def check_options(world, plain):
    p = world.run({"ARENA_GAET": "off", "ARENA_STACKS": "al", "ARENA_REPORT": "%r-%h-%z"})
    same(world, p, plain, "bad options")
    for want in ("ARENA_GAET: no such option, did you mean ARENA_GATE?",
                 "ARENA_STACKS=al: not one of off|findings|all, did you mean all?",
                 "%z is not known"):
        world.expect(sum(want in s for s in p.lines) == 1, f"not said once: {want}: {p.stderr}")
    for path in world.directory.glob("0-*-%z"):
        path.unlink()
    p = world.run({"ARENA_STACKS": "off"})
    same(world, p, plain, "no stacks")
    world.expect(not [s for s in world.report() if s["type"] == "stack"], "stacks though off")


def check_others(world, plain):
    """A process that uses no CUDA says and writes nothing."""
    victim, world.args.victim = world.args.victim, "/bin/true"
    p = world.run({"ARENA_GATE": "nonsense"})
    world.args.victim = victim
    world.expect(p.returncode == 0 and not p.lines and not world.report(), f"true: {p.stderr}")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--shim", required=True, type=os.path.realpath)
    parser.add_argument("--sim")
    parser.add_argument("--victim", required=True, type=os.path.realpath)
    args = parser.parse_args()
    bad = 0
    for check in (check_places, check_descriptors, check_appends, check_gates, check_options,
                  check_others):
        with tempfile.TemporaryDirectory(prefix="arena-") as directory:
            world = World(args, directory)
            plain = world.run()
            world.expect(plain.returncode == 3 and world.verdict() == "fail",
                         f"the story itself: exit {plain.returncode}: {plain.stderr}")
            if not world.problems:
                check(world, plain)
            print(f"{'FAIL' if world.problems else 'ok':4} {check.__name__}")
            for problem in world.problems:
                print(f"     {problem}")
            bad += bool(world.problems)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
