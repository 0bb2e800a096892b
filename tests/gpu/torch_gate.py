#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two processes on one GPU, gloo between them, and the gate over both: torch_gate.py
Each scene (pass, bad, dead) is a pair of processes of its own. Prints what the gate says."""
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

N = 1 << 16
TIMEOUT = 8                     # seconds, that a rank waits for one that is dead
EXPECTED = {
    "pass": ["2 of 2 ranks passed"] * 2,
    "bad": ["GateError: arena gate: 1 of 2 ranks do not pass: rank 1: reload 1 fail: "] * 2,
    "dead": ["GateError: arena gate: 1 of 2 ranks do not pass: rank 1: no answer within "
             f"{TIMEOUT} seconds", None],
}


def be_rank(scene, rank, meeting):
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    model = torch.nn.Linear(256, 256, bias=False, device="cuda")
    model.W_UV = model.weight.detach().t().contiguous()
    watch = arena.watch(model, "model", required=True)
    out = torch.zeros(256, 256, device="cuda")
    torch.add(out, model.W_UV, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.add(out, model.W_UV, out=out)
    try:
        with arena.reload(watch=watch), torch.no_grad():
            model.weight.fill_(2.0)
            if scene == "bad" and rank == 1:
                model.W_UV = model.weight.detach().t().contiguous()
            else:
                model.W_UV.copy_(model.weight.t())
    except arena.Refused:
        pass                    # strict; the gate says it on every rank
    if scene == "dead" and rank == 1:
        os._exit(9)
    try:
        said = str(arena.gate(timeout=TIMEOUT if scene == "dead" else 60))
    except arena.GateError as error:
        said = f"GateError: {error}"
    print(json.dumps(said), flush=True)
    os._exit(0)                 # a process group that lost a rank need not come to its end


def play(scene):
    """@return what the ranks said; None: it died without a word."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen(
            [sys.executable, __file__, scene, str(rank), f"file://{folder}/meeting"], text=True,
            env=dict(os.environ, RANK=str(rank), GLOO_SOCKET_IFNAME="lo"),
            stdout=subprocess.PIPE) for rank in (0, 1)]
        told = [p.communicate(timeout=80)[0].strip() for p in ranks]
    return [json.loads(text.splitlines()[-1]) if text else None for text in told]


def main():
    wrong = 0
    for scene, expected in EXPECTED.items():
        for rank, (said, want) in enumerate(zip(play(scene), expected)):
            good = said is None if want is None else str(said).startswith(want)
            wrong += not good
            print(f"{'ok' if good else 'WRONG'} {scene} rank {rank}: {said}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        be_rank(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    sys.exit(main())
