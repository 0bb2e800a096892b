#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""arenactl explain: test_explain.py ARENACTL [unittest options]

The formats are in golden/explain.session.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from ranks import ended, finding, reload, seconds, start, write

ARENACTL = os.path.abspath(sys.argv[1])
DATA = pathlib.Path(__file__).resolve().parent / "data"


def arenactl(*args):
    p = subprocess.run([ARENACTL, "explain", *map(str, args)], text=True, capture_output=True,
                       check=False)
    return p.returncode, p.stdout, p.stderr


def event(kind, at, address=0, size=0, serial=1, what="device", stack=0):
    return {"schema": 1, "type": "event", "time_ns": seconds(at), "tid": 7, "event": kind,
            "what": what, "address": hex(address), "size": size, "serial": serial, "stack": stack}


class Explain(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="arena-")
        self.addCleanup(place.cleanup)
        self.folder = place.name

    def life(self, *args):
        """@return the one process that knows the subject."""
        code, out, err = arenactl(*args, "--format=json")
        self.assertEqual((code, err), (0, ""))
        (process,) = json.loads(out)["processes"]
        return process

    # ---- reports of real processes ----

    def test_address_inside(self):
        inside = self.life(DATA / "demo-trace.jsonl", "0x7f6e7fa00100")
        self.assertEqual([e["what"] for e in inside["life"]],
                         ["alloc", "instantiate", "launch", "free", "freed-while-referenced",
                          "alloc", "stale-launch", "launch"])

    def test_ways_to_name_a_slot(self):
        lives = [self.life(DATA / "slots.jsonl", name)
                 for name in ("w13", "model.layers.0.moe/w13", "model.layers.0.moe / w13",
                              "model.layers.0.moe")]
        self.assertEqual(lives[1:], lives[:1] * 3)

    def test_finding(self):
        report = (DATA / "demo-trace.jsonl").read_text("utf-8").splitlines()
        stale = next(json.loads(line) for line in report if '"kind":"stale-launch"' in line)
        life = self.life(DATA / "demo-trace.jsonl", stale["id"])
        self.assertEqual([m["generation"] for m in life["memory"]], [2, 3])
        self.assertIn("stale-launch", [e["what"] for e in life["life"]])

    # ---- what is there, and what is not ----

    def test_launches_in_a_row_are_one_entry(self):
        lines = (DATA / "demo-trace.jsonl").read_text("utf-8").splitlines(keepends=True)
        launch = next(k for k, line in enumerate(lines) if '"event":"launch"' in line)
        path = pathlib.Path(self.folder) / "many.jsonl"
        lines[launch] *= 1000
        path.write_text("".join(lines), "utf-8")
        times = [e["times"] for e in self.life(path, "0x7f6e7fa00000")["life"]
                 if e["what"] == "launch"]
        self.assertEqual(times, [1000, 1])

    def test_only_graphs_that_hold_it(self):
        """Memory next to it, and graphs of others, are no part of the life."""
        lines = (DATA / "demo-trace.jsonl").read_text("utf-8").splitlines(keepends=True)
        path = pathlib.Path(self.folder) / "more.jsonl"
        path.write_text("".join(lines[:-1]) + "".join(
            json.dumps(e) + "\n" for e in (
                event("alloc", 5, 0x7f6e83a00000, 4096, 77), event("launch", 6, serial=9, what=""),
                event("alloc", 7, 0x7f6e7f9ff000, 4096, 78))) + lines[-1], "utf-8")
        self.assertEqual(self.life(path, "0x7f6e7fa00000")["life"],
                         self.life(DATA / "demo-trace.jsonl", "0x7f6e7fa00000")["life"])

    def test_much_memory_is_cut_and_said(self):
        refs = [{"exec": 1, "node": n, "node_kind": "kernel", "kernel": "k", "param": 0,
                 "offset": 0, "confidence": "exact", "reason": "freed", "value": hex((n + 1) << 20),
                 "old": {"base": hex((n + 1) << 20), "size": 4096, "generation": n + 1,
                         "kind": "device", "stack_open": 0, "stack_close": 0}, "now": None}
                for n in range(40)]
        path = write(self.folder, "wide.jsonl", [start(), {
            "schema": 1, "type": "finding", "time_ns": seconds(2), "id": "0xabcdef012345",
            "key": "0x1", "kind": "stale-launch", "severity": "error", "title": "t", "text": "t",
            "refused": False, "exec": 1, "handle": "0x1", "stack": 0, "refs_total": 40, "refs": refs},
            ended()])
        _, out, _ = arenactl(path, "0xabcdef012345")
        self.assertIn("\n  and 24 more (--all)\n", out)
        self.assertIn("\n      and by 37 more (--all)\n", out)
        self.assertNotIn("more (--all)", arenactl(path, "0xabcdef012345", "--all")[1])

    def test_reloads_around_it(self):
        path = write(self.folder, "r.jsonl", [
            start(), *(reload(k, at=10.0 * k) for k in range(1, 6)),
            reload(6, at=60.0, verdict="fail", findings=[finding("W_UV moved")]), ended(number=6)])
        _, out, _ = arenactl(path, "W_UV")
        self.assertEqual([line.split("  ")[-2:] for line in out.splitlines() if "reload" in line
                          and "not told" not in line],
                         [["reload 6", "begins: full"], ["reload 6", "ends: fail"]])
        self.assertEqual(len(self.life(path, "W_UV")["life"]), 13)

    def gaps(self, options=None, lines=()):
        given = {"options": {"ARENA_TRACE": "on", "ARENA_STACKS": "all", "ARENA_BLOCKS": "cuda",
                             **(options or {})}}
        path = write(self.folder, "g.jsonl", [
            start(**given), reload(1, verdict="fail", findings=[finding("W_UV moved")]), *lines])
        return [gap["what"] for gap in self.life(path, "W_UV")["not_recorded"]]

    def test_gaps(self):
        done = [ended()]
        self.assertEqual(self.gaps(lines=done), [])
        self.assertEqual(self.gaps({"ARENA_TRACE": "off"}, done), [
            "when memory was allocated, mapped and freed, and when graphs were instantiated, "
            "updated and launched"])
        self.assertEqual(self.gaps({"ARENA_STACKS": "off"}, done),
                         ["call stacks: who allocated, freed and launched"])
        self.assertEqual(self.gaps({"ARENA_BLOCKS": "off"}, done),
                         ["blocks of PyTorch's allocator"])
        self.assertEqual(self.gaps(), ["how it ended: there is no exit line"])
        lost = dict(ended(), lines_lost=3)
        self.assertEqual(self.gaps(lines=[lost]), [
            "3 lines that could not be written, 0 findings beyond the limit"])

    def test_processes_that_do_not_know_it_are_silent(self):
        other = write(self.folder, "other.jsonl", [start(3), ended(3)])
        _, out, _ = arenactl(other, DATA / "slots.jsonl", "w13")
        self.assertNotIn("other.jsonl", out)

    # ---- errors ----

    def test_unknown(self):
        for subject, words in (
                ("0x10", "is about address 0x10: only memory of findings is in it, unless it ran "
                         "with ARENA_TRACE=on"),
                ("7f3e8a600000", "is about slot 7f3e8a600000; did you mean the address "
                                 "0x7f3e8a600000?"),
                ("w14", "is about slot w14; did you mean w13?"),
                ("\x1b[31m", r"is about slot \x1b[31m: give an address")):
            code, out, err = arenactl(DATA / "slots.jsonl", subject)
            self.assertEqual((code, out, err.count("\n")), (1, "", 1))
            self.assertIn(words, err)

    def test_usage(self):
        for args, words in (((), "FILE"), (("x.jsonl",), "FILE"),
                            (("-", "w13"), "a report is read twice: give a file, not stdin"),
                            ((DATA / "slots.jsonl", "0x7f3e8a600000000000"),
                             "0x7f3e8a600000000000: an address has at most 16 hexadecimal digits"),
                            (("x.jsonl", "w13", "--format=csv"), "--format=csv: text or json")):
            code, out, err = arenactl(*args)
            self.assertEqual((code, out, err.count("\n")), (2, "", 1), err)
            self.assertIn(words, err)

    def test_unreadable(self):
        code, _, err = arenactl(f"{self.folder}/none.jsonl", "w13")
        self.assertEqual(code, 3)
        self.assertIn("none.jsonl: No such file or directory", err)

    def test_truncated(self):
        """What is there is printed."""
        path = pathlib.Path(self.folder) / "cut.jsonl"
        path.write_bytes((DATA / "slots.jsonl").read_bytes()[:-100])
        code, out, err = arenactl(path, "w13")
        self.assertEqual(code, 3)
        self.assertIn("cut.jsonl:", err)
        self.assertIn("how it ended: there is no exit line", out)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
