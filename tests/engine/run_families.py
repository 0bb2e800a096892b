#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every family of the decode engine, reloaded A, B, A, ... under captured graphs.

    run_families.py --shim LIB --engine PROGRAM [--sim DIR] [--reloads N] [--markdown]
                    [--readme FILE] [FAMILY...]

A family passes if
  - without the library, the naive reloads do harm: logits are not those of a cold load, or graphs
    write into memory of others;
  - with it, under ARENA_GATE=strict, the first of them is refused before anything is served, and
    nothing wrong is served later; where addresses moved, the launch is refused too in an engine
    that makes no call of ours;
  - where each value is copied back into its old storage, nothing is found;
  - over arenas, eager and lazy, every reload serves what a cold load serves, to the last bit of
    each logit, with no finding at all; and a mistake in a value is found before it is published.
One row a family is printed; --readme: the table between its marks has to be the same.
Exit: 0 all pass, 1 not.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile

SEED = 11
STALE = ("stale-value", "accumulated")
# What has to be among the findings of a naive reload, and of mistakes over an arena.
NAIVE = {"dense": "moved", "gptq-marlin": "moved", "gpt-oss": "stale-value",
         "nvfp4-moe": "stale-value", "mla": "moved", "fp8-moe": "moved", "b12x": "replaced",
         "rdna3": "moved"}
MISTAKES = {"dense": "stale-value", "gpt-oss": "stale-value", "nvfp4-moe": "accumulated"}
COLUMNS = ("family", "slots", "moved", "missing", "replaced", "respecified", "stale values",
           "naive, alone", "naive, strict", "arena, {reloads} reloads")
MARKS = ("<!-- families: tests/engine/run_families.py --markdown -->", "<!-- families end -->")

Run = collections.namedtuple("Run", "code out err served reports")


def served(out):
    """Of each number: what was served, all batch sizes; None: nothing."""
    lines = collections.defaultdict(list)
    for number, what in re.findall(r"^serve (\d+) batch (.*)$", out, re.M):
        lines[int(number)].append(what)
    return dict(lines)


def engine(args, family, *options, gate=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith("ARENA_")}
    if args.sim:
        env["LD_LIBRARY_PATH"] = args.sim
    with tempfile.TemporaryDirectory(prefix="arena-") as folder:
        env["TMPDIR"] = folder
        report = f"{folder}/report.jsonl"
        if gate:
            first = os.environ.get("ARENA_TEST_PRELOAD", "")
            env.update(LD_PRELOAD=" ".join(filter(None, [first, args.shim])), ARENA_GATE=gate,
                       ARENA_REPORT=report)
        command = [args.engine, f"--family={family}", *options]
        p = subprocess.run(command, env=env, text=True, capture_output=True, check=False,
                           timeout=300)
        reports = []
        if os.path.exists(report):
            with open(report, encoding="utf-8") as f:
                reports = [json.loads(line) for line in f]
    return Run(p.returncode, p.stdout, p.stderr, served(p.stdout), reports)


def kinds_of(run):
    """Errors of the first reload that was refused, by kind."""
    for line in run.reports:
        if line["type"] == "reload" and line["findings"]:
            return collections.Counter(f["kind"] for f in line["findings"]
                                       if f["severity"] == "error")
    return collections.Counter()


def tokens_of(what):
    return [line.split(" tokens ")[1] for line in what]


def harm(run, cold):
    """What the first reload did, alone; None: nothing wrong."""
    words = []
    if 1 not in run.served or len(run.served[1]) != len(cold):
        words.append("a launch failed")
    elif tokens_of(run.served[1]) != tokens_of(cold):
        words.append("wrong tokens")
    elif run.served[1] != cold:
        words.append("wrong logits")
    if re.search(r"^dirty 1 ", run.out, re.M):
        words.append("a lock that stays taken")
    if re.search(r"^harmed 1 ", run.out, re.M):
        words.append("others' memory overwritten")
    return ", ".join(words) or None


def check_cold(family, a, b):
    if a.code or b.code or not a.served.get(0) or a.served[0] == b.served.get(0):
        yield f"cold loads: exit {a.code} {b.code}, or A serves what B does: {a.err}{b.err}"


def wrong(run, a, b):
    """Numbers of what was served, but is not what a cold load serves."""
    return [n for n, what in run.served.items() if what != (b if n % 2 else a).served[0]]


def interface_used(run):
    """Lines with layers that the engine named, or reloads: what the report shows of calls of ours."""
    return [line["type"] for line in run.reports if "model.layers." in json.dumps(line)
            or line["type"] == "reload" or line["type"] == "exit" and line["reload"]["id"]]


def check_naive(family, strict, kinds, silent):
    if strict.code != 3 or 1 in strict.served or "reload 1 refused" not in strict.out:
        yield f"naive, strict: exit {strict.code}, served {sorted(strict.served)}: {strict.err}"
    if NAIVE[family] not in kinds:
        yield f"naive, strict: no {NAIVE[family]} among {dict(kinds)}"
    if kinds["moved"] and (silent.code != 3 or max(silent.served) > 0
                           or "serve 1 refused 401" not in silent.out):
        yield f"naive, no call of ours: exit {silent.code}, served {sorted(silent.served)}"
    if interface_used(silent) or not interface_used(strict):
        yield f"naive, no call of ours: {interface_used(silent)}, {interface_used(strict)}"


def check_arena(args, title, run, a, b):
    if run.code:
        yield f"{title}: exit {run.code}: {run.err}"
    if len(run.served) != args.reloads + 1 or wrong(run, a, b):
        yield f"{title}: served {sorted(run.served)}, not as a cold load: {wrong(run, a, b)}"
    ends = [line for line in run.reports if line["type"] == "exit"]
    found = {k: n for k, n in ends[0]["findings_by_kind"].items() if n} if ends else "no exit line"
    if found or ends[0]["verdict"] != "pass" or ends[0]["unproven"]:
        yield f"{title}: {found}, verdict {ends and ends[0]['verdict']}"
    if re.search(r"^(dirty|harmed) ", run.out, re.M):
        yield f"{title}: {re.findall('^(?:dirty|harmed) .*', run.out, re.M)}"


def check_copied(args, run, a, b):
    """The repair without an arena: nothing is to be found."""
    found = kinds_of(run)
    if run.code or found or len(run.served) != args.reloads + 1 or wrong(run, a, b):
        yield f"copied: exit {run.code}, {dict(found)}, served {sorted(run.served)}: {run.err}"


def check_mistakes(family, run):
    kinds = kinds_of(run)
    if run.code != 3 or max(run.served) > 0 or set(kinds) != {MISTAKES[family]}:
        yield f"mistakes over an arena: exit {run.code}, {dict(kinds)}: {run.err}"


def stale_words(kinds, mistakes):
    total = sum(kinds[k] for k in STALE)
    accumulated = mistakes["accumulated"]
    return f"{total}" + (f"; as slots: {accumulated} accumulated" if accumulated else "")


def family_row(args, family):
    """@return (cells, problems)."""
    reload, seed = f"--reloads={args.reloads}", f"--seed={SEED}"
    a = engine(args, family, seed)
    b = engine(args, family, f"--seed={SEED + 1}")
    problems = list(check_cold(family, a, b))
    if problems:
        return [family], problems
    alone = harm(engine(args, family, seed, "--reloads=1", "--pressure"), b.served[0])
    if not alone:
        problems.append("naive, alone: no harm was done, so that nothing is shown")
    strict = engine(args, family, seed, reload, "--pressure", gate="strict")
    silent = engine(args, family, seed, "--reloads=1", "--pressure", "--silent", gate="strict")
    kinds = kinds_of(strict)
    problems += check_naive(family, strict, kinds, silent)
    # A reload may bring the old address or value back by chance; then it is right to serve.
    problems += [f"naive, strict: serve {n} is wrong" for n in wrong(strict, a, b)]
    for more in ([], ["--lazy"]):
        run = engine(args, family, seed, reload, "--pressure", "--storage=arena", *more,
                     gate="strict")
        problems += check_arena(args, " ".join(["arena", *more]), run, a, b)
    run = engine(args, family, seed, reload, "--pressure", "--storage=copied", gate="strict")
    problems += check_copied(args, run, a, b)
    mistakes = collections.Counter()
    if family in MISTAKES:
        run = engine(args, family, seed, "--reloads=1", "--storage=arena", "--mistakes",
                     gate="strict")
        problems += check_mistakes(family, run)
        mistakes = kinds_of(run)
    slots = re.search(r"^slots (\d+)$", a.out, re.M)[1]
    refused = "refused at its end" + (", and at the launch" if kinds["moved"] else "")
    cells = [family, slots, *(str(kinds[k]) for k in ("moved", "missing", "replaced",
                                                      "respecified")),
             stale_words(kinds, mistakes), alone or "-", refused,
             "WRONG" if any(p.startswith("arena") for p in problems) else "equal to a cold load"]
    return cells, problems


def table(args, rows):
    names = [c.format(reloads=args.reloads) for c in COLUMNS]
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join(lines + ["| " + " | ".join(cells) + " |" for cells in rows])


def check_readme(path, text):
    with open(path, encoding="utf-8") as f:
        readme = f.read()
    between = readme.partition(MARKS[0])[2].partition(MARKS[1])[0].strip()
    if between != text:
        yield f"{path}: its table is not the one above; put in what --markdown prints"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--shim", required=True, type=os.path.realpath)
    parser.add_argument("--engine", required=True, type=os.path.realpath)
    parser.add_argument("--sim", type=os.path.realpath)
    parser.add_argument("--reloads", type=int, default=3)
    parser.add_argument("--markdown", action="store_true", help="print the table only")
    parser.add_argument("--readme")
    parser.add_argument("families", nargs="*")
    args = parser.parse_args()
    families = args.families or list(NAIVE)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda f: family_row(args, f), families))
    text = table(args, [cells for cells, _ in results])
    print(text)
    problems = [f"{f}: {p}" for f, (_, found) in zip(families, results) for p in found]
    if args.readme and not problems:
        problems += check_readme(args.readme, text)
    if not args.markdown:
        print("\n".join(problems) or "ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
