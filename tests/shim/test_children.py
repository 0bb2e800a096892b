#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes that Python starts under the shim: a worker that uses CUDA has a report of its own, by
whatever it was started; compilers, shells and everything else leave no trace.

    test_children.py SHIM SIM HANDSHAKE CC [unittest options]
"""
import ctypes
import json
import multiprocessing
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

AT_SECURE = 23
SCRIPTS = str(pathlib.Path(__file__).resolve().parents[2] / "scripts")
NOT_INITIALISED = 3                 # CUDA_ERROR_NOT_INITIALIZED


# ---- what the processes of a scene do ----

def use_cuda(rank=None):
    """@return what cuInit said."""
    if rank is not None:
        os.environ["RANK"] = str(rank)
    lib = ctypes.CDLL("libcuda.so.1")
    said, context, p = lib.cuInit(0), ctypes.c_void_p(), ctypes.c_uint64()
    if said == 0:
        assert lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert lib.cuCtxSetCurrent(context) == 0
        assert lib.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(4096)) == 0
        assert lib.cuMemFree_v2(p) == 0
    return said


def worker(rank, answers):
    answers.put((rank, os.getpid(), use_cuda(rank)))


def bystander(rank, answers):
    answers.put((rank, os.getpid(), subprocess.call(["sh", "-c", "exit 5"])))


def client(rank, answers):
    """A worker that has the client, from its parent or by itself."""
    sys.path.insert(0, SCRIPTS)
    __import__("arena")
    worker(rank, answers)


def start_workers(method, target=worker):
    """@return [(rank, pid, answer)] of two workers."""
    context = multiprocessing.get_context(method)
    answers = context.SimpleQueue()
    workers = [context.Process(target=target, args=(rank, answers)) for rank in (1, 2)]
    for w in workers:
        w.start()
    told = sorted(answers.get() for _ in workers)
    for w in workers:
        w.join()
        assert w.exitcode == 0, w.exitcode
    return told


def play(scene, *args):
    """One scene; the last line that it prints is its result."""
    if scene == "workers":
        result = start_workers(args[0])
    elif scene == "clients":            # the parent has the client, or each worker gets it
        if args[1] == "before":
            sys.path.insert(0, SCRIPTS)
            __import__("arena")
        result = start_workers(args[0], worker if args[1] == "before" and args[0] == "fork"
                               else client)
    elif scene == "bystanders":
        use_cuda()
        result = start_workers(args[0], bystander)
    elif scene == "after":              # CUDA does not survive a fork
        use_cuda()
        result = start_workers("fork")
    elif scene == "run":
        use_cuda()
        result = [subprocess.run(list(args), check=False).returncode]
    elif scene == "spawn":
        use_cuda()
        pid = os.posix_spawn(args[0], args, os.environ)
        result = [os.WEXITSTATUS(os.waitpid(pid, 0)[1])]
    elif scene == "exec":
        use_cuda()
        sys.stdout.flush()
        os.execv(args[0], args)
    elif scene == "cuda":
        result = [use_cuda()]
    print(json.dumps([os.getpid(), result]))


# ---- what they leave behind ----

class Children(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.work, self.reports_dir = self.folder / "work", self.folder / "reports"
        for d in (self.work, self.reports_dir):
            d.mkdir()
        # A program that was set to another user must be found by that user.
        self.folder.chmod(0o755)

    def run_command(self, *command, env=None):
        """In a folder that stays empty, with nothing on stderr."""
        env = dict({k: v for k, v in os.environ.items() if k not in ("RANK", "LOCAL_RANK")},
                   LD_PRELOAD=SHIM, LD_LIBRARY_PATH=SIM,
                   ARENA_REPORT=f"{self.reports_dir}/%r-%p.jsonl", **(env or {}))
        done = subprocess.run([str(c) for c in command], env=env, cwd=self.work, text=True,
                              capture_output=True, timeout=200, check=False)
        self.assertEqual(done.stderr, "")
        self.assertEqual(list(self.work.iterdir()), [])
        return done

    def play(self, scene, *args, env=None):
        done = self.run_command(sys.executable, os.path.abspath(__file__), "scene", scene, *args,
                                env=env)
        self.assertEqual(done.returncode, 0, done.stdout)
        return json.loads(done.stdout.splitlines()[-1]) if done.stdout else None

    def reports(self):
        """{(rank, pid): types of the lines}, of the files' names."""
        found = {}
        for path in self.reports_dir.iterdir():
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            rank, pid = map(int, path.stem.split("-"))
            for line in lines:
                if line["type"] == "start":
                    self.assertEqual((line["rank"], line["pid"]), (rank, pid))
            found[rank, pid] = [line["type"] for line in lines]
        return found

    def check_reports(self, *processes, ends=True):
        """These processes have a report with a start and an exit, and no other has one. Those that
        end by _exit(), as workers that were forked do, have no exit line."""
        found = self.reports()
        self.assertEqual(sorted(found), sorted(processes))
        for types in found.values():
            self.assertEqual((types[0], types[-1]), ("start", "exit" if ends else types[-1]))

    def forget_reports(self):
        for path in self.reports_dir.iterdir():
            path.unlink()

    def test_workers(self):
        for method in ("spawn", "fork", "forkserver"):
            with self.subTest(method):
                _, told = self.play("workers", method)
                self.assertEqual([answer for _, _, answer in told], [0, 0])
                self.check_reports(*((rank, pid) for rank, pid, _ in told),
                                   ends=method == "spawn")
                self.forget_reports()

    def test_workers_with_the_client(self):
        """It sees to the exit line."""
        for method in ("spawn", "fork", "forkserver"):
            for when in ("before", "inside"):
                with self.subTest(method=method, when=when):
                    _, told = self.play("clients", method, when)
                    self.assertEqual([answer for _, _, answer in told], [0, 0])
                    self.check_reports(*((rank, pid) for rank, pid, _ in told))
                    self.forget_reports()

    def test_local_rank(self):
        """RANK counts; LOCAL_RANK names a process where it is all there is."""
        pid, _ = self.play("cuda", env={"LOCAL_RANK": "3"})
        self.check_reports((3, pid))
        other, _ = self.play("cuda", env={"LOCAL_RANK": "3", "RANK": "11"})
        self.check_reports((3, pid), (11, other))

    def test_bystanders(self):
        for method in ("spawn", "fork", "forkserver"):
            with self.subTest(method):
                pid, told = self.play("bystanders", method)
                self.assertEqual([answer for _, _, answer in told], [5, 5])
                self.check_reports((0, pid))
                self.forget_reports()

    def test_forked_after_cuda(self):
        pid, told = self.play("after")
        self.assertEqual([answer for _, _, answer in told], [NOT_INITIALISED] * 2)
        self.check_reports((0, pid))

    def test_shells_and_compilers(self):
        source, made = self.folder / "three.c", self.folder / "three.o"
        source.write_text("int main(void) { return 3; }\n")
        for status, command in ((7, ["sh", "-c", "true | cat; exit 7"]),
                                (0, [CC, "-c", "-o", made, source]),
                                (0, [CC, "-o", self.folder / "three", source]),
                                (3, [self.folder / "three"])):
            pid, result = self.play("run", *command)
            self.assertEqual(result, [status])
            self.check_reports((0, pid))
            self.forget_reports()

    def test_spawned(self):
        pid, result = self.play("spawn", HANDSHAKE, "1")
        self.assertEqual(result, [0])
        self.check_reports((0, pid))

    def test_static_program(self):
        source, made = self.folder / "three.c", self.folder / "three"
        source.write_text("int main(void) { return 3; }\n")
        if subprocess.run([CC, "-static", "-o", made, source], capture_output=True,
                          check=False).returncode:
            self.skipTest("no static libc")
        pid, result = self.play("run", made)
        self.assertEqual(result, [3])
        self.check_reports((0, pid))

    def test_environment_lost(self):
        """Nothing is there, and nothing breaks: which is why a gate is to be required."""
        pid, result = self.play("run", "env", "-i", HANDSHAKE, "0")
        self.assertEqual(result, [0])
        self.check_reports((0, pid))

    def test_exec(self):
        """The process is another one under its old number: its report begins anew in the file."""
        self.play("exec", "/bin/true")
        self.assertEqual([(t.count("start"), t.count("exit")) for t in self.reports().values()],
                         [(1, 0)])
        self.forget_reports()
        pid, _ = self.play("exec", sys.executable, os.path.abspath(__file__), "scene", "cuda")
        self.assertEqual({k: (t.count("start"), t.count("exit"))
                          for k, t in self.reports().items()}, {(0, pid): (2, 1)})

    def test_other_user(self):
        """The dynamic linker drops the preload of a program that runs as another user."""
        if os.geteuid() != 0:
            self.skipTest("only root can make such a program")
        program = self.folder / "handshake"
        shutil.copy(HANDSHAKE, program)
        os.chown(program, 65534, 65534)
        program.chmod(0o4755)
        cat = self.folder / "cat"
        shutil.copy(os.path.realpath(shutil.which("cat")), cat)
        os.chown(cat, 65534, 65534)
        cat.chmod(0o4755)
        auxv = subprocess.run([cat, "/proc/self/auxv"], capture_output=True, check=False).stdout
        pairs = dict(struct.iter_unpack("@LL", auxv[:len(auxv) // 16 * 16]))
        if not pairs.get(AT_SECURE):
            self.skipTest("set-user-id does not count in this place")
        self.assertEqual(self.run_command(program, "0").returncode, 0)
        self.check_reports()


if __name__ == "__main__":
    if sys.argv[1] == "scene":
        play(*sys.argv[2:])
        sys.exit()
    SHIM, SIM, HANDSHAKE = (os.path.abspath(p) for p in sys.argv[1:4])
    # As meson has it: a compiler cache may stand before it.
    CC = shutil.which([w for w in sys.argv[4].split()
                       if os.path.basename(w) not in ("ccache", "sccache")][0])
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
