#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The engine itself: test_engine.py --shim LIB --engine PROGRAM --sim DIR

  - each derived tensor has its say: when a reload leaves it alone, the logits are not those of a
    cold load;
  - a reload that fails, lacks a source, or is partial ends as it should, and what is served then is
    right;
  - a wrong command line is one line, and exit 2;
  - checkpoints in files serve what those in memory do, and wrong ones are one line;
  - models of other sizes reload as well, with sizes that the file says.
Exit: 0 all as expected, 1 not.
"""
import argparse
import json
import os
import re
import sys
import tempfile

import run_families
from run_families import engine

PROJECTIONS = [*(f"self_attn.{p}_proj" for p in "qkvo"),
               *(f"mlp.{p}_proj" for p in ("gate", "up", "down"))]
# The same in each checkpoint: strides, ones, groups in order.
CONSTANT = {"ab_strides1", "ab_strides2", "c_strides1", "alphas", "fc2_input_scale",
            *(f"{p}.g_idx_sorted" for p in PROJECTIONS)}
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
    (["--family=mla", "--fail-at=1x"], "--fail-at=1x: it is a number from 0 to 64"),
    (["--family=mla", "--lazy=1"], "--lazy takes no value"),
    (["--family=mla", "--what"], "unknown argument '--what': --help lists them"),
    (["--family=mla", "--mistakes"], "--mistakes is for --storage=arena"),
    (["--family=mla", "--mistakes", "--storage=arena"], "--mistakes: family mla makes none"),
    (["--family=a\nb\033"], "there is no family 'a?b?': --list names them"),
    (["--family=mla", "--config=hidden_size=1\n2"], "--config: hidden_size is '1?2': it is"),
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
    (["--family=mla", "--config=x=1"], "--config: 'x' is no NAME=N of a size: --help lists them"),
    (["--family=mla", "--config=hidden_size"], "--config: 'hidden_size' is no NAME=N"),
    (["--family=mla", "--config=hidden_size=100"],
     "--config: hidden_size is '100': it is a multiple of 64 from 64 to 8192"),
    (["--family=mla", "--config=vocab_size=-5"], "--config: vocab_size is '-5': it is a multiple"),
    (["--family=mla", "--config=num_key_value_heads=3"], "4 num_attention_heads are no multiple"),
    (["--family=mla", "--config=num_experts_per_tok=5"], "num_experts_per_tok is 5, of 4"),
    (["--family=mla", "--config=num_attention_heads=3,num_key_value_heads=1"],
     "--config: num_key_value_heads * head_dim is 32: it is a multiple of 64"),
    (["--family=mla", "--config=vocab_size=200", "--checkpoint-a=x"],
     "--config=vocab_size=200 with a file: it says its sizes itself"),
    (["--family=mla", "--config=num_hidden_layers=1", "--reloads=1", "--fail-at=2"],
     "--fail-at=2: it is a number from 0 to 1"),
]
# Nothing as usual; and rows, heads and experts that fill no tile.
SIZES = ["hidden_size=256,num_hidden_layers=3,vocab_size=200,intermediate_size=192",
         "hidden_size=192,num_hidden_layers=1,vocab_size=101,num_attention_heads=6,"
         "num_key_value_heads=3,head_dim=64,num_local_experts=5,num_experts_per_tok=3,"
         "moe_intermediate_size=96,qk_rope_head_dim=64,qk_nope_head_dim=24,v_head_dim=40,"
         "kv_lora_rank=48"]


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


def check_sizes(args, family):
    for config in SIZES:
        size = [f"--config={config}", "--tokens=3"]
        a, b = (engine(args, family, *size, f"--seed={seed}").served.get(0) for seed in (1, 2))
        run = engine(args, family, *size, "--reloads=2", "--storage=arena", "--pressure",
                     gate="strict")
        if not a or a == b or run.code or run.served != {0: a, 1: b, 2: a}:
            yield f"{family}, {config}: exit {run.code}: {run.out}{run.err}"


def rewrite(path, to, edit):
    """The same checkpoint as others may write it: data the other way round, keys in another order,
    spaces; @edit changes the metadata."""
    with open(path, "rb") as f:
        length = int.from_bytes(f.read(8), "little")
        header, data = json.loads(f.read(length)), f.read()
    metadata = header.pop("__metadata__")
    edit(metadata)
    out, entries = b"", []
    for name, t in reversed(header.items()):
        begin, end = t["data_offsets"]
        entries.append((name, {"data_offsets": [len(out), len(out) + end - begin],
                               "shape": t["shape"], "dtype": t["dtype"]}))
        out += data[begin:end]
    entries.insert(3, ("__metadata__", {"format": "pt", **metadata}))
    text = json.dumps(dict(entries), indent=1).encode() + b" " * 13
    with open(to, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + out)


# What a file's metadata may have wrong.
METADATA = [
    ({"hidden_size": "1e3"}, "hidden_size is '1e3': it is a multiple of 64 from 64 to 8192"),
    ({"hidden_size": "99999999999999999999"}, "hidden_size is '99999999999999999999': it is"),
    ({"hidden_size": 256}, "its __metadata__ has something that is no text"),
    ({"num_hidden_layers": "4"}, "it has no tensor 'model.layers.3."),
    ({"num_local_experts": "1"}, "num_experts_per_tok is 2, of 1 num_local_experts"),
    ({"vocab_size": "201"}, "is BF16 [200, 256], the family loads BF16 [201, 256]"),
]


def check_size_files(args):
    with tempfile.TemporaryDirectory() as folder:
        a, b, changed = (os.path.join(folder, n) for n in "abc")
        engine(args, "mla", f"--config={SIZES[0]}", f"--write-a={a}")
        want = engine(args, "mla", f"--config={SIZES[0]}", "--reloads=1", "--storage=copied")
        rewrite(a, b, lambda m: None)
        for options in ([f"--checkpoint-a={b}"], [f"--checkpoint-a={a}"]):
            # B by seed has the sizes of the file.
            run = engine(args, "mla", *options, "--reloads=1", "--storage=copied")
            if not want.served or run.code or run.served != want.served:
                yield f"{options}: exit {run.code}: {run.out}{run.err}"
        for edit, words in METADATA:
            rewrite(a, changed, lambda m, edit=edit: m.update(edit))
            run = engine(args, "mla", f"--checkpoint-a={changed}")
            if run.code != 1 or run.err.count("\n") != 1 or words not in run.err:
                yield f"{edit}: exit {run.code}: {run.err}"
        engine(args, "mla", f"--write-a={changed}")
        run = engine(args, "mla", f"--checkpoint-a={a}", f"--checkpoint-b={changed}")
        if run.code != 1 or "c: hidden_size is 128, of A it is 256: a reload" not in run.err:
            yield f"files of two sizes: exit {run.code}: {run.err}"


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
    problems = [*check_usage(args), *check_help(args), *check_files(args), *check_modes(args),
                *check_size_files(args)]
    for family in run_families.NAIVE:
        problems += [*check_dependence(args, family), *check_sizes(args, family)]
    print("\n".join(problems) or "ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
