#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The engine itself: test_engine.py --shim LIB --engine PROGRAM --sim DIR

  - each derived tensor has its say: when a reload leaves it alone, the logits are not those of a
    cold load;
  - a reload that fails, lacks a source, or is partial ends as it should, and what is served then is
    right;
  - a wrong command line is one line, and exit 2;
  - checkpoints in files serve what those in memory do, and wrong ones are one line.
Exit: 0 all as expected, 1 not.
"""
import argparse
import os
import re
import sys
import tempfile

import run_families
from run_families import engine

# The same in each checkpoint: strides, ones, groups in order.
CONSTANT = {"ab_strides1", "ab_strides2", "c_strides1", "alphas", "fc2_input_scale",
            "self_attn.o_proj.g_idx_sorted", "mlp.down_proj.g_idx_sorted"}
# Read by derivations only, or by nothing.
UNREAD = {"a13", "a2", "w13_baked", "w2_baked"}
SOURCE = "model.layers.1.self_attn.o_proj.weight"
BAD = [
    ([], "--family is missing: --list names them"),
    (["--family=nothing"], "there is no family 'nothing': --list names them"),
    (["--family"], "--family needs a value: --family=F"),
    (["--family=mla", "--storage=x"], "--storage=x: it is naive, copied or arena"),
    (["--family=mla", "--reloads=-1"], "--reloads=-1: it is a number from 0 to 100000"),
    (["--family=mla", "--tokens=65"], "--tokens=65: it is a number from 1 to 64"),
    (["--family=mla", "--tokens=0"], "--tokens=0: it is a number from 1 to 64"),
    (["--family=mla", "--fail-at=1x"], "--fail-at=1x: it is a number from 0 to 2"),
    (["--family=mla", "--lazy=1"], "--lazy takes no value"),
    (["--family=mla", "--what"], "unknown argument '--what': --help lists them"),
    (["--family=mla", "--mistakes"], "--mistakes is for --storage=arena"),
    (["--family=mla", "--keep=W_UV"], "--keep=W_UV is for --storage=copied"),
    (["--family=mla", "--silent", "--storage=arena"], "--silent with --storage=arena"),
    (["--family=mla", "--partial", "--fail-at=1"], "--fail-at=1 with --partial"),
    (["--family=mla", "--fail-at=1"], "--fail-at=1 needs --reloads"),
    (["--family=mla", "--reloads=1", "--fail-at=3"], "--fail-at=3: it is a number from 0 to 2"),
    (["--family=mla", f"--omit={SOURCE}"], f"--omit={SOURCE} needs --reloads"),
    (["--family=mla", "--reloads=1", "--omit="], "--omit needs a value: --omit=SOURCE"),
    (["--family=mla", "--reloads=1", "--omit", ""], "--omit needs a value: --omit=SOURCE"),
    (["--family=mla", "--reloads=1", "--omit=x"], "--omit=x: the family loads no tensor"),
    (["--family=mla", "--reloads=1", "--storage=copied", "--keep=x"], "--keep=x: no layer"),
]


def check_dependence(args, family):
    listed = engine(args, family, "--derived").out
    b = engine(args, family, "--seed=2").served[0]
    run = engine(args, family, "--reloads=1", "--storage=copied")
    if run.served.get(1) != b:
        yield f"{family}: copied, and it does not serve what a cold load does"
    if family != "dense" and not listed:
        yield f"{family}: --derived lists nothing"
    names = sorted(set(re.findall(r"^derived \S+ (\S+)$", listed, re.M)) - UNREAD - CONSTANT)
    for name in names:
        # Everything else is right.
        run = engine(args, family, "--reloads=1", "--storage=copied", f"--keep={name}")
        if run.code or run.served[1] == b:
            yield f"{family}: {name} keeps its old value, and the logits are right: {run.err}"


def arena(args, *options):
    return engine(args, "mla", "--storage=arena", "--pressure", *options, gate="strict")


def expect(title, run, code, *words):
    missing = [w for w in words if w not in run.out + run.err]
    if run.code != code or missing:
        yield f"{title}: exit {run.code}, no {missing} in: {run.out}{run.err}"


def check_modes(args):
    a, b = (engine(args, "mla", f"--seed={seed}").served[0] for seed in (1, 2))
    half = engine(args, "mla", "--partial").served[0]
    run = arena(args, "--reloads=1", "--partial")
    yield from expect("partial", run, 0, "reload 1 pass")
    if run.served.get(1) != half or half in (a, b):
        yield "partial: it does not serve layer 0 of B in A"
    run = arena(args, "--reloads=3", "--fail-at=1")
    yield from expect("fail at", run, 3, "reload 1 aborted", "reload 2 pass", "reload 3 pass")
    if 1 in run.served or run.served.get(2) != a or run.served.get(3) != b:
        yield "fail at: it does not serve A, then B, after the failure"
    run = arena(args, "--reloads=1", f"--omit={SOURCE}")
    yield from expect("omit", run, 3, "reload 1 refused", f"[source-missing] {SOURCE}")
    if 1 in run.served:
        yield "omit: it serves"
    run = engine(args, "mla", "--reloads=1", f"--omit={SOURCE}")
    yield from expect("omit, alone", run, 0)
    if run.served[1] == b:
        yield "omit, alone: no harm"


def check_usage(args):
    for options, words in BAD:
        command = options[1:] if options[:1] == ["--family=mla"] else options
        run = (engine(args, "mla", *command) if command is not options
               else engine_alone(args, options))
        if run.code != 2 or run.err.count("\n") != 1 or words not in run.err or run.out:
            yield f"{options}: exit {run.code}: {run.out}{run.err}"
    run = engine(args, "mla", "--storage=arena")
    if run.code != 77 or run.err.count("\n") != 1:
        yield f"no library: exit {run.code}: {run.err}"


def check_help(args):
    for option in ("-h", "--help"):
        run = engine_alone(args, [option])
        if run.code or run.err or not run.out.startswith("usage: engine"):
            yield f"{option}: exit {run.code}: {run.out}{run.err}"


def check_files(args):
    """Checkpoints in files: the same tokens; another family's, or no file at all: one line."""
    with tempfile.TemporaryDirectory() as folder:
        a, b, other = (os.path.join(folder, n) for n in ("a", "b", "other"))
        engine(args, "mla", f"--write-a={a}", f"--write-b={b}")
        engine(args, "gpt-oss", f"--write-a={other}")
        want = engine(args, "mla", "--reloads=1", "--storage=copied").served
        run = engine(args, "mla", "--reloads=1", "--storage=copied", f"--checkpoint-a={b}",
                     f"--checkpoint-b={a}")
        if not want or run.served != {0: want[1], 1: want[0]}:
            yield f"files: not the same tokens: {run.out}{run.err}"
        os.mkfifo(os.path.join(folder, "fifo"))
        with open(b, "rb") as f:
            data = f.read()
        for name, old, new in (("name", b"lm_head", b"lm_HEAD"),
                               ("shape", b"[192,128]", b"[128,192]")):
            with open(os.path.join(folder, name), "wb") as f:
                f.write(data.replace(old, new))
        for name, words in (("other", "the family loads BF16 ["),
                            ("name", "it has no tensor 'lm_head.weight', which the family loads"),
                            ("shape", "is BF16 [128, 192], the family loads BF16 [192, 128]"),
                            ("fifo", "not a regular file"), ("none", "No such file")):
            run = engine(args, "mla", f"--checkpoint-a={os.path.join(folder, name)}")
            if run.code != 1 or run.err.count("\n") != 1 or words not in run.err:
                yield f"{name}: exit {run.code}: {run.err}"


def engine_alone(args, options):
    """Without --family in front."""
    env = {**os.environ, "LD_LIBRARY_PATH": args.sim}
    p = run_families.subprocess.run([args.engine, *options], env=env, text=True,
                                    capture_output=True, check=False)
    return run_families.Run(p.returncode, p.stdout, p.stderr, {}, [])


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("--shim", "--engine", "--sim"):
        parser.add_argument(name, required=True, type=os.path.realpath)
    args = parser.parse_args()
    problems = [*check_usage(args), *check_help(args), *check_files(args), *check_modes(args)]
    for family in run_families.NAIVE:
        problems += check_dependence(args, family)
    print("\n".join(problems) or "ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
