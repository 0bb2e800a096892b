#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two GPUs.

    torch_two.py devices    one process, a model and a graph on each GPU: reloads in place, then a
                            derived tensor that moves on GPU 1 only: its graph is refused, the other
                            one goes on
    torch_two.py ranks      a process a GPU, NCCL between them: a row-parallel layer whose all-reduce
                            is in the graph, reloaded in place behind the gate; then with one rank
                            whose derived tensor moved: the gate fails on both, and nobody replays

Prints ok or WRONG a scene; exit 1 when something is wrong, 77 with fewer than two GPUs."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import arena  # noqa: E402

N, RELOADS = 512, 10
GATE_SECONDS = 60


class Model(torch.nn.Module):
    """A weight, what post-load processing derives of it, and a graph that reads both."""

    def __init__(self, device, finish=lambda out: None):
        super().__init__()
        with torch.cuda.device(device):
            self.weight = torch.full((N, N), 0.5, device=device)
            self.derived = self.weight.t().contiguous()
            self.x = torch.ones(4, N, device=device)
            self.out = torch.zeros(4, N, device=device)
            self.finish = finish
            self.step()
            torch.cuda.synchronize(device)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=torch.cuda.Stream(device)):
                self.step()

    def step(self):
        torch.add(self.x @ self.derived, self.x @ self.weight, out=self.out)
        self.finish(self.out)

    def load(self, value, move=False):
        self.weight.fill_(value)
        if move:
            self.derived = None
            self.derived = (self.weight * 2).t().contiguous()
        else:
            self.derived.copy_(self.weight.t())

    def replay(self):
        self.graph.replay()
        torch.cuda.synchronize(self.out.device)
        return self.out[0, 0].item()


def say(scene, good, text):
    print(f"{'ok' if good else 'WRONG'} {scene}: {text}", flush=True)
    return good


def be_devices():
    models = [Model(f"cuda:{i}") for i in range(2)]
    watches = [arena.watch(m, f"gpu{i}", required=True) for i, m in enumerate(models)]
    right = True
    for turn in range(RELOADS):
        with arena.reload(watch=watches):
            for i, model in enumerate(models):
                model.load(turn + i)
        right &= [m.replay() for m in models] == [2.0 * N * turn, 2.0 * N * (turn + 1)]
    good = say("two devices", right, f"{RELOADS} reloads in place")
    try:
        with arena.reload(watch=watches):
            for i, model in enumerate(models):
                model.load(3.0, move=i == 1)
        good &= say("moved on one", False, "the reload passed")
    except arena.Refused as refused:
        good &= say("moved on one", "gpu1" in str(refused) and "gpu0" not in str(refused), refused)
    got = models[0].replay()
    good &= say("the other one", got == 2.0 * N * 3, got)
    out = models[1].out.clone()
    try:
        models[1].replay()
        good &= say("its graph", False, "was launched")
    except RuntimeError as error:
        good &= say("its graph", torch.equal(out, models[1].out), str(error).splitlines()[0])
    return good


def be_rank(scene, rank, meeting):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=meeting, rank=rank, world_size=2,
                            device_id=torch.device("cuda", rank))
    dist.all_reduce(torch.ones(1, device="cuda"))
    model = Model(f"cuda:{rank}", dist.all_reduce)
    watch = arena.watch(model, "model", required=True)
    said = []
    for turn in range(1, RELOADS + 1):
        is_bad = scene == "bad" and rank == 1 and turn == RELOADS
        try:
            with arena.reload(watch=watch):
                model.load(turn * (rank + 1), move=is_bad)
        except arena.Refused:
            pass                # the gate says it on every rank
        try:
            text = str(arena.gate(timeout=GATE_SECONDS))
        except arena.GateError as error:
            said.append(f"GateError: {error}")
            break               # nobody replays: the other rank would wait in its all-reduce
        want = 2.0 * N * turn * 3
        got = model.replay()
        if got != want:
            said.append(f"turn {turn}: {got} instead of {want}")
    else:
        said.append(text)
    print(json.dumps("; ".join(said)), flush=True)
    os._exit(0)


EXPECTED = {
    "pass": "2 of 2 ranks passed",
    "bad": "GateError: arena gate: 1 of 2 ranks do not pass: rank 1: reload ",
}


def play_ranks():
    good = True
    for scene, want in EXPECTED.items():
        with tempfile.TemporaryDirectory() as folder:
            ranks = [subprocess.Popen(
                [sys.executable, __file__, scene, str(rank), f"file://{folder}/meeting"],
                text=True, env=dict(os.environ, RANK=str(rank)), stdout=subprocess.PIPE)
                for rank in range(2)]
            told = [p.communicate(timeout=120)[0].strip().splitlines() for p in ranks]
        for rank, lines in enumerate(told):
            said = json.loads(lines[-1]) if lines else "nothing"
            good &= say(f"{scene}, rank {rank}", said.startswith(want), said)
    return good


def main():
    if torch.cuda.device_count() < 2:
        print("two GPUs are needed")
        return 77
    torch.set_grad_enabled(False)
    return 0 if {"devices": be_devices, "ranks": play_ranks}[sys.argv[1]]() else 1


if __name__ == "__main__":
    if len(sys.argv) > 2:
        torch.set_grad_enabled(False)
        be_rank(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    sys.exit(main())
