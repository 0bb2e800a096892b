#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scenes of a window (scenes.c, guest.c), run with the library and the fake libcupti.

    run_scenes.py --shim LIB --sim DIR --recorder DIR --cupti DIR [--scene NAME]...

A scene names its program and form, the environment, and what must come of it:
  counts   counters of the fake at exit (fake.h); a number, or a word and a number: "<= 500"
  lines    type -> how many lines of it the report has, in the same form
  ledger   fields of "ledger" in the exit line, in the same form
  gaps     counts of "coverage" in the exit line, in the same form
  cupti    fields of "cupti" in the exit line, dotted, in the same form
  noted    coverage key -> text in its notes
  warns    texts, one for each warning on stderr: no others may be there
  verdict  default: pass
  launches outcomes that the program prints; 401 is refused
The program must print the same as without the library, unless launches are listed, and end well.
Exit: 0 all as expected, 1 not.
"""
import argparse
import concurrent.futures
import json
import operator
import os
import pathlib
import re
import subprocess
import sys
import tempfile

COMPARE = {"<=": operator.le, ">=": operator.ge, "==": operator.eq}
FULL, V1, BARE = "", "v1", "bare"       # variants of the fake
GARBAGE, ABSENT = "garbage", "absent"   # a text file; no libarena_cupti.so

CLOSED = {"attached": 0, "subscribed": 0, "finalizes_inside": 0}
NOBODY = {"subscribes": 0, "finalizes": 0, "attached": 0}


def scene(program, form, mode, counts=None, *, lib=FULL, env=None, cupti=None, noted=None,
          lines=None, ledger=None, gaps=None, warns=(), verdict="pass", launches=None):
    return {"program": program, "form": form, "mode": mode, "counts": counts or {}, "lib": lib,
            "env": env or {}, "lines": lines or {}, "ledger": ledger or {},
            "gaps": gaps or {}, "cupti": cupti or {}, "noted": noted or {}, "warns": warns,
            "verdict": verdict, "launches": launches}


AGREE = {"cross.compared": ">= 1", "cross.reasons.node-only-cupti": 0,
         "cross.reasons.node-only-walk": 0, "cross.reasons.address-only-cupti": 0,
         "cross.reasons.address-only-walk": 0}
# A capture while a guest is there: said once, and in the report.
STAYED_OUT = {"noted": {"cupti-busy": "the program itself"}, "warns": ["interposition alone"]}
SCENES = {
    # ---- windows ----
    "off": scene("scenes", "fifty", "off", NOBODY, cupti={"windows": 0, "cross.compared": 0}),
    "auto": scene("scenes", "fifty", "auto", NOBODY),
    "fifty captures": scene("scenes", "fifty", "capture", {
        **CLOSED, "subscribes": 1, "finalizes": 1, "replays": 1250, "replays_attached": "<= 532",
    }, cupti={"windows": 1, "cross.compared": 50, "cross.agreed": 50}),
    "later captures": scene("scenes", "later", "capture", {
        **CLOSED, "subscribes": 3, "finalizes": 3, "replays_attached": "<= 1446",
    }, cupti={"windows": 3, "cross.compared": 3, "cross.agreed": 3}),
    "always": scene("scenes", "later", "always", {
        "subscribes": 1, "finalizes": "<= 1", "replays_attached": 1800}, cupti={"windows": 1}),
    "a phase": scene("scenes", "phase", "capture", {
        **CLOSED, "subscribes": 1, "finalizes": 1, "replays": 2400, "replays_attached": ">= 1800",
    }, cupti={"windows": 1, "cross.compared": 4}),
    "a phase, auto": scene("scenes", "phase", "auto", {
        **CLOSED, "subscribes": 1, "finalizes": 1}, cupti={"windows": 1}),
    "a phase, off": scene("scenes", "phase", "off", NOBODY),
    "an empty phase": scene("scenes", "phase-empty", "auto", {"subscribes": 1}),
    "CUPTI's own memory": scene(
        "scenes", "later", "capture", {**CLOSED, "subscribes": 3},
        env={"FAKE_CUPTI_ALLOCATES": "1"}, ledger={"opened": 2, "closed": 0}),
    "no graphs": scene("scenes", "only-eager", "capture", NOBODY),
    "ends in a window": scene("scenes", "ends", "capture", {"subscribes": 1}),
    "ends in a capture": scene("scenes", "ends-capturing", "capture", {"subscribes": 1}),
    "threads": scene("scenes", "threads", "capture", {**CLOSED, "subscribes": ">= 1"},
                     cupti={"cross.compared": ">= 1"}),
    "a forked child": scene("scenes", "forks", "capture", {
        **CLOSED, "subscribes": 1, "finalizes": 1}),
    "edits": scene("scenes", "edits", "capture", CLOSED, cupti=AGREE),
    "edits, always": scene("scenes", "edits", "always", {"subscribes": 1}, cupti=AGREE),
    # ---- what only CUPTI sees: made by way of calls that pass by the library ----
    "an unseen node": scene("scenes", "unseen-node", "capture", launches=["401"], verdict="fail"),
    "an unseen node, alone": scene("scenes", "unseen-node", "alone", launches=["401"],
                                   verdict="fail"),
    "an unseen clone": scene("scenes", "unseen-clone", "capture", launches=["401"],
                             verdict="fail"),
    "an unseen exec, off": scene("scenes", "unseen-exec", "off", gaps={"unknown-exec": 0}),
    "an unseen exec": scene("scenes", "unseen-exec", "capture", gaps={"unknown-exec": 1},
                            verdict="unproven"),
    "a refused exec": scene("scenes", "refused-exec", "capture", cupti={
        **AGREE, "cross.compared": 2, "cross.agreed": 2}),
    # CUPTI does not tell of new parameters: it is no difference, and by itself it misses them.
    "changes": scene("scenes", "changes", "capture", launches=["0", "401"], verdict="fail", cupti={
        **AGREE, "cross.compared": 2, "cross.agreed": 2, "cross.changed": 2}),
    "changes, alone": scene("scenes", "changes", "alone", launches=["0", "700"], cupti={
        **AGREE, "cross.changed": 2}),
    "an unseen body, off": scene("scenes", "unseen-body", "off", launches=["0", "700"],
                                 verdict="unproven"),
    "an unseen body": scene("scenes", "unseen-body", "capture", launches=["0", "401"],
                            verdict="fail"),
    "an unseen body, always": scene("scenes", "unseen-body", "always", launches=["0", "401"],
                                    verdict="fail"),
    "an unseen body, auto": scene("scenes", "second-body", "auto", {"subscribes": 1},
                                  launches=["0", "0", "401"], verdict="fail"),
    "a body that is seen, auto": scene("scenes", "seen-body", "auto", NOBODY),
    # ---- what neither sees counts once ----
    "a cut extent, off": scene("scenes", "cut", "off", gaps={"extent-cut": 1},
                               verdict="unproven"),
    "a cut extent": scene("scenes", "cut", "capture", {"subscribes": 1}, gaps={"extent-cut": 1},
                          verdict="unproven"),
    "a cut extent, alone": scene("scenes", "cut", "alone", {"subscribes": 1},
                                 gaps={"extent-cut": 1}, verdict="unproven"),
    # ---- audits ----
    "launches": scene("scenes", "only-eager", "always", env={"ARENA_CUPTI_LAUNCHES": "on"},
                      cupti={"events.launch": ">= 600", "windows": 1},
                      lines={"launch": ">= 600"}),
    "launches, counted": scene("scenes", "fifty", "capture",
                               env={"ARENA_CUPTI_LAUNCHES": "on"},
                               cupti={"events.launch": ">= 1"}, lines={"launch": 0}),
    # ---- sources that differ ----
    "a node is lost": scene(
        "scenes", "ends", "capture", env={"FAKE_CUPTI_DROP": "13:1"},
        cupti={"cross.reasons.node-only-walk": 1, "cross.agreed": 0}),
    "a node too many": scene(
        "scenes", "edits", "capture", env={"FAKE_CUPTI_ADD": "20:3"}, verdict="unproven",
        cupti={"cross.reasons.node-only-cupti": 1}),
    # ---- guests ----
    "a guest was there first": scene(
        "guest", "first", "capture", {**CLOSED, "subscribes": 2, "finalizes": 2, "refused": 0},
        **STAYED_OUT),
    "a tool with a name": scene(
        "scenes", "later", "capture", NOBODY, env={"FAKE_CUPTI_OTHER": "Nsight Systems"},
        noted={"cupti-busy": "Nsight Systems"}, warns=["Nsight Systems"]),
    "a tool whose name is not told": scene(
        "scenes", "later", "capture", NOBODY, lib=V1, env={"FAKE_CUPTI_OTHER": "Nsight Systems"},
        noted={"cupti-busy": "a subscriber without a name"}, warns=["another subscriber"]),
    "a guest arrives": scene(
        "guest", "arrives", "capture", {**CLOSED, "subscribes": 3, "finalizes": 3, "refused": 0},
        cupti={"yielded": 1, "windows": 2}, **STAYED_OUT),
    "a guest arrives, always": scene(
        "guest", "arrives", "always", {"subscribes": 3, "refused": 0}, cupti={"yielded": 1},
        **STAYED_OUT),
    "a guest arrives in a capture": scene(
        "guest", "arrives-capturing", "capture", {**CLOSED, "subscribes": 2, "refused": 0},
        cupti={"yielded": 1}),
    "a guest that looks up": scene(
        "guest", "looks-up", "capture", {**CLOSED, "subscribes": 2, "refused": 0},
        cupti={"yielded": 1}, **STAYED_OUT),
    "a profiler's activities": scene(
        "guest", "activity", "capture", {**CLOSED, "refused": 0}, cupti={"yielded": 1},
        **STAYED_OUT),
    "a guest finalises": scene(
        "guest", "finalizes", "capture", {**CLOSED, "subscribes": 2, "finalizes": 2},
        cupti={"lost": 1, "windows": 2}),
    "a guest in a forked child": scene(
        "guest", "forks", "capture", {**CLOSED, "subscribes": 1, "finalizes": 1},
        cupti={"windows": 1, "yielded": 0}),
    "a guest while another thread attaches": scene(
        "guest", "meets-slow", "capture", {**CLOSED, "subscribes": 2, "refused": 0},
        env={"FAKE_CUPTI_SLOW": "1"}, cupti={"yielded": 1}),
    # ---- constructors that another thread's window meets ----
    "a constructor makes graphs": scene(
        "guest", "constructor-graphs", "capture", {**CLOSED, "subscribes": 1, "finalizes": 1},
        gaps={"cupti-skipped": 10}, cupti={"windows": 1}),
    "a constructor subscribes": scene(
        "guest", "constructor-subscribes", "capture", {
            **CLOSED, "subscribes": 2, "refused": 0, "finalizes": 1}, cupti={"windows": 1}),
    "a constructor enables activities": scene(
        "guest", "constructor-enables", "capture", {
            "subscribes": 0, "refused": 0, "finalizes": 0, "activities": 1}, **STAYED_OUT),
    # ---- no CUPTI ----
    "garbage": scene("scenes", "later", "capture", lib=GARBAGE,
                     noted={"cupti-unavailable": "libcupti"}, warns=["no libcupti"]),
    "no recorder": scene("scenes", "later", "capture", NOBODY, lib=ABSENT,
                         noted={"cupti-unavailable": "libarena_cupti.so"}, warns=["was not found"]),
    "too old": scene("scenes", "later", "capture", NOBODY, env={"FAKE_CUPTI_VERSION": "17"},
                     noted={"cupti-unavailable": "too old"}, warns=["too old"]),
    "without cuptiFinalize": scene("scenes", "later", "capture", NOBODY, lib=BARE,
                                   noted={"cupti-unavailable": "cuptiFinalize"},
                                   warns=["cuptiFinalize"]),
    "refused": scene("scenes", "later", "capture", NOBODY,
                     env={"FAKE_CUPTI_FAIL": "cuptiSubscribe_v2=40"},
                     noted={"cupti-unavailable": "refuses"}, warns=["refuses"]),
    "no version": scene("scenes", "later", "capture", NOBODY,
                        env={"FAKE_CUPTI_FAIL": "cuptiGetVersion=7"},
                        noted={"cupti-unavailable": "cuptiGetVersion failed (7)"},
                        warns=["cuptiGetVersion failed (7)"]),
    "cannot be finalised": scene("scenes", "later", "capture", {"subscribes": 1},
                                 env={"FAKE_CUPTI_FAIL": "cuptiFinalize=7"},
                                 noted={"cupti-unavailable": "not finalised: CUPTI_ERROR (7)"},
                                 warns=["not finalised"], cupti={"windows": 1}),
    "ends, cannot be finalised": scene("scenes", "ends", "capture", {"subscribes": 1},
                                       env={"FAKE_CUPTI_FAIL": "cuptiFinalize=7"}),
}


def holds(got, want):
    if not isinstance(want, str):
        return got == want
    word, number = want.split()
    return got is not None and COMPARE[word](got, int(number))


def at(tree, dotted):
    for key in dotted.split("."):
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def libraries(args, what, folder):
    """The search path: the fake in its variant, the driver, the recorder."""
    cupti = pathlib.Path(args.cupti) / what["lib"]
    if what["lib"] == GARBAGE:
        cupti = folder
        for soname in ("libcupti.so.13", "libcupti.so.12"):
            (folder / soname).write_text("this is no library\n")
    paths = [args.cupti if what["lib"] == ABSENT else cupti, args.sim]
    return os.pathsep.join(map(str, paths + ([] if what["lib"] == ABSENT else [args.recorder])))


def run(args, what, folder, with_library):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("ARENA_", "SIM_", "FAKE_", "CUDA_")) and k != "LD_PRELOAD"}
    first = os.environ.get("ARENA_TEST_PRELOAD", "")
    env.update(what["env"], LD_LIBRARY_PATH=libraries(args, what, folder))
    if with_library:
        env.update(LD_PRELOAD=" ".join(filter(None, [first, args.shim])), ARENA_GATE="strict",
                   ARENA_CUPTI=what["mode"], ARENA_REPORT=f"{folder}/%p.jsonl",
                   FAKE_CUPTI_COUNTS=f"{folder}/counts")
        if "ARENA_TEST_STACKS" in os.environ:
            env["ARENA_STACKS"] = os.environ["ARENA_TEST_STACKS"]
    process = subprocess.Popen([pathlib.Path(args.cupti, what["program"]), what["form"]], env=env,
                               cwd=folder, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    try:
        process.out, process.err = process.communicate(timeout=100)
    except subprocess.TimeoutExpired:
        process.kill()
        process.out, process.err = process.communicate()
    return process


def numbers(folder):
    path = folder / "counts"
    if not path.exists():
        return {}
    return {k: int(v) for k, v in (line.split() for line in path.read_text().splitlines())}


def said(text):
    """What a program printed, without addresses."""
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def problems_of(args, what):
    with tempfile.TemporaryDirectory(prefix="arena-") as name:
        folder = pathlib.Path(name)
        plain, under = run(args, what, folder, False), run(args, what, folder, True)
        report = folder / f"{under.pid}.jsonl"
        lines = [json.loads(line) for line in report.read_text().splitlines()] \
            if report.exists() else []
        counts = numbers(folder)
    launches = re.findall(r"^launch \S+ (\d+)$", under.out, re.M)
    if what["launches"] is not None:
        if under.returncode or launches != what["launches"]:
            yield f"exit {under.returncode}, launches {launches}, not {what['launches']} {under.err}"
    elif under.returncode or plain.returncode or said(under.out) != said(plain.out):
        yield (f"exit {under.returncode}, alone {plain.returncode}; said '{under.out}', alone "
               f"'{plain.out}' {under.err} {plain.err}")
    last = lines[-1] if lines else {}
    if last.get("verdict") != what["verdict"]:
        yield f"verdict {last.get('verdict')}, not {what['verdict']}: {last.get('unproven')}"
    for key, want in what["counts"].items():
        # Nobody opened the fake: nothing was counted.
        if not holds(counts.get(key, 0), want):
            yield f"fake: {key} is {counts.get(key)}, not {want}"
    for key, want in what["cupti"].items():
        if not holds(at(last.get("cupti"), key), want):
            yield f"report: {key} is {at(last.get('cupti'), key)}, not {want}"
    for kind, want in what["lines"].items():
        got = sum(line["type"] == kind for line in lines)
        if not holds(got, want):
            yield f"report: {got} lines of type {kind}, not {want}"
    for key, want in what["ledger"].items():
        if not holds(at(last.get("ledger"), key), want):
            yield f"report: ledger.{key} is {at(last.get('ledger'), key)}, not {want}"
    for key, want in what["gaps"].items():
        if not holds(last.get("coverage", {}).get(key), want):
            yield f"report: {key} is {last.get('coverage', {}).get(key)}, not {want}"
    for key, text in what["noted"].items():
        notes = last.get("noted", {}).get(key, [])
        if not last.get("coverage", {}).get(key) or not any(text in note for note in notes):
            yield f"coverage {key} is {last.get('coverage', {}).get(key)}, notes {notes}"
    yield from check_warnings(what, under.err)


def check_warnings(what, err):
    warnings = re.findall(r"^.*warn: (?!verdict).*(?:CUPTI|cupti).*$", err, re.M)
    if len(warnings) != len(what["warns"]) or \
            any(text not in line for text, line in zip(what["warns"], warnings)):
        yield f"warned {warnings}, not of {list(what['warns'])}"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("shim", "sim", "recorder", "cupti"):
        parser.add_argument(f"--{name}", required=True, type=os.path.realpath)
    parser.add_argument("--scene", action="append")
    args = parser.parse_args()
    bad, names = 0, args.scene or list(SCENES)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda name: list(problems_of(args, SCENES[name])), names))
    for name, problems in zip(names, results):
        bad += bool(problems)
        print(f"{'FAIL' if problems else 'ok':4} {name}")
        for p in problems:
            print(f"     {p}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
