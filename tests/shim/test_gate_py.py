#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gate() of scripts/arena.py: two processes of a real torch.distributed with gloo.

    test_gate_py.py SCRIPTS SHIM SIM [unittest options]     exit 77: no PyTorch here
"""
import json
import os
import socket
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = os.path.abspath(sys.argv[1])
sys.path.insert(0, SCRIPTS)
try:
    import torch.distributed as dist
except ImportError as error:
    print(f"no PyTorch: {error}")
    sys.exit(77)
if not dist.is_available() or not dist.is_gloo_available():
    print("PyTorch without gloo")
    sys.exit(77)


# ---- a rank ----

def reload_once(arena, role, bad=False):
    with arena.reload(role=role) as r:
        for _ in range(1 + bad):
            r.receive("w", bytes=4)
    return r.report["verdict"]


def be_rank(scene):
    """What one rank of a scene does. Prints what the gate said as the last line."""
    import arena
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=os.environ["MEETING"], rank=rank, world_size=2)
    store = dist.distributed_c10d._get_default_store()
    store.set(f"up/{rank}", "")
    said = {"rank": rank}
    gates = 3 if scene == "thrice" else 1
    for _ in range(gates):
        if scene != "nobody" and os.environ.get("LD_PRELOAD"):
            reload_once(arena, None, bad=scene == "bad" and rank == 1)
        if scene == "twice" and rank == 1:
            reload_once(arena, None)
        if scene == f"dead{rank}":
            store.wait([f"up/{1 - rank}"])      # the other one is past its start
            os._exit(9)
        try:
            group = dist.new_group([0, 1]) if scene == "group" else None
            result = arena.gate(group, timeout=4 if scene[:4] == "dead" else 60,
                                required=scene != "nobody")
            said.update(passed=result.passed, text=str(result))
        except arena.Error as error:
            said.update(error=type(error).__name__, text=str(error))
    print(json.dumps(said), flush=True)
    os._exit(0)         # a process group that lost a rank need not come to its end


# ---- both ----

class Gate(unittest.TestCase):
    def play(self, scene, meeting=None, without=()):
        """@return what each rank printed, None: it died."""
        with tempfile.TemporaryDirectory() as folder:
            meeting = meeting or f"file://{folder}/meeting"
            ranks = []
            for rank in (0, 1):
                env = dict(os.environ, RANK=str(rank), MEETING=meeting, GLOO_SOCKET_IFNAME="lo",
                           LD_LIBRARY_PATH=os.path.abspath(sys.argv[3]),
                           ARENA_REPORT=f"{folder}/%r-%p.jsonl", ARENA_LOG="error")
                env.pop("LD_PRELOAD", None)
                if rank not in without:
                    env["LD_PRELOAD"] = os.path.abspath(sys.argv[2])
                ranks.append(subprocess.Popen(
                    [sys.executable, "-W", "ignore", os.path.abspath(__file__), SCRIPTS, "rank",
                     scene], env=env, cwd=folder, text=True, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE))
            out = [p.communicate(timeout=100) for p in ranks]
            self.reports = sorted(os.listdir(folder))
        self.errors = "".join(err for _, err in out)
        return [json.loads(text.splitlines()[-1]) if text.strip() else None for text, _ in out]

    def address(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return "tcp://127.0.0.1:%d" % s.getsockname()[1]

    def check_all(self, said, error, pattern):
        for one in said:
            self.assertIsNotNone(one, self.errors)
            self.assertEqual(one.get("error"), error, one)
            self.assertRegex(one["text"], pattern)

    def test_pass(self):
        for meeting in (None, self.address()):
            self.check_all(self.play("pass", meeting), None, "^2 of 2 ranks passed$")
        self.assertEqual([name[:2] for name in self.reports if name.endswith("jsonl")],
                         ["0-", "1-"])

    def test_again_and_again(self):
        self.check_all(self.play("thrice", self.address()), None, "^2 of 2 ranks passed$")

    def test_group(self):
        self.check_all(self.play("group"), None, "^2 of 2 ranks passed$")

    def test_bad_rank(self):
        self.check_all(self.play("bad"), "GateError",
                       r"^arena gate: 1 of 2 ranks do not pass: rank 1: reload 1 fail: "
                       r"\[source-duplicate\] w")

    def test_another_reload(self):
        self.check_all(self.play("twice"), "GateError",
                       "rank 1: passed another reload: id 2, rank 0 has 1$")

    def test_dead_rank(self):
        for meeting in (None, self.address()):
            alive, dead = self.play("dead1", meeting)
            self.assertIsNone(dead)
            self.check_all([alive], "GateError", "^arena gate: 1 of 2 ranks do not pass: rank 1: "
                                                 "no answer within 4 seconds$")

    def test_dead_store(self):
        """The rank that has the store is the one that died: an error all the same."""
        dead, alive = self.play("dead0", self.address())
        self.assertIsNone(dead)
        self.check_all([alive], "Error", "the store of the process group .* does not answer")

    def test_rank_without_the_library(self):
        self.check_all(self.play("absent", without=(1,)), "GateError",
                       "rank 1: libarena_shim.so is not loaded")

    def test_no_rank_has_the_library(self):
        for one in self.play("nobody", without=(0, 1)):
            self.assertFalse(one["passed"])
            self.assertIn("nothing was proven", one["text"])


if __name__ == "__main__":
    if sys.argv[2] == "rank":
        be_rank(sys.argv[3])
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
