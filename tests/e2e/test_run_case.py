#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The comparison of run_case.py must be able to fail: one doctored report for each way."""
import copy
import argparse
import json
import unittest

import run_case

EXPECT = """
form buggy
  launch E 0
  launch E 401
  finding freed-while-referenced freed w
  finding stale-launch freed|generation w
  unwound w
"""
OLD = {"base": "0x1000", "size": 64, "generation": 3, "kind": "device", "stack_open": 5,
       "stack_close": 0}


def finding(kind, reason, refused):
    return {"schema": 1, "type": "finding", "kind": kind, "refused": refused,
            "text": f"{kind}: 0x1000 is gone", "refs": [{"reason": reason, "old": dict(OLD)}]}


def good_run():
    lines = [
        {"schema": 1, "type": "start"},
        {"schema": 1, "type": "module", "id": 1, "path": "/x/v_some_case"},
        {"schema": 1, "type": "stack", "id": 5, "frames": [[1, "0x10"]]},
        finding("freed-while-referenced", "freed", False),
        finding("stale-launch", "generation", True),
        {"schema": 1, "type": "exit", "verdict": "fail", "coverage": {"host-node": 0}},
    ]
    return run_case.Run(0, "", "", [("w", 0x1000, 64), ("later", 0x1000, 64)],
                        [("E", "0"), ("E", "401")], [], lines)


class Comparison(unittest.TestCase):
    def problems(self, run, gate="strict", expect=EXPECT):
        return list(run_case.check(run_case.parse_expect(expect)[0], run, gate))

    def only(self, run, word, **more):
        problems = self.problems(run, **more)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(word, problems[0])

    def test_good_report_passes(self):
        self.assertEqual(self.problems(good_run()), [])

    def test_missing_finding(self):
        run = good_run()
        del run.lines[3]
        self.only(run, "missing finding: freed-while-referenced")

    def test_sources_that_differ(self):
        run = good_run()
        run.lines.insert(3, {"schema": 1, "type": "cross",
                             "differences": [{"reason": "node-only-walk", "node": "0x1"}]})
        self.only(run, "CUPTI and the walk differ: node-only-walk")

    def test_finding_too_many(self):
        run = good_run()
        extra = finding("stale-launch", "freed", True)
        extra["refs"][0]["old"]["base"] = extra["text"] = "0x9000"
        run.lines.insert(3, extra)
        self.only(run, "unexpected finding: stale-launch freed 0x9000")

    def test_wrong_reason(self):
        run = good_run()
        run.lines[4]["refs"][0]["reason"] = "unmapped"
        self.assertEqual(len(self.problems(run)), 2)

    def test_wrong_outcome_of_a_launch(self):
        self.only(good_run()._replace(launches=[("E", "0"), ("E", "0")]), "launches")

    def test_refused_under_warn(self):
        run = good_run()._replace(launches=[("E", "0"), ("E", "0")])
        self.only(run, "refused is True", gate="warn")

    def test_wrong_verdict(self):
        run = good_run()
        run.lines[-1]["verdict"] = "pass"
        self.only(run, "verdict pass")

    def test_no_frame_of_the_program(self):
        run = copy.deepcopy(good_run())
        run.lines[2]["frames"] = []
        self.assertEqual(len(self.problems(run)), 2)

    def test_no_exit_line(self):
        run = good_run()
        del run.lines[-1]
        self.only(run, "no exit line")

    def test_crash(self):
        self.only(good_run()._replace(code=-11, err="boom"), "exit -11: boom")

    def test_gap_that_is_not_counted(self):
        self.only(good_run(), "coverage host-node", expect=EXPECT + "  gap host-node\n")

    def test_events(self):
        expect = EXPECT + "  events 64: alloc free\n"
        run = good_run()
        run.lines.insert(1, {"schema": 1, "type": "event", "event": "alloc", "size": 64})
        self.only(run, "events ['alloc']", expect=expect)
        run.lines.insert(2, {"schema": 1, "type": "event", "event": "free", "size": 64})
        self.assertEqual(self.problems(run, expect=expect), [])

    # ---- what the API answered ----

    SLOTS = """
form slots
  verify V moved:w ?respecified:w:info
  reload R fail moved:w
  call put -5 4096
  verdict pass
"""

    def slots_run(self, **changes):
        found = [{"kind": "moved", "severity": "error", "slot": "w", "source": "", "cache": ""}]
        answer = {"aborted": False, "verdict": "fail", "findings": found}
        lines = [{"schema": 1, "type": "exit", "verdict": "pass", "coverage": {}}]
        slots = {"V": ("verify", "V", "-8", json.dumps({"findings": found})),
                 "R": ("reload", "R", "-8", json.dumps(answer)),
                 "put": ("call", "put", "-5", "slot w has 4096 bytes, not 8")}
        slots.update(changes)
        return run_case.Run(0, "", "", [], [], [], lines, [s for s in slots.values() if s])

    def slots_problem(self, word, gate="strict", **changes):
        problems = self.problems(self.slots_run(**changes), gate, self.SLOTS)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(word, problems[0])

    def test_good_answers_pass(self):
        self.assertEqual(self.problems(self.slots_run(), expect=self.SLOTS), [])

    def test_answer_that_is_missing(self):
        self.slots_problem("answers", put=None)

    def test_slot_finding_missing_or_too_many(self):
        self.slots_problem("missing moved:w", V=("verify", "V", "0", '{"findings": []}'))
        extra = [{"kind": k, "severity": "error", "slot": "w", "source": "", "cache": ""}
                 for k in ("moved", "replaced")]
        self.slots_problem("unexpected replaced:w",
                           V=("verify", "V", "-8", json.dumps({"findings": extra})))

    def test_severity_counts(self):
        found = [{"kind": "moved", "severity": "info", "slot": "w", "source": "", "cache": ""}]
        problems = self.problems(
            self.slots_run(V=("verify", "V", "0", json.dumps({"findings": found}))),
            expect=self.SLOTS)
        self.assertEqual(len(problems), 2, problems)

    def test_code_that_disagrees_with_the_findings(self):
        self.slots_problem("verify V returned 0", V=("verify", "V", "0", self.slots_run().slots[0][3]))
        good = self.slots_run().slots[1]
        self.slots_problem("reload R returned 0", R=good[:2] + ("0",) + good[3:])
        self.slots_problem("reload R returned -8 under warn", gate="warn")

    def test_message_without_the_value(self):
        self.slots_problem("no '4096'", put=("call", "put", "-5", "slot w does not fit"))
        self.slots_problem("not -5", put=("call", "put", "-2", "slot w has 4096 bytes"))

    def test_settings_go_to_the_library_only(self):
        form = run_case.parse_expect("form a\n  env ARENA_SCAN=on X=y\n")[0]
        args = argparse.Namespace(sim=None, shim="/lib.so", libraries=[], env=["X=z"])
        env = run_case.environment(args, form, "strict", "/tmp")
        self.assertEqual((env["ARENA_SCAN"], env["X"]), ("on", "z"))
        self.assertNotIn("ARENA_SCAN", run_case.environment(args, form, None, "/tmp"))

    def test_nonsense_in_an_expectation(self):
        with self.assertRaises(ValueError):
            run_case.parse_expect("form a\n  fnding x y z\n")


if __name__ == "__main__":
    unittest.main()
