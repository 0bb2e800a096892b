#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""arenactl merge: test_merge.py ARENACTL SCRIPTS [unittest options]

The verdicts are those of judge_ranks() of scripts/arena.py, which is asked about the same ranks.
"""
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import unittest

import ranks
from ranks import ended, finding, reload, scope, start, verify, write

ARENACTL = os.path.abspath(sys.argv[1])
sys.path.insert(0, os.path.abspath(sys.argv[2]))
import arena  # noqa: E402

DATA = ranks.ROOT / "tests/ctl/data"
SCHEMA = ranks.ROOT / "reports/schema.json"


def arenactl(*args):
    p = subprocess.run([ARENACTL, "merge", *map(str, args)], text=True, capture_output=True,
                       check=False, timeout=60)
    return p.returncode, p.stdout, p.stderr


class Merge(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="arena-")
        self.addCleanup(place.cleanup)
        self.folder = place.name

    def world(self, count, number=1, leave=(), **given):
        """Ranks 0.. that all passed the same reload."""
        for rank in range(count):
            if rank not in leave:
                write(self.folder, f"node-{rank:02}-{1000 + rank}.jsonl",
                      [start(rank), reload(number, rank, **given)])

    def merge(self, count, *more):
        code, out, err = arenactl(self.folder, f"--ranks={count}", "--format=json", *more)
        self.assertEqual(err, "")
        result = json.loads(out)
        return code, result, {r["rank"]: r for r in result["ranks"]}

    def bad(self, by_rank):
        return {rank: r["reasons"] for rank, r in by_rank.items() if r["reasons"]}

    # ---- all is well ----

    def test_64_ranks_pass(self):
        self.world(64, 3)
        code, result, by_rank = self.merge(64)
        self.assertEqual((code, result["verdict"], result["passed"]), (0, "pass", 64))
        self.assertEqual(result["reload"], {"id": 3, "scope": "full"})
        self.assertEqual(len(by_rank), 64)

    def test_text_of_a_pass(self):
        self.world(64, 3)
        self.assertEqual(arenactl(self.folder, "--ranks", "64"),
                         (0, "pass: 64 of 64 ranks passed reload 3 (full), median 1 s\n", ""))

    def test_all_lists_every_rank(self):
        self.world(2)
        _, out, _ = arenactl(self.folder, "--ranks=2", "--all")
        self.assertEqual([line.rstrip() for line in out.splitlines()[1:]], [
            "  rank  host    pid  reload  verdict  took  why",
            "     0  node0  1000       1  pass      1 s",
            "     1  node0  1001       1  pass      1 s"])

    def test_only_the_last_reload_counts(self):
        write(self.folder, "a.jsonl", [start(), reload(1, verdict="fail"), reload(2, at=5.0)])
        self.assertEqual(self.merge(1)[0], 0)

    def test_one_reload_can_be_asked_for(self):
        write(self.folder, "a.jsonl", [start(), reload(1), reload(2, at=5.0)])
        self.assertEqual(self.merge(1, "--reload=1")[0], 0)
        code, _, by_rank = self.merge(1, "--reload=3")
        self.assertEqual((code, self.bad(by_rank)),
                         (1, {0: ["it made no reload 3: its last one is 2"]}))

    # ---- a pass that did not last ----

    def judged(self, *lines, more=(), code=1):
        """What is said of rank 1, whose reload 3 passed, and what else it wrote."""
        self.world(3, 3)
        write(self.folder, "node-01-1001.jsonl", [start(1), reload(3, 1), *lines])
        got, _, by_rank = self.merge(3, *more)
        self.assertEqual((got, set(self.bad(by_rank))), (code, {1}))
        return " | ".join(by_rank[1]["reasons"])

    def test_a_later_reload_than_the_one_asked_for(self):
        asked = ["--reload=3"]
        self.assertEqual(self.judged(reload(4, 1, at=5.0, verdict="fail", why="W_UV moved"),
                                     more=asked),
                         "passed, but the later reload 4 fail: W_UV moved")
        self.assertIn("4 was aborted", self.judged(reload(4, 1, at=5.0, verdict="fail",
                                                          aborted=True), more=asked))
        self.assertIn("4 left the process unsafe",
                      self.judged(reload(4, 1, at=5.0, unsafe=True), more=asked))
        self.assertIn("4 unproven", self.judged(reload(4, 1, at=5.0, verdict="unproven"),
                                                more=asked, code=4))
        self.assertEqual(self.judged(ended(1, number=4, is_open=True), more=asked),
                         "its reload is still open")
        self.judged(ended(1, number=3, unsafe=True), more=asked)

    def test_errors_after_the_reload(self):
        found = [dict(finding("W_UV moved"), id="0x1")]
        self.assertEqual(self.judged(verify(1, "fail", found)), "after it: W_UV moved")
        self.assertEqual(self.judged(verify(1, "fail")), "a verify after it: fail")
        self.judged(verify(1, "unproven"), code=4)
        self.world(3, 3)
        write(self.folder, "node-01-1001.jsonl",
              [start(1), verify(1, "fail", found), reload(3, 1)])
        self.assertEqual(self.merge(3)[0], 0)   # it is what the reload was for

    def test_a_stale_launch_after_the_reload(self):
        slots = (DATA / "slots.jsonl").read_text("utf-8").splitlines()
        stale = next(json.loads(line) for line in slots if '"kind":"stale-launch"' in line)
        self.assertIn("after it: ", self.judged(dict(stale, pid=1001)))

    def test_what_the_exit_line_says(self):
        def said(code, words, **given):
            line = ended(1, number=3)
            for name, value in given.items():
                line[name] = value
            self.assertIn(words, self.judged(line, code=code))
        said(4, "5 lines of its report are lost", lines_lost=5)
        said(4, "2 findings are not in its report", findings_left_out=2)
        said(4, "ended with the verdict unproven: bypassed", verdict="unproven",
             unproven=["bypassed"])
        said(1, "ended with the verdict fail", verdict="fail")
        said(1, "ended with the verdict fail", verdict="fail", lines_lost=5)
        state = dict(ended(1)["reload"])
        said(1, "its exit line tells of reload 4, fail: that is not the last one in the report",
             reload=dict(state, id=4, last="fail"), verdict="fail", lines_lost=1)
        said(4, "tells of reload 4, pass", reload=dict(state, id=4))
        said(1, "tells of reload 3, fail", reload=dict(state, id=3, last="fail"))

    def test_a_rank_that_was_restarted(self):
        """Its new process has other weights than those that the reload brought."""
        def again(name, *lines):
            write(self.folder, name, [start(1, pid=2001, at=70.0), *lines])
        words = r"pid 2001, of the same rank, started at .*, after the reload, and made none"
        exit_line = ended(1, pid=2001, at=80.0, verdict="fail", number=0, last=None)
        for name in ("a.jsonl", "z.jsonl"):     # whichever is read first
            with self.subTest(name=name):
                again(name)
                self.assertRegex(self.judged(code=4), words + ": restarted, or a helper")
                self.assertRegex(self.judged(ended(1, number=3)), words + ": it was restarted")
                again(name, exit_line)
                self.assertRegex(self.judged(ended(1, number=3)), words)
                # The old process hung on while the new one served.
                self.assertRegex(self.judged(ended(1, number=3, at=90.0), code=4), words)
                again(name, reload(3, 1, pid=2001, at=71.0))
                self.assertIn("2 processes made reloads as this rank", self.judged())
                os.unlink(f"{self.folder}/{name}")
        self.assertRegex(self.judged(ended(1, number=3), start(1, pid=2001, at=70.0)), words)

    def test_a_process_without_reloads_is_no_rank(self):
        """A frontend that uses CUDA says rank 0 as well."""
        self.world(2)
        write(self.folder, "frontend.jsonl",
              [start(0, pid=7), ended(0, pid=7, number=0, last=None)])
        self.assertEqual(self.merge(2)[0], 0)

    def test_compressed_reports_and_other_files(self):
        with gzip.open(f"{self.folder}/a.jsonl.gz", "wt") as f:
            f.write(ranks.dumps([start(), reload(1)]))
        with open(f"{self.folder}/worker.log", "w") as f:
            f.write("no report\n")
        self.assertEqual(self.merge(1)[0], 0)

    def test_ranks_as_a_list(self):
        self.world(6, leave=(2, 3))
        self.assertEqual(self.merge("0-1,4-5")[0], 0)

    # ---- what is named ----

    def test_missing(self):
        self.world(64, leave=(17, 40))
        code, result, by_rank = self.merge(64)
        self.assertEqual((code, result["verdict"]), (1, "fail"))
        self.assertEqual(self.bad(by_rank), {17: ["no report"], 40: ["no report"]})

    def test_two_attempts_of_one_rank(self):
        self.world(4)
        write(self.folder, "again.jsonl", [start(2, pid=77, at=30), reload(1, 2, pid=77, at=31)])
        code, _, by_rank = self.merge(4)
        self.assertEqual(code, 1)
        (reason,) = self.bad(by_rank).pop(2)
        self.assertRegex(reason, r"^2 processes made reloads as this rank: \S+again.jsonl pid 77, "
                                 r"2026-\S+ \S+ UTC to .*node-02-1002.jsonl pid 1002")

    def test_a_file_of_an_earlier_run(self):
        """Rank 1 died before it wrote anything; its file is of yesterday."""
        self.world(4, leave=(1,))
        write(self.folder, "old.jsonl", [start(1, at=-86400), reload(1, 1, at=-86000)])
        code, _, by_rank = self.merge(4)
        self.assertEqual(code, 1)
        self.assertRegex(self.bad(by_rank)[1][0], "before the other ranks started: it is of an "
                                                  "earlier run")

    def test_since_leaves_an_earlier_run_out(self):
        self.world(4)
        write(self.folder, "old.jsonl", [start(1, at=-86400), reload(1, 1, at=-86000)])
        self.assertEqual(self.merge(4)[0], 1)
        code, result, _ = self.merge(4, f"--since=@{ranks.START_NS // 10**9}")
        self.assertEqual((code, result["left_out"]), (0, 1))
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ranks.START_NS // 10**9))
        self.assertEqual(self.merge(4, f"--since={at}")[0], 0)
        self.assertEqual(self.merge(4, "--since=9999d")[0], 1)

    def test_run_leaves_other_runs_out(self):
        self.world(2)
        mine = {"ARENA_RUN": "step-7"}
        for rank in range(2):
            write(self.folder, f"mine-{rank}.jsonl",
                  [start(rank, pid=50 + rank, options=mine), reload(4, rank, pid=50 + rank)])
        self.assertEqual(self.merge(2)[0], 1)
        code, result, _ = self.merge(2, "--run=step-7")
        self.assertEqual((code, result["reload"]["id"], result["left_out"]), (0, 4, 2))

    def test_mixed_ids(self):
        self.world(4, 3)
        write(self.folder, "node-01-1001.jsonl", [start(1), reload(2, 1), ended(1, number=2)])
        code, _, by_rank = self.merge(4)
        self.assertEqual((code, self.bad(by_rank)),
                         (1, {1: ["passed another reload: id 2, rank 0 has 3"]}))

    def test_died_in_a_reload(self):
        self.world(4, 3)
        write(self.folder, "node-01-1001.jsonl", [start(1), reload(2, 1)])
        self.assertEqual(self.bad(self.merge(4)[2])[1], [
            "passed another reload: id 2, rank 0 has 3",
            "its report has no end: it died in reload 3, or is still in it"])

    def test_other_scope(self):
        self.world(4)
        write(self.folder, "node-02-1002.jsonl",
              [start(2), reload(1, 2, scope=scope(layers=["a", "b"]))])
        self.assertEqual(self.bad(self.merge(4)[2]), {2: [
            "passed another reload: scope layers a, b, rank 0 has full"]})

    def test_slow(self):
        self.world(8, leave=(5,))
        write(self.folder, "slow.jsonl", [start(5), reload(1, 5, took=4.0)])
        code, _, by_rank = self.merge(8)
        self.assertEqual((code, [r for r in by_rank if by_rank[r]["slow"]]), (0, [5]))
        self.assertEqual(by_rank[5]["reload"]["took_ns"], 4 * 10**9)
        self.assertIn("     5  node0  1005       1  pass      4 s  slow\n",
                      arenactl(self.folder, "--ranks=8")[1])
        self.assertFalse(self.merge(8, "--slow=500")[2][5]["slow"])

    def test_failed_aborted_unsafe_open(self):
        self.world(8, leave=(1, 2, 3, 4))
        write(self.folder, "1.jsonl", [start(1), reload(1, 1, verdict="fail", findings=[
            finding("W_UV moved"), finding("a trifle", "warn"), finding("W_UK_T moved")])])
        write(self.folder, "2.jsonl", [start(2), reload(1, 2, verdict="fail", aborted=True,
                                                        why="the loader raised")])
        write(self.folder, "3.jsonl", [start(3), reload(1, 3, unsafe=True)])
        write(self.folder, "4.jsonl", [start(4), reload(1, 4), ended(4, is_open=True)])
        code, _, by_rank = self.merge(8)
        self.assertEqual((code, self.bad(by_rank)), (1, {
            1: ["reload 1 fail: W_UV moved; W_UK_T moved"],
            2: ["reload 1 was aborted: the loader raised"],
            3: ["the process is unsafe until a full reload passes"],
            4: ["its reload is still open"]}))

    def test_no_reload(self):
        self.world(2, leave=(1,))
        write(self.folder, "1.jsonl", [start(1)])
        self.assertEqual(self.bad(self.merge(2)[2]), {1: ["it made no reload"]})

    def test_a_rank_too_many(self):
        self.world(3)
        self.assertEqual(self.bad(self.merge(2)[2]),
                         {2: ["is not one of the ranks that are expected"]})

    def test_unproven(self):
        self.world(2, leave=(1,))
        write(self.folder, "1.jsonl", [start(1), reload(1, 1, verdict="unproven",
                                                        why="raw-buffer: 2")])
        code, result, by_rank = self.merge(2)
        self.assertEqual((code, result["verdict"], self.bad(by_rank)),
                         (4, "unproven", {1: ["reload 1 unproven: raw-buffer: 2"]}))

    # ---- what cannot be read, and usage ----

    def test_truncated(self):
        """What is cut off may be the reload that failed."""
        self.world(2)
        with open(f"{self.folder}/node-01-1001.jsonl", "a") as f:
            f.write(ranks.dumps([reload(2, 1)])[:-40])
        code, out, err = arenactl(self.folder, "--ranks=2")
        self.assertEqual(code, 3)
        self.assertIn("node-01-1001.jsonl:3", err)
        self.assertTrue(out.startswith("unproven: 2 of 2 ranks passed reload 1"), out)

    def test_no_folder(self):
        code, _, err = arenactl(f"{self.folder}/none", "--ranks=2")
        self.assertEqual(code, 3)
        self.assertEqual(err, f"arenactl merge: {self.folder}/none: No such file or directory\n")

    def test_empty_folder(self):
        code, out, err = arenactl(self.folder, "--ranks=2")
        self.assertEqual(code, 1)
        self.assertIn("no report in it", err)
        self.assertTrue(out.startswith("fail: 0 of 2 ranks passed\n"), out)

    def test_what_is_no_report_of_the_folder(self):
        """A FIFO would keep the reader waiting; what may have been meant is named."""
        self.world(2)
        os.mkdir(f"{self.folder}/step-1")
        for name in ("node-01.jsonl.1", "worker.log", ".hidden.jsonl"):
            write(self.folder, name, [])
        code, out, err = arenactl(self.folder, "--ranks=2")
        self.assertEqual((code, err), (0, f"arenactl merge: {self.folder}: not read: "
                                          "node-01.jsonl.1 and 1 more (only *.jsonl and *.jsonl.gz "
                                          "of the folder itself are)\n"), out)
        self.assertEqual(arenactl(self.folder, "--ranks=2", "-q")[2], "")
        os.mkfifo(f"{self.folder}/pipe.jsonl")
        code, out, err = arenactl(self.folder, "--ranks=2", "-q")
        self.assertEqual((code, err), (3, f"arenactl merge: {self.folder}/pipe.jsonl: has the name "
                                          "of a report and is no file\n"))
        self.assertTrue(out.startswith("unproven: 2 of 2"), out)

    def test_usage(self):
        for args, words in (((), "how many ranks are expected is not said: --ranks=64"),
                            (("--ranks=0",), "--ranks=0: give how many"),
                            (("--ranks=x",), "--ranks=x: give how many"),
                            (("--ranks=3-1",), "--ranks=3-1: give how many"),
                            (("--ranks=1,",), "--ranks=1,: give how many"),
                            (("--ranks=1-2,2",), "rank 2 is there twice"),
                            (("--ranks=99999999",), "give how many"),
                            (("--ranks=2", "--since=yesterday"), "--since=yesterday: give 15m"),
                            (("--ranks=2", "--since="), "--since=: give 15m"),
                            (("--ranks=2", "--since=1m2"), "--since=1m2: give 15m"),
                            (("--ranks=2", "--since=99999d"), "not before 1970"),
                            (("--ranks=2", "--since=99999999999999d"), "not before 1970"),
                            (("--ranks=2", "--since=@99999999999999999999"), "give 15m"),
                            (("--ranks=2", "--since=@20000000000"), "give 15m"),
                            (("--ranks=2", "--since=1815-12-10T00:00:00Z"), "not before 1970"),
                            (("--ranks=2", "--run="), "--run= is empty: give the ARENA_RUN"),
                            (("--ranks=2", "--slow=9"), "slow"),
                            (("--ranks=2", "--reload=0"), "reload"),
                            (("--ranks=2", "--format=xml"), "--format=xml: text or json"),
                            (("--rank=2",), "--ranks")):
            with self.subTest(args=args):
                code, out, err = arenactl(self.folder, *args)
                self.assertEqual((code, out, err.count("\n")), (2, "", 1), err)
                self.assertIn(words, err)

    def test_hostile_names(self):
        self.world(1, why="\x1b[31mred", verdict="fail")
        _, out, _ = arenactl(self.folder, "--ranks=1", "--color=no")
        self.assertNotIn("\x1b", out)
        self.assertEqual(self.merge(1)[2][0]["reasons"], ["reload 1 fail: \x1b[31mred"])


class SameAsTheClient(unittest.TestCase):
    """Worlds at random: what a rank did, as a receipt and as a report."""

    def rank(self, rng, rank):
        """@return (receipts, reports as lists of lines)"""
        def attempt(pid):
            number = rng.choice([1, 3, 3, 3, 3, 3])
            where = rng.choice([ranks.FULL] * 5 + [scope(role="draft")])
            verdict = rng.choice(["pass"] * 8 + ["fail", "unproven"])
            unsafe = rng.random() < 0.04
            receipt = {"rank": rank, "present": True, "open": False, "unsafe": unsafe, "id": number,
                       "verdict": verdict, "why": "", "aborted": False, "scope": where,
                       "findings": []}
            lines = [start(rank, pid), reload(number, rank, pid, verdict=verdict, unsafe=unsafe,
                                              scope=where)]
            if rng.random() < 0.05:
                receipt["open"] = True
                lines.append(ended(rank, pid, is_open=True))
            return receipt, lines
        kind = rng.random()
        if kind < 0.04:
            return [], []
        if kind < 0.08:
            return ([{"rank": rank, "present": True, "open": False, "unsafe": False}],
                    [[start(rank)]])
        made = [attempt(1000 + rank + 500 * k) for k in range(2 if kind < 0.12 else 1)]
        return [r for r, _ in made], [lines for _, lines in made]

    def test_worlds(self):
        seed = int(os.environ.get("SEED", "0")) or random.randrange(1, 10**9)
        rng = random.Random(seed)
        for number in range(150):
            world = rng.choice([1, 2, 3, 8])
            sent = rng.choice([world, world, world, world + 1])
            receipts, passes = [], rng.random() < 0.3
            with tempfile.TemporaryDirectory(prefix="arena-") as folder:
                for rank in range(sent):
                    one = ([{"rank": rank, "present": True, "id": 1, "verdict": "pass",
                             "scope": ranks.FULL}], [[start(rank), reload(1, rank)]]) \
                        if passes else self.rank(rng, rank)
                    receipts += one[0]
                    for k, lines in enumerate(one[1]):
                        write(folder, f"{rank}-{k}.jsonl", lines)
                said = arena.judge_ranks(receipts, world)
                code, out, err = arenactl(folder, f"--ranks={world}", "--format=json")
            mine = json.loads(out)
            # A report of an unexpected rank that made no reload is none of a worker.
            bad = {rank for rank, v in said.ranks.items() if v.reasons
                   and (rank < world or "id" in (v.receipt or {}))}
            self.assertEqual((bad, not bad), ({r["rank"] for r in mine["ranks"] if r["reasons"]},
                                              mine["verdict"] == "pass"),
                             f"SEED={seed}, world {number}: {said}\n{out}{err}")
            self.assertEqual(code == 0, not bad, f"SEED={seed}, world {number}")


class Data(unittest.TestCase):
    def test_lines_are_valid(self):
        """What the tests write is what the library writes."""
        try:
            import jsonschema
        except ImportError:
            self.skipTest("no jsonschema")
        check = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text("utf-8")))
        for line in (start(), reload(1, findings=[finding("moved")]), verify(), ended()):
            check.validate(line)


if __name__ == "__main__":
    print(re.sub(r"\s+", " ", __doc__.splitlines()[0]))
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
