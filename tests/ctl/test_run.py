#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""arenactl run, doctor and entries: test_run.py ROOT ARENACTL SHIM NOP SIMS VICTIM CC

SIMS has the simulated drivers, a folder each; VICTIM is a program with a stale launch.
"""
import csv
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT, ARENACTL, SHIM, NOP, SIMS, VICTIM = map(os.path.abspath, sys.argv[1:7])
CC = sys.argv[7]

# Uses CUDA, then does what its argument says.
PROGRAM = """
import ctypes, os, signal, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
exec(sys.argv[1])
"""


class Case(unittest.TestCase):
    def setUp(self):
        self.top = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.top.name)
        (self.folder / "program.py").write_text(PROGRAM)

    def tearDown(self):
        self.top.cleanup()

    def environment(self, sim="full", **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("ARENA_", "LD_PRELOAD"))}
        env.update(LC_ALL="C", **more)
        env["LD_LIBRARY_PATH"] = f"{SIMS}/{sim}" if sim else ""
        return env

    def ctl(self, *arguments, sim="full", cwd=None, **env):
        return subprocess.run([ARENACTL, *map(str, arguments)], text=True, capture_output=True,
                              cwd=cwd or self.folder, env=self.environment(sim, **env),
                              timeout=300, check=False)

    def run_python(self, code, *options, **env):
        return self.ctl("run", *options, "--", sys.executable, "program.py", code, **env)

    def library(self, name, *options, source="int unused;\n"):
        path = self.folder / name
        (self.folder / "library.c").write_text(source)
        subprocess.run([CC, "-shared", "-fPIC", *options, str(self.folder / "library.c"), "-o",
                        str(path)], check=True)
        return path

    def reports(self, pattern="*.jsonl"):
        return sorted(self.folder.glob(pattern))


class Run(Case):
    def test_verdict(self):
        p = self.ctl("run", "--", VICTIM)
        self.assertEqual(p.returncode, 0, p.stderr)
        [report] = self.reports()
        self.assertEqual(p.stderr.splitlines()[-1], "arenactl run: verdict fail: 8 freed-while-"
                         f"referenced, 1 stale-launch; 1 process; see {report}")
        p = self.run_python("")
        self.assertIn("arenactl run: verdict pass; 1 process; see ", p.stderr)

    def test_gate(self):
        p = self.ctl("run", "--gate=abort", VICTIM)
        self.assertEqual(p.returncode, 86)
        self.assertIn("verdict fail", p.stderr)

    def test_exit_codes(self):
        for command, code in ((["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -9 $$"], 137),
                              (["sh", "-c", "kill -TERM $$"], 143), (["/no/such/program"], 127),
                              (["no-such-program-at-all"], 127), (["/etc"], 126)):
            with self.subTest(command=command):
                self.assertEqual(self.ctl("run", "--", *command).returncode, code)
        self.assertIn("/no/such/program: No such file", self.ctl("run", "/no/such/program").stderr)

    def test_signals_are_passed_on(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            ready = self.folder / "ready"
            # A session of its own: as if a supervisor sent the signal to arenactl alone.
            p = subprocess.Popen([ARENACTL, "run", "-q", "--", "sh", "-c",
                                  f"trap 'exit 9' {int(number)}; : >ready; "
                                  "while :; do sleep 0.05; done"],
                                 cwd=self.folder, env=self.environment(), start_new_session=True)
            self.addCleanup(self.end_session, p.pid)
            while not ready.exists():
                time.sleep(0.01)
            p.send_signal(number)
            self.assertEqual(p.wait(20), 9)
            ready.unlink()

    def end_session(self, leader):
        """Nothing may be left of a session, if the test failed."""
        try:
            os.killpg(leader, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def test_no_cuda(self):
        p = self.ctl("run", "true")
        self.assertEqual((p.returncode, p.stdout), (0, ""))
        self.assertRegex(p.stderr, r"^arenactl run: no verdict: no process used CUDA .*\n$")
        self.assertEqual(self.ctl("run", "-q", "true").stderr, "")
        self.assertIn("no report was wanted", self.ctl("run", "--report=", VICTIM).stderr)
        self.assertEqual(self.reports(), [])

    def test_killed(self):
        p = self.run_python("os.kill(os.getpid(), signal.SIGKILL)")
        self.assertEqual(p.returncode, 137)
        self.assertIn("verdict unproven; 1 process, 1 without an end (killed, or still running)",
                      p.stderr)

    def test_report_that_is_not_there(self):
        """A process used CUDA, whatever became of its report: nothing may say that none did."""
        (self.folder / "file").write_text("")
        for report, what in (("/nonexistent/%p.jsonl", "could be written at /nonexistent/%p.jsonl: "
                              "No such file or directory: "),
                             ("file/%p.jsonl", "Not a directory"),
                             (self.folder, "could be read at .*: not a file: "),
                             ("/dev/null", "could be read at /dev/null: not a file: ")):
            with self.subTest(report=report):
                p = self.run_python("", f"--report={report}")
                self.assertRegex(p.stderr, f"(?m)^arenactl run: no verdict: no report .*{what}")
                self.assertNotIn("no process used CUDA", p.stderr)
        p = self.run_python("import glob\nfor f in glob.glob('*.jsonl'): os.unlink(f)")
        self.assertIn("no process used CUDA under the library, or its report is gone", p.stderr)

    def test_gate_off(self):
        for p in (self.run_python("", ARENA_GATE="OFF"), self.run_python("", "--gate=off")):
            self.assertIn("no verdict: ARENA_GATE is off: nothing was recorded\n", p.stderr)

    def test_still_running(self):
        """What a process that was left behind will do is in nobody's verdict."""
        p = self.ctl("run", "--", "sh", "-c", f"{sys.executable} program.py ''; "
                     "(while [ ! -e stop ]; do sleep 0.05; done) >/dev/null 2>&1 & exit 0")
        (self.folder / "stop").write_text("")
        self.assertEqual(p.returncode, 0)
        # The shell's loop, and perhaps the sleep(1) in it.
        self.assertRegex(p.stderr, r"warn: (1 process|2 processes) that the program started still "
                         r"runs? \(pid \d+\)")
        self.assertIn("arenactl run: verdict unproven; 1 process; see ", p.stderr)

    def test_repeats(self):
        """As the library counts: the same again is no other finding, also without an exit line."""
        self.ctl("run", VICTIM)
        [report] = self.reports()
        lines = [json.loads(line) for line in report.read_text().splitlines()]
        lines = [line for line in lines if line["type"] != "exit"]
        lines += [line for line in lines if line["type"] == "finding"]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        program = ("import json, os\nfor line in open('lines'):\n    o = json.loads(line)\n"
                   "    if o['type'] == 'start':\n        o['options']['ARENA_RUN'] = "
                   "os.environ['ARENA_RUN']\n    open('copy.jsonl', 'a').write(json.dumps(o) + "
                   "'\\n')")
        (self.folder / "lines").write_text(text)
        p = self.ctl("run", "--report=copy.jsonl", "--", sys.executable, "-c", program)
        self.assertIn("verdict fail: 8 freed-while-referenced, 1 stale-launch; 1 process, 1 without",
                      p.stderr)

    def test_tree(self):
        p = self.ctl("run", "--", "sh", "-c", f"cd /; {VICTIM}; {VICTIM}; exit 3")
        self.assertEqual(p.returncode, 3)
        self.assertEqual(len(self.reports()), 2)
        self.assertIn("16 freed-while-referenced, 2 stale-launch; 2 processes", p.stderr)

    def test_reports_of_others(self):
        """One file of two runs, and a report that is damaged, and not of this run."""
        self.ctl("run", "--report=shared.jsonl", VICTIM)
        with open(self.folder / "shared.jsonl", "a", encoding="utf-8") as f:
            f.write("{rubbish}\n")
        p = self.run_python("", "--report=shared.jsonl")
        self.assertIn("verdict pass; 1 process; see", p.stderr)
        # While this one runs, another writes into the same folder.
        p = self.run_python(f"os.environ['ARENA_RUN'] = 'another'; os.system({VICTIM!r} + ' >&2')",
                            "--report=%p.jsonl")
        self.assertIn("verdict pass; 1 process; see", p.stderr)
        self.assertEqual(len(self.reports()), 3)

    def test_odd_names(self):
        folder = self.folder / "a [b] *c?\\d %p"
        folder.mkdir()
        p = self.ctl("run", VICTIM, cwd=folder)
        self.assertIn("verdict fail", p.stderr)
        self.assertEqual(len(list(folder.glob("*.jsonl"))), 1)
        p = self.ctl("run", f"--report={str(folder)[:-1]}%p/%h-%p-%%.jsonl", VICTIM)
        self.assertIn("verdict fail", p.stderr)
        p = self.ctl("run", f"--report={'x' * 5000}", "touch", "was-run")
        self.assertEqual((p.returncode, p.stderr.count("\n")), (2, 1))
        self.assertFalse((self.folder / "was-run").exists())

    def test_environment(self):
        p = self.ctl("run", "--gate=strict", "--stacks=all", "--cupti=off", "--infer=block",
                     "--graph-mib=7", "--run=night", "--", "env", ARENA_TRACE="on",
                     ARENA_GATE="warn")
        env = dict(line.split("=", 1) for line in p.stdout.splitlines() if "=" in line)
        self.assertEqual({k: v for k, v in env.items() if k.startswith("ARENA_")}, {
            "ARENA_GATE": "strict", "ARENA_STACKS": "all", "ARENA_CUPTI": "off",
            "ARENA_INFER": "block", "ARENA_GRAPH_MIB": "7", "ARENA_RUN": "night",
            "ARENA_TRACE": "on", "ARENA_REPORT": f"{self.folder}/arena-%h-%r-%p.jsonl"})
        self.assertEqual(env["LD_PRELOAD"], os.path.realpath(SHIM))

    def test_options_are_those_of_the_library(self):
        def rows(path, pattern):
            text = (pathlib.Path(ROOT) / path).read_text()
            return {m[0]: m[1] for m in re.findall(pattern, text, re.M)}
        words = rows("shim/options.def", r'^OPTION_ENUM\((\w+),[^"]*"([^"]*)"')
        ours = rows("reports/ctl/options.def", r'^OPTION\((\w+),\s*"[^"]*",\s*[^,]*,\s*"([^"]*)"')
        self.assertGreater(len(words), 5)
        for name, choice in words.items():
            self.assertEqual(ours[name], choice)

    def test_usage(self):
        for arguments, text in ((["--gate=strikt", "true"], "--gate=strikt: must be one of off|"),
                                (["--graph-mib=0", "true"], "--graph-mib=0: must be a number"),
                                (["--gaet=warn", "true"], "did you mean '--gate'?"),
                                ([], "too few arguments")):
            p = self.ctl("run", *arguments)
            self.assertEqual((p.returncode, p.stderr.count("\n")), (2, 1))
            self.assertIn(text, p.stderr)


class Preload(Case):
    def list(self, **env):
        p = self.ctl("run", "-q", "--", "env", **env)
        return re.search(r"(?m)^LD_PRELOAD=(.*)$", p.stdout).group(1)

    def test_others_are_kept(self):
        one, two, runtime = (self.library(n) for n in ("one.so", "two.so", "libasan.so.99"))
        shim = os.path.realpath(SHIM)
        self.assertEqual(self.list(LD_PRELOAD=f" {one} {two}"), f"{shim}:{one}:{two}")
        self.assertEqual(self.list(LD_PRELOAD=f"{one}::{two}:"), f"{shim}:{one}:{two}")
        self.assertEqual(self.list(LD_PRELOAD=f"{one}:{runtime}"), f"{runtime}:{shim}:{one}")
        self.assertEqual(self.list(LD_PRELOAD=f"{one}:{shim}"), f"{shim}:{one}")

    def test_another_copy(self):
        copy = self.folder / "copy" / "libarena_shim.so"
        copy.parent.mkdir()
        shutil.copy(SHIM, copy)
        p = self.ctl("run", "--", "env", LD_PRELOAD=str(copy))
        self.assertIn(f"LD_PRELOAD={os.path.realpath(SHIM)}\n", p.stdout)
        self.assertIn(f"has another copy, {copy}: it is replaced by", p.stderr)

    def test_library_that_will_not_do(self):
        text = self.folder / "text.so"
        text.write_text("hello")
        other = self.library("other.so")
        elf = bytearray(pathlib.Path(SHIM).read_bytes())
        short, narrow = self.folder / "short.so", self.folder / "narrow.so"
        short.write_bytes(elf[:8192])
        elf[4] = 1
        narrow.write_bytes(elf)
        spaced = self.folder / "a b" / "libarena_shim.so"
        spaced.parent.mkdir()
        shutil.copy(SHIM, spaced)
        undefined = self.library("undefined.so", source="void nowhere(void);\n"
                                 "void (*at)(void) = nowhere;\n")
        for path, what in ((text, "not a shared library"), (other, "not the library of arena-shim"),
                           (short, "will not load: "), (narrow, "for another processor"),
                           (spaced, "cannot hold a path with spaces or colons"),
                           (undefined, "will not load: "), ("/no/such.so", "No such file"),
                           (self.folder, "not a file")):
            with self.subTest(path=path):
                p = self.ctl("run", f"--library={path}", "--", "touch", "was-run")
                self.assertEqual((p.returncode, p.stderr.count("\n")), (2, 1), p.stderr)
                self.assertIn(what, p.stderr)
        self.assertFalse((self.folder / "was-run").exists())

    def test_programs_without_it(self):
        source, program = self.folder / "static.c", self.folder / "static"
        source.write_text("int main(void) { return 0; }\n")
        if subprocess.run([CC, "-static", str(source), "-o", str(program)], check=False,
                          stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no static libc")
        script = self.folder / "script"
        script.write_text(f"#!{program}\n")
        script.chmod(0o755)
        for command, what in (([program], "is linked statically"), ([script], "statically"),
                              (["env", "-i", "true"], "drops LD_PRELOAD here")):
            p = self.ctl("run", "--", *command)
            self.assertIn(f"warn: {command[0] if command[0] != script else program}"
                          if command[0] != "env" else "warn: ", p.stderr)
            self.assertIn(what, p.stderr)

    def test_programs_with_another_loader(self):
        """Copies of true(1), changed so that the library cannot get into them."""
        true = pathlib.Path(shutil.which("true")).read_bytes()
        glibc, musl = b"/lib64/ld-linux-x86-64.so.2", b"/lib/ld-musl-x86_64.so.1"
        narrow = bytearray(true)
        narrow[4] = 1
        for name, data, what in (
                ("musl", true.replace(glibc, musl.ljust(len(glibc), b"\0")), "uses musl"),
                ("narrow", bytes(narrow), "is for another processor"),
                ("short", true[:40], "is a damaged program"),
                ("empty", b"", "is an empty file: there is nothing to watch"),
                ("none", b"hello, I am nothing", "is neither an ELF program nor a script")):
            program = self.folder / name
            program.write_bytes(data)
            program.chmod(0o755)
            p = self.ctl("run", "--", program)
            self.assertIn(f"arenactl run: warn: {program} {what}", p.stderr)
        if os.geteuid() != 0:
            self.skipTest("only root gives programs away")
        program = self.folder / "another's"
        shutil.copy(shutil.which("true"), program)
        os.chown(program, 65534, 65534)
        program.chmod(0o4755)
        p = self.ctl("run", "--", program)
        self.assertIn("runs with other rights (setuid, setgid or capabilities)", p.stderr)

    def test_nop(self):
        self.assertIn("is the no-op build: nothing is watched",
                      self.ctl("run", f"--library={NOP}", "true").stderr)


class Prometheus(Case):
    SAMPLE = re.compile(r'^[a-z_]+(\{([a-z]+="([^"\\\n]|\\.)*",?)+\})? [0-9.]+$')

    def parse(self, text):
        samples = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                self.assertRegex(line, self.SAMPLE)
                name, value = line.rsplit(" ", 1)
                samples[re.sub(r',?(host|rank|pid)="[^"]*",?', "", name).replace("{}", "")] = \
                    float(value)
        return samples

    def test_end(self):
        self.ctl("run", "--prometheus=m.prom", VICTIM)
        text = (self.folder / "m.prom").read_text()
        s = self.parse(text)
        self.assertEqual(s['arena_verdict{verdict="fail"}'], 1)
        self.assertEqual(s['arena_verdict{verdict="pass"}'], 0)
        self.assertEqual(s['arena_findings_total{severity="error"}'], 1)
        self.assertEqual(s['arena_findings_by_kind_total{kind="stale-launch"}'], 1)
        self.assertEqual(s["arena_process_running"], 0)
        self.assertEqual(s["arena_run_finished"], 1)
        self.assertEqual([p.name for p in self.folder.glob("*.tmp")], [])
        # The same from the report.
        [report] = self.reports()
        p = self.ctl("report", "--format=prometheus", report)
        self.assertEqual(self.parse(p.stdout), s)

    def test_killed(self):
        """What was found counts, also where the process did not come to its end."""
        self.ctl("run", VICTIM)
        [report] = self.reports()
        lines = report.read_text().splitlines(keepends=True)
        report.write_text("".join(line for line in lines if '"type":"exit"' not in line))
        s = self.parse(self.ctl("report", "--format=prometheus", report).stdout)
        self.assertEqual(s["arena_process_running"], 1)
        self.assertEqual(s["arena_run_finished"], 0)
        self.assertEqual(s['arena_verdict{verdict="fail"}'], 1)
        self.assertEqual(s['arena_findings_total{severity="error"}'], 1)
        self.assertEqual(s['arena_findings_by_kind_total{kind="freed-while-referenced"}'], 8)

    def test_while_it_runs(self):
        """The program itself waits until it is seen running; there is no end to the wait."""
        p = self.run_python("print(open('m.prom').read().count('arena_run_finished 0'))\n"
                            "while 'pid=\"%d\"} 1' % os.getpid() not in open('m.prom').read():\n"
                            "    time.sleep(0.05)", "--prometheus=m.prom")
        self.assertEqual((p.returncode, p.stdout), (0, "1\n"), p.stderr)
        self.assertIn("arena_run_finished 1", (self.folder / "m.prom").read_text())

    def test_what_is_no_file(self):
        """Replacing it would remove a device, or what somebody else made."""
        pipe, loop, link = (self.folder / n for n in ("pipe", "nowhere", "link"))
        os.mkfifo(pipe)
        loop.symlink_to(self.folder / "absent")
        link.symlink_to(pipe)
        for path, what in ((pipe, "not a file"), (self.folder, "not a file"), (link, "not a file"),
                           ("/dev/null", "not a file"), (loop, "a link to nothing"),
                           ("", "name a file")):
            p = self.ctl("run", f"--prometheus={path}", "--", "touch", "was-run")
            self.assertEqual((p.returncode, p.stderr.count("\n")), (2, 1), p.stderr)
            self.assertIn(f"--prometheus={path}: {what}", p.stderr)
        self.assertTrue(pipe.is_fifo())
        self.assertFalse((self.folder / "was-run").exists())
        self.assertTrue(pathlib.Path("/dev/null").is_char_device())

    def test_becomes_no_file(self):
        p = self.ctl("run", "--prometheus=m.prom", "--", "sh", "-c", "until rm -f m.prom; "
                     "mkfifo m.prom 2>/dev/null; do :; done")
        self.assertTrue((self.folder / "m.prom").is_fifo())
        self.assertIn("--prometheus=", p.stderr)

    def test_link(self):
        file, link = self.folder / "file.prom", self.folder / "link.prom"
        file.write_text("old")
        link.symlink_to(file)
        self.ctl("run", f"--prometheus={link}", "true")
        self.assertTrue(link.is_symlink())
        self.assertIn("arena_run_finished 1", file.read_text())

    def test_place_that_cannot_be_written(self):
        p = self.ctl("run", "--prometheus=/no/such/folder/m.prom", "--", "sh", "-c", "exit 5")
        self.assertEqual(p.returncode, 5)
        self.assertEqual(p.stderr.count("--prometheus=/no/such/folder/m.prom: No such file"), 1)


class Doctor(Case):
    def states(self, text):
        return {(c["check"], c["text"].split(":")[0]): c["state"] for c in json.loads(text)["checks"]}

    def test_works(self):
        p = self.ctl("doctor", "--format=json")
        states = self.states(p.stdout)
        self.assertEqual(p.returncode, 0, p.stdout)
        self.assertEqual(json.loads(p.stdout)["state"], "note")
        for route in ("symbol", "dlsym", "cuGetProcAddress"):
            self.assertEqual(states[("route", route)], "ok")
        self.assertIn(("canary", "3 of 3 allocations were seen by the library"), states)
        self.assertIn(("driver", "libcuda.so.1, CUDA 13.0"), states)
        p = self.ctl("doctor")
        self.assertRegex(p.stdout, r"(?m)^canary +ok +3 of 3 allocations")
        self.assertTrue(p.stdout.endswith("\nthe library works here\n"))

    def test_old_driver(self):
        p = self.ctl("doctor", "--format=json", sim="noprocaddr")
        self.assertIn(("canary", "2 of 2 allocations were seen by the library"),
                      self.states(p.stdout))

    def test_driver_that_refuses(self):
        p = self.ctl("doctor", SIM_FAIL="cuInit:1")
        self.assertEqual(p.returncode, 4)
        self.assertRegex(p.stdout, r"canary +unknown +.*the driver refused cuInit \d+")

    def test_no_driver(self):
        p = self.ctl("doctor", sim=None)
        if "driver    ok" in p.stdout:
            self.skipTest("there is a driver")
        self.assertEqual(p.returncode, 4)
        self.assertIn("no libcuda.so.1 on this machine", p.stdout)
        self.assertIn("not shown to work", p.stdout)

    def test_turned_off(self):
        p = self.ctl("doctor", f"--library={NOP}")
        self.assertEqual(p.returncode, 1)
        self.assertIn("the library is the no-op build", p.stdout)
        p = self.ctl("doctor", "--library=/etc/passwd")
        self.assertEqual(p.returncode, 1)
        self.assertIn("not a shared library", p.stdout)

    def test_settings(self):
        """The canary has values of its own; a program that is started here has these."""
        for env, state, what in (({"ARENA_GATE": "off"}, 1, "bad +ARENA_GATE is off: "),
                                 ({"ARENA_GATE": "Off"}, 1, "bad +ARENA_GATE is off: "),
                                 ({"ARENA_REPORT": ""}, 1, "bad +ARENA_REPORT is empty: "),
                                 ({"ARENA_STACKS": "al"}, 0, "note +ARENA_STACKS=al is not one of "
                                  r"off\|findings\|all"), ({"ARENA_STACKS": "ALL"}, 0, None)):
            p = self.ctl("doctor", **env)
            self.assertEqual(p.returncode, state, p.stdout)
            if what:
                self.assertRegex(p.stdout, f"(?m)^settings +{what}")
            else:
                self.assertNotIn("settings", p.stdout)
            self.assertEqual("the library works here" in p.stdout, state == 0)

    def test_python_that_hangs(self):
        """In PATH is a script that waits for a child of its own: both are ended."""
        python = self.folder / "bin" / "python3"
        python.parent.mkdir()
        python.write_text(f"#!/bin/sh\ntrap '' ALRM TERM\nsleep 100000 &\n"
                          f"echo $! >{self.folder}/child\nwait\n")
        python.chmod(0o755)
        p = self.ctl("doctor", PATH=f"{python.parent}:{os.environ['PATH']}")
        self.assertEqual(p.returncode, 0, p.stdout)
        self.assertRegex(p.stdout, r"pytorch +note +none that the python3 in PATH would import")
        child = (self.folder / "child").read_text().strip()
        status = pathlib.Path(f"/proc/{child}/status")
        # Killed; who waits for orphans may not have come to it yet.
        self.assertIn(re.findall(r"State:\t(\w)", status.read_text())[0] if status.exists() else "Z",
                      "ZX")

    def wait(self, prefix=""):
        """A command that has the driver until the doctor can have seen it."""
        return f"{prefix}{sys.executable} program.py 'time.sleep(1)'"

    def test_program(self):
        p = self.ctl("doctor", "--", "sh", "-c", self.wait() + "; exit 4")
        self.assertEqual(p.returncode, 0, p.stdout)
        self.assertRegex(p.stdout, r"process \d+ +ok +watched: .*python")
        self.assertRegex(p.stdout, r"program +ok +exit status 4; 1 of \d processes use CUDA, all")
        self.assertEqual(self.reports(), [])

    def test_variable_that_gets_lost(self):
        p = self.ctl("doctor", "--", "sh", "-c", self.wait("env -u LD_PRELOAD "))
        self.assertEqual(p.returncode, 1)
        self.assertRegex(p.stdout, r"bad +not watched: .*python.*: LD_PRELOAD did not reach it")
        self.assertRegex(p.stdout, r"program +bad +exit status 0; 1 of [12] processes use CUDA unw")

    def test_program_that_cannot_be_watched(self):
        for command, what in ((["env", "-i", "true"], "drops LD_PRELOAD here"),
                              (["/no/such"], "cannot be started: No such file")):
            p = self.ctl("doctor", "--", *command)
            self.assertEqual(p.returncode, 1)
            self.assertIn(what, p.stdout)

    def test_leaves_nothing(self):
        before = set(pathlib.Path("/tmp").glob("arenactl-*"))
        self.ctl("doctor", "--", VICTIM)
        self.assertEqual(set(pathlib.Path("/tmp").glob("arenactl-*")) - before, set())


class Entries(Case):
    def rows(self, *arguments):
        return list(csv.DictReader(self.ctl("entries", "--format=csv", *arguments).stdout
                                   .splitlines()))

    def test_lists(self):
        def count(path, word):
            text = (pathlib.Path(ROOT) / path).read_text()
            return len(re.findall(rf"(?m)^{word}\(", text))
        hooked, unhooked = self.rows("--hooked"), self.rows("--unhooked")
        self.assertEqual(len(hooked), count("shim/hooks.def", "HOOK"))
        self.assertEqual(len(unhooked), count("shim/unhooked.def", "UNHOOKED"))
        self.assertEqual(self.rows(), hooked + unhooked)
        self.assertEqual({r["how"] for r in unhooked}, {"not hooked"})

    def test_row(self):
        self.assertEqual(self.rows("cuMemAlloc_v2"), [
            {"symbol": "cuMemAlloc_v2", "since": "3.2", "family": "MEM", "how": "followed",
             "what": "opens a device range"}])
        p = self.ctl("entries", "--format=json", "cuGraphLaunch*")
        self.assertEqual([r["symbol"] for r in json.loads(p.stdout)["entries"]],
                         ["cuGraphLaunch", "cuGraphLaunch_ptsz"])
        self.assertEqual(self.ctl("entries", "cuGraphLaunch").stdout.split("\n")[0].split(),
                         ["SYMBOL", "SINCE", "FAMILY", "HOW", "WHAT"])

    def test_families(self):
        families = {r["family"] for r in self.rows("--family=MEM,VMM")}
        self.assertEqual(families, {"MEM", "VMM"})
        p = self.ctl("entries", "--family=MEN")
        self.assertEqual((p.returncode, p.stderr),
                         (2, "arenactl entries: no family 'MEN'; did you mean 'MEM'?\n"))

    def test_none(self):
        p = self.ctl("entries", "cuNothing")
        self.assertEqual((p.returncode, p.stdout, p.stderr.count("\n")), (1, "", 1))
        self.assertEqual(self.ctl("entries", "--hooked", "--unhooked").returncode, 2)
        self.assertEqual(self.ctl("entries", "--format=xml").returncode, 2)


if __name__ == "__main__":
    # A shell cannot trap what was ignored when it began, as nohup leaves it.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    unittest.main(argv=sys.argv[:1] + sys.argv[8:], verbosity=1)
