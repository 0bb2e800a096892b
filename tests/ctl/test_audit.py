#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/audit.sh on the simulated driver:

    test_audit.py AUDIT ARENACTL SHIM SIM VICTIMS [unittest options]
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ET

AUDIT, ARENACTL, SHIM, SIM, VICTIMS = (os.path.abspath(a) for a in sys.argv[1:6])
LOOP, DEMO = f"{VICTIMS}/v_reload_loop", f"{VICTIMS}/v_demo"


class Audit(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="arena-")
        self.addCleanup(place.cleanup)
        self.folder = pathlib.Path(place.name)
        self.out = self.folder / "audit"

    def audit(self, *args, options=("--runs=2",)):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith("ARENA_") and k != "LD_PRELOAD"}
        env["LD_LIBRARY_PATH"] = SIM
        p = subprocess.run([AUDIT, f"--arenactl={ARENACTL}", f"--library={SHIM}", "--out", self.out,
                            *options, *map(str, args)], env=env, text=True, capture_output=True,
                           check=False, timeout=240, cwd=self.folder)
        return p.returncode, p.stdout, p.stderr

    def script(self, name, text):
        path = self.folder / name
        path.write_text(f"#!/usr/bin/env bash\n{text}\n", "utf-8")
        path.chmod(0o755)
        return path

    def failures(self, name):
        """How many tests of a JUnit file failed."""
        return len(ET.parse(self.out / "junit" / name).findall(".//failure"))

    def test_pass(self):
        code, out, err = self.audit("--", LOOP)
        self.assertEqual((code, err), (0, ""), out)
        self.assertRegex(out, r"^audit: pass: runs 2, reports 2; see \S+report.txt, \S+html\n$")
        self.assertEqual([self.failures(f) for f in ("check-1.xml", "check-2.xml", "drift-2.xml")],
                         [0, 0, 0])
        self.assertTrue((self.out / "report.txt").read_text("utf-8").startswith("pass\n"))
        self.assertIn("<html", (self.out / "report.html").read_text("utf-8"))
        self.assertEqual(len(list(self.out.glob("run-?/*.jsonl"))), 2)

    def test_findings(self):
        code, out, _ = self.audit("--", DEMO)
        self.assertEqual(code, 1)
        self.assertIn("audit: run 2: the program ended with status 3, see", out)
        self.assertIn("audit: run 2: findings, or not proven (status 1)\n", out)
        self.assertIn("no reload was told", out)
        self.assertNotIn("differs", out)
        self.assertGreater(self.failures("check-1.xml"), 0)

    def test_drift(self):
        """More is captured in the second run; neither run is wrong."""
        program = self.script("p", f'[ "$AUDIT_RUN" = 1 ] || {LOOP}\n'
                                   f"exec {LOOP}")
        code, out, _ = self.audit("--", program)
        self.assertEqual(code, 1)
        self.assertIn("audit: run 2 differs from run 1:\n", out)
        self.assertRegex(out, r"(new|changed)  graphs")
        self.assertEqual([self.failures(f) for f in ("check-2.xml", "drift-2.xml")], [0, 1])

    def test_reports_without_an_end(self):
        """They are equal as far as they go: that proves nothing."""
        cut = self.script("cut", f'{ARENACTL} "$@"; code=$?\n'
                                 'for a; do case $a in --report=*) '
                                 'sed -i \'/"type":"exit"/d\' "$(dirname "${a#*=}")"/*;; esac; done\n'
                                 'exit $code')
        code, out, err = self.audit("--arenactl", cut, "--", LOOP)
        self.assertEqual((code, err), (4, ""), out)
        self.assertIn("audit: run 2 cannot be compared with run 1 (status 4):\n0 new", out)
        root = ET.parse(self.out / "junit" / "drift-2.xml").getroot()
        self.assertEqual((root.get("failures"), root.get("errors"), len(root.findall(".//error"))),
                         ("0", "1", 1))

    def test_a_program_that_fails(self):
        code, out, _ = self.audit("--", self.script("p", f"{LOOP}; exit 7"))
        self.assertEqual(code, 1)
        self.assertIn("audit: run 1: the program ended with status 7", out)

    def test_no_report(self):
        code, out, _ = self.audit("/bin/true")
        self.assertEqual(code, 3)
        self.assertIn("audit: run 1 wrote no report: 'arenactl doctor -- /bin/true' says why", out)
        self.assertTrue(out.endswith("runs 2, reports 0\n"), out)     # there is nothing to see

    def test_a_list_that_is_wrong(self):
        """It is read before the first run."""
        bad = self.folder / "bad"
        bad.write_text("a trifle\n", "utf-8")
        good = self.folder / "good"
        good.write_text("0x1 known since spring\n", "utf-8")
        for path, words in ((bad, f"audit: {bad}:1: no id"),
                            (self.folder, f"audit: --allow={self.folder}: Is a directory")):
            with self.subTest(path=path):
                code, out, err = self.audit("--allow", path, "--", LOOP)
                self.assertEqual((code, out, err.count("\n"), self.out.exists()),
                                 (2, "", 1, False), err)
                self.assertTrue(err.startswith(words), err)
        self.assertEqual(self.audit("--allow", good, "--", LOOP, options=("--runs=1",))[0], 0)

    def broken(self, command, status):
        """An arenactl of which one command breaks."""
        return self.script("arenactl", f'case "$*" in {command}) echo "arenactl: no room" >&2; '
                                       f'exit {status};; esac\nexec {ARENACTL} "$@"')

    def test_a_page_that_could_not_be_written(self):
        tool = self.broken("'report --format=html'*", 3)
        code, out, _ = self.audit("--arenactl", tool, "--", LOOP)
        self.assertEqual(code, 3)
        self.assertIn("audit: report.html is not whole (status 3): arenactl: no room\n", out)
        self.assertTrue(out.endswith(f"reports 2; see {self.out}/report.txt\n"), out)

    def test_a_tool_that_dies(self):
        for command in ("'check --format=junit'*", "diff*"):
            with self.subTest(command=command):
                tool = self.broken(command, 139)
                code, out, err = self.audit("--arenactl", tool, f"--out={self.out}-{command[0]}",
                                            "--", LOOP)
                self.assertEqual((code, err), (3, ""), out)
                self.assertIn("audit: no proof: a report is missing or unreadable: runs 2", out)

    def test_a_folder_that_begins_with_a_dash(self):
        code, out, err = self.audit("--out", "-x", "--", LOOP, options=("--runs=2",))
        self.assertEqual((code, err), (0, ""), out)
        self.assertTrue((self.folder / "-x" / "report.html").exists())

    def server(self, trap="exit 0"):
        return self.script("server", f"{LOOP}\ntrap '{trap}' TERM\ntouch {self.folder}/up\n"
                                     "while :; do sleep 0.1; done")

    def test_server(self):
        said = self.folder / "said"
        reload = self.script("reload", f'echo "$AUDIT_RUN" "$@" >> {said}')
        code, out, _ = self.audit("--reload", f"{reload} -v",
                                  "--ready", f"test -e {self.folder}/up",
                                  "--weights", "old one", "new", "--", self.server(),
                                  options=("--runs=1",))
        self.assertEqual((code, said.read_text("utf-8")),
                         (0, "1 -v old one\n1 -v new\n1 -v old one\n"), out)

    def test_reload_that_fails(self):
        code, out, _ = self.audit("--ready", f"test -e {self.folder}/up", "--", self.server(),
                                  options=("--runs=1", "--reload=test A ="))
        self.assertEqual(code, 1)
        self.assertIn("audit: run 1: the reload of B failed, see", out)

    def test_server_that_does_not_stop(self):
        code, out, _ = self.audit("--ready", f"test -e {self.folder}/up", "--wait=2", "--",
                                  self.server(trap=""), options=("--runs=1", "--reload=:"))
        self.assertEqual(code, 1)
        self.assertIn("does not stop within 2 seconds: killed", out)

    def test_server_that_is_never_ready(self):
        """It has written its report by then: how fast the machine is does not matter."""
        ready = f"until test -e {self.folder}/up; do sleep 0.1; done; false"
        code, out, _ = self.audit("--ready", ready, "--wait=1", "--", self.server(),
                                  options=("--runs=1", "--reload=:"))
        self.assertEqual(code, 1)
        self.assertIn("audit: run 1: the server was not ready, see", out)

    def test_usage(self):
        full = self.folder / "full"
        full.mkdir()
        (full / "x").touch()
        for args, words in (
                ((), "no program: audit.sh [options] -- program args..."),
                (("--runs", "0", "true"), "--runs=0: give a number"),
                (("--runs",), "--runs needs a value"),
                (("--weights", "a"), "--weights needs two values"),
                (("--fail-on=fatal", "true"), "--fail-on=fatal: info, warn or error"),
                (("--allow=/none", "true"), "--allow=/none: there is no such file"),
                (("--ready=x", "true"), "--ready is for servers"),
                (("--nope", "true"), "unknown option '--nope'"),
                (("--wait=soon", "true"), "--wait=soon: give seconds"),
                (("--arenactl=/none", "true"), "no '/none': install it"),
                (("/none/x",), "no program '/none/x'"),
                ((f"--out={full}", "true"), "is no empty folder")):
            with self.subTest(args=args):
                code, out, err = self.audit(*args, options=())
                self.assertEqual((code, out, err.count("\n")), (2, "", 1), err)
                self.assertTrue(err.startswith("audit: "), err)
                self.assertIn(words, err)
        code, out, err = self.audit("--help")
        self.assertEqual((code, err), (0, ""))
        for option in ("--runs", "--reload", "--weights", "--ready", "--wait", "--allow"):
            self.assertIn(option, out)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[6:]])
