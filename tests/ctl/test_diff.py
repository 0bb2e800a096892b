#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""arenactl diff: test_diff.py ARENACTL [unittest options]

The formats are in golden/diff.session.
"""
import csv
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from ranks import ended, finding, reload, scope, start, verify, write

ARENACTL = os.path.abspath(sys.argv[1])
DATA = pathlib.Path(__file__).resolve().parent / "data"


def arenactl(*args):
    p = subprocess.run([ARENACTL, "diff", *map(str, args)], text=True, capture_output=True,
                       check=False)
    return p.returncode, p.stdout, p.stderr


class Diff(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="arena-")
        self.addCleanup(place.cleanup)
        self.folder = place.name

    def report(self, name, *lines):
        return write(self.folder, name, lines)

    def differences(self, *args, code=0):
        got, out, err = arenactl(*args, "--format=json")
        self.assertEqual((got, err), (code, ""), out)
        return [(i["how"], i["set"], i["what"], i["a"], i["b"]) for i in json.loads(out)["items"]]

    def test_csv_has_as_many_cells_in_each_row(self):
        _, out, _ = arenactl(DATA / "slots.jsonl", DATA / "demo-trace.jsonl", "--format=csv")
        rows = list(csv.reader(out.splitlines()))
        self.assertEqual({len(row) for row in rows}, {7})

    # ---- what is the same in another run ----

    def test_other_addresses_processes_and_times_are_no_difference(self):
        text = (DATA / "slots.jsonl").read_text("utf-8")
        text = text.replace("0x7f3e8", "0x7aaa8").replace('"pid":9733', '"pid":12')
        text = re.sub(r'_ns":17', '_ns":16', text)
        moved = pathlib.Path(self.folder) / "again.jsonl"
        moved.write_text(text, "utf-8")
        self.assertEqual(self.differences(DATA / "slots.jsonl", moved, "--drift"), [])

    def test_new_and_gone(self):
        def run(name, *found):
            return self.report(name, start(),
                               reload(1, verdict="fail", findings=list(found)), ended())
        a = run("a.jsonl", finding("W_UV moved"))
        b = run("b.jsonl", finding("W_UV moved"), finding("W_UK_T moved", slot="W_UK_T"))
        self.assertEqual([d[:3] for d in self.differences(a, b, code=1)],
                         [("new", "finding", "moved model.layers.0 / W_UK_T"),
                          ("new", "slot", "model.layers.0 / W_UK_T")])
        self.assertEqual([d[:3] for d in self.differences(b, a)],
                         [("gone", "finding", "moved model.layers.0 / W_UK_T"),
                          ("gone", "slot", "model.layers.0 / W_UK_T")])
        self.assertEqual(len(self.differences(b, a, "--drift", code=1)), 2)

    def test_severity(self):
        def run(name, severity):
            found = [finding("moved", severity)]
            return self.report(name, start(), reload(1, findings=found), ended())
        info, warn, error = (run(f"{s}.jsonl", s) for s in ("info", "warn", "error"))
        self.assertEqual(self.differences(info, warn),
                         [("changed", "finding", "moved model.layers.0 / W_UV", "info", "warn")])
        self.differences(info, warn, "--fail-on=warn", code=1)
        self.differences(info, error, code=1)
        self.differences(error, warn, "--fail-on=warn")     # better is no failure

    def test_respecified(self):
        def run(name, shape):
            binding = {"base": "0x1000", "generation": 1, "bytes": 64, "dtype": "<f4",
                       "shape": shape, "strides": [1], "device": 0, "layout": "row",
                       "stack_open": 0, "stack_close": 0}
            return self.report(name, start(), reload(1, verdict="fail", findings=[
                dict(finding("moved"), old=binding, new=binding)]), ended())
        self.assertEqual(self.differences(run("a.jsonl", [16]), run("b.jsonl", [4, 4])),
                         [("changed", "slot", "model.layers.0 / W_UV",
                           "64 B <f4 [16] row, device 0", "64 B <f4 [4,4] row, device 0")])

    def test_reloads(self):
        a = self.report("a.jsonl", start(), reload(1), reload(2), ended())
        b = self.report("b.jsonl", start(), reload(1, scope=scope(layers=["x"])),
                        reload(2, verdict="unproven"), reload(3, verdict="fail"),
                        ended(verdict="fail", last="fail", number=3))
        self.assertEqual(self.differences(a, b, code=1), [
            ("changed", "reload", "rank 0 reload 1", "pass, full, 4 committed",
             "pass, layers x, 4 committed"),
            ("changed", "reload", "rank 0 reload 2", "pass, full, 4 committed",
             "unproven, full, 4 committed"),
            ("new", "reload", "rank 0 reload 3", None, "fail, full, 4 committed"),
            ("changed", "process", "rank 0", "pass", "fail")])

    def test_coverage_and_graphs(self):
        a = self.report("a.jsonl", start(), ended(verdict="unproven", unproven=["host-node"],
                                                  coverage={"raw-buffer": 0, "host-node": 3}))
        b = self.report("b.jsonl", start(), ended(verdict="unproven", unproven=["raw-buffer"],
                                                  coverage={"raw-buffer": 2, "host-node": 9},
                                                  graphs={"nodes": 255}))
        self.assertEqual(self.differences(a, b), [
            ("new", "coverage", "raw-buffer", None, "not all was seen"),
            ("changed", "graphs", "rank 0 graphs.nodes", "256", "255")])
        self.differences(a, b, "--fail-on=warn", code=1)

    def test_killed_processes_are_not_compared_by_what_they_could_not_say(self):
        a = self.report("a.jsonl", start(), ended(verdict="unproven", coverage={"raw-buffer": 2}))
        b = self.report("b.jsonl", start())
        self.assertEqual(self.differences(a, b, code=4),
                         [("changed", "process", "rank 0", "unproven", "unproven, no exit line")])
        self.assertIn("B = b.jsonl, 1 process, 1 without an exit line: coverage and graphs are not "
                      "compared", arenactl(a, b)[1].replace(f"{self.folder}/", ""))
        self.assertEqual(arenactl(b, b)[0], 4)      # equal, as far as it was told
        self.assertEqual(arenactl(b, a)[0], 4)

    def test_how_processes_ended(self):
        def run(name, **given):
            line = ended()
            for key, value in given.items():
                line[key] = value
            return self.report(name, start(), line)
        good = run("a.jsonl")
        state = dict(ended()["reload"])
        for code, at_warn, b, given in (
                (1, 1, "fail", {"verdict": "fail"}),
                (0, 1, "unproven", {"verdict": "unproven", "unproven": ["bypassed"]}),
                (1, 1, "fail, unsafe", {"verdict": "fail", "reload": dict(state, unsafe=True)}),
                (4, 1, "unproven, lines lost", {"lines_lost": 7}),
                (4, 1, "unproven, findings left out", {"findings_left_out": 7})):
            with self.subTest(b=b):
                bad = run("b.jsonl", **given)
                self.assertEqual(self.differences(good, bad, code=code),
                                 [("changed", "process", "rank 0", "pass", b)])
                self.differences(good, bad, "--drift", code=1)
                self.differences(good, bad, "--fail-on=warn", code=at_warn)
                self.assertEqual(arenactl(bad, good)[0], 4 if code == 4 else 0)

    def test_a_process_that_is_not_there(self):
        two = [start(), ended(), start(1), ended(1)]
        a, b = self.report("a.jsonl", *two), self.report("b.jsonl", *two[:2])
        self.assertIn(("gone", "process", "rank 1", "pass", None),
                      self.differences(a, b, "--drift", code=1))
        again = self.report("c.jsonl", *two[:2], start(pid=7), ended(pid=7))
        self.assertIn(("changed", "process", "rank 0", "pass", "pass, in 2 processes"),
                      self.differences(b, again, "--drift", code=1))

    def test_verifies(self):
        def run(name, *verdicts):
            return self.report(name, start(), *(verify(0, v) for v in verdicts), ended())
        once, often = run("a.jsonl", "pass"), run("b.jsonl", "pass", "pass", "pass")
        self.assertEqual(self.differences(once, often, "--drift"), [])
        self.assertIn(("changed", "verify", "rank 0", "pass", "fail; pass"),
                      self.differences(once, run("c.jsonl", "pass", "fail"), code=1))

    def test_many_refs(self):
        """Memory goes with what differs, not with how often it was captured."""
        with open(ARENACTL, "rb") as f:
            program = f.read()
        if b"__asan_init" in program or b"__tsan_init" in program:
            self.skipTest("a sanitizer needs terabytes of address space")
        lines = [json.loads(line) for line in (DATA / "slots.jsonl").open(encoding="utf-8")]
        for line in lines:
            if line.get("refs"):
                line["refs"] = [dict(line["refs"][0], exec=1 + n // 100, node=n % 100,
                                     offset=8 * (n % 50)) for n in range(100_000)]
                line["refs_total"] = 100_000
        many = self.report("many.jsonl", *lines)
        p = subprocess.run(["bash", "-c", f"ulimit -v 200000; exec {ARENACTL} diff {many} {many}"],
                           text=True, capture_output=True, check=False, timeout=60)
        self.assertEqual((p.returncode, p.stderr), (0, ""), p.stdout)

    def test_ranks_in_folders(self):
        for run in "ab":
            os.mkdir(f"{self.folder}/{run}")
            for rank in range(4):
                found = [finding("W_UV moved")] if rank < (2 if run == "a" else 3) else []
                write(f"{self.folder}/{run}", f"{rank}.jsonl",
                      [start(rank), reload(1, rank, findings=found), ended(rank)])
        self.assertEqual(self.differences(f"{self.folder}/a", f"{self.folder}/b"), [
            ("changed", "finding", "moved model.layers.0 / W_UV", "error, in 2 processes",
             "error, in 3 processes")])

    # ---- errors ----

    def test_nothing_to_compare(self):
        empty = self.report("empty.jsonl")
        code, _, err = arenactl(empty, DATA / "slots.jsonl")
        self.assertEqual(code, 3)
        self.assertIn("empty.jsonl: empty", err)
        os.mkdir(f"{self.folder}/none")
        code, _, err = arenactl(f"{self.folder}/none", DATA / "slots.jsonl")
        self.assertEqual((code, err), (3, f"arenactl diff: {self.folder}/none: no report in it "
                                          "(*.jsonl, *.jsonl.gz)\n"))

    def test_unreadable(self):
        code, _, err = arenactl(f"{self.folder}/a.jsonl", DATA / "slots.jsonl")
        self.assertEqual((code, err),
                         (3, f"arenactl diff: {self.folder}/a.jsonl: No such file or directory\n"))

    def test_truncated(self):
        cut = pathlib.Path(self.folder) / "cut.jsonl"
        cut.write_bytes((DATA / "slots.jsonl").read_bytes()[:-100])
        code, out, err = arenactl(cut, DATA / "slots.jsonl")
        self.assertEqual(code, 3)
        self.assertIn("cut.jsonl:", err)
        self.assertIn("1 without an exit line", out)

    def test_new_in_a_truncated_report(self):
        """It is new, whatever else was lost; but what A has lost is not new in B."""
        a = self.report("a.jsonl", start(), ended())
        b = self.report("b.jsonl", start(), reload(1, verdict="fail", findings=[finding("moved")]))
        for path in (a, b):
            with open(path + ".cut.jsonl", "w", encoding="utf-8") as f:
                f.write(pathlib.Path(path).read_text("utf-8") + '{"schema":1,"type"')
        self.assertEqual(arenactl(a, b + ".cut.jsonl")[0], 1)
        self.assertEqual(arenactl(a + ".cut.jsonl", b)[0], 3)

    def test_usage(self):
        for args, words in (((), "A B"), (("a",), "A B"), (("a", "b", "c"), "A B"),
                            (("a", "b", "--format=xml"), "--format=xml: text, json or csv"),
                            (("a", "b", "--fail-on=no"), "--fail-on"),
                            (("a", "b", "--drif"), "--drift")):
            code, out, err = arenactl(*args)
            self.assertEqual((code, out, err.count("\n")), (2, "", 1), err)
            self.assertIn(words, err)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
