#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run one victim under the library and compare what it reports with what it must report.

    run_case.py --shim LIB [--sim DIR] --victim PROGRAM [--form NAME] [--gates WORD,...]
                [--env NAME=VALUE]... [--libraries DIR]... EXPECT-FILE

Without --sim the real driver is used; --env is set only with the library, --libraries are searched
first. Where CUPTI is a second source, it must agree with the first. Every form of the expectation file is run with
ARENA_GATE=strict, with ARENA_GATE=warn where its stale launches do no harm; where nothing is to
be refused also with ARENA_GATE=off and without the library: the program's own output must then be
the same.

An expectation file (tests/victims/*.expect) has, for each form:

    form NAME [harmless] [unordered] [racing]
      launch NAME CODE [xN]           outcome under strict; 401 is 0 under warn
      finding KIND REASON RANGE...    one cause each; REASON may be a|b
      finding reload-failed unsafe -  a launch was refused in an unsafe process (strict only)
      maybe KIND REASON RANGE...      may be there (a different driver decides it)
      gap REASON                      this coverage count must be above zero
      verdict WORD                    default: fail if a stale-launch is expected or the last
                                      reload failed, else pass
      events BYTES: KIND...           trace of allocations of this size and of graphs
      unwound RANGE...                these findings name where the range was allocated
      env NAME=VALUE...               set where the library is at work
      verify NAME ITEM...             what arena_verify() found; its code is -8 for an error
      reload NAME WORD ITEM...        how a reload ended (pass, fail, unproven, abort) and what
                                      it found; under strict its code is -8 unless it passed, -9
                                      if it passed and did not make the process safe
      call NAME CODE WORD...          outcome of a call; the words are in its message

An ITEM is KIND:SLOT, or KIND:SLOT:SEVERITY where it is not an error; KIND may be a|b; after ? it
need not be there. SLOT is a slot, a cache or a source.

harmless: stale launches may run under warn (the program itself says when not, by exit 77).
unordered: launches come from several threads. racing: the program's results are not defined, so
that it is not run without the library.
Exit: 0 all as expected, 1 not, 77 no form could be told.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import schema  # noqa: E402

REFUSED = "401"
SLOT_VERBS = ("verify", "reload", "call")
SKIP = 77
TIMEOUT_S = 120
GATES = ["strict", "warn", "off", "alone"]      # all of them; "alone": without the library
STACKS = os.environ.get("ARENA_TEST_STACKS")    # another ARENA_STACKS than the default

Form = collections.namedtuple(
    "Form", "name flags launches findings maybe gaps verdict events unwound slots env")
Run = collections.namedtuple("Run", "code out err ranges launches values lines slots",
                             defaults=[()])


# ---- expectation files ----

def parse_expect(text):
    forms = []
    for number, line in enumerate(text.splitlines(), 1):
        words = re.split(r"(?:^|\s)#", line)[0].split()
        if not words:
            continue
        if words[0] == "form":
            forms.append(Form(words[1], set(words[2:]), [], set(), set(), set(), [], [], set(),
                              [], []))
        elif not forms:
            raise ValueError(f"line {number}: before the first form")
        else:
            add_expectation(forms[-1], words, number)
    return forms


def add_expectation(form, words, number):
    verb, rest = words[0], words[1:]
    if verb == "launch":
        times = int(rest[2][1:]) if len(rest) > 2 else 1
        form.launches.extend([(rest[0], rest[1])] * times)
    elif verb in ("finding", "maybe"):
        target = form.findings if verb == "finding" else form.maybe
        target.update((rest[0], rest[1], name) for name in rest[2:])
    elif verb == "gap":
        form.gaps.add(rest[0])
    elif verb == "verdict":
        form.verdict[:] = rest
    elif verb == "events":
        form.events[:] = [int(rest[0].rstrip(":"))] + rest[1:]
    elif verb == "unwound":
        form.unwound.update(rest)
    elif verb == "env":
        form.env.extend(rest)
    elif verb in SLOT_VERBS:
        form.slots.append((verb, *rest))
    else:
        raise ValueError(f"line {number}: {verb}?")


# ---- one run ----

def environment(args, form, gate, directory):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ARENA_", "SIM_"))}
    env.pop("LD_PRELOAD", None)
    first = os.environ.get("ARENA_TEST_PRELOAD", "")
    paths = [*args.libraries, args.sim, env.get("LD_LIBRARY_PATH")]
    if any(paths):
        env["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, paths))
    if gate:
        env["LD_PRELOAD"] = " ".join(filter(None, [first, args.shim]))
        env["ARENA_GATE"] = gate
        env["ARENA_REPORT"] = f"{directory}/%p.jsonl"
        if STACKS:
            env["ARENA_STACKS"] = STACKS
        if form.events:
            env["ARENA_TRACE"] = "on"
        env.update(pair.split("=", 1) for pair in [*form.env, *args.env])
    else:
        env["ARENA_GATE"] = "strict"    # for the victim only: nobody refuses
    return env


def run(args, form, gate):
    with tempfile.TemporaryDirectory(prefix="arena-") as directory:
        env = environment(args, form, gate, directory)
        p = subprocess.Popen([args.victim, form.name], env=env, cwd=directory, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = p.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            err += f"\nkilled after {TIMEOUT_S} s"
        report = pathlib.Path(directory, f"{p.pid}.jsonl")
        lines = [json.loads(line) for line in report.read_text().splitlines()] \
            if report.exists() else []
        if args.keep and report.exists():
            pathlib.Path(args.keep).mkdir(parents=True, exist_ok=True)
            name = f"{pathlib.Path(args.victim).name}.{form.name}.{gate}.jsonl"
            pathlib.Path(args.keep, name).write_text(report.read_text())
    ranges = [(m[1], int(m[2], 16), int(m[3]))
              for m in re.finditer(r"^range (\S+)=(0x[0-9a-f]+):(\d+)$", out, re.M)]
    launches = re.findall(r"^launch (\S+) (\d+)$", out, re.M)
    values = re.findall(r"^value .*$", out, re.M)
    slots = re.findall(r"^(verify|reload|call) (\S+) (-?\d+) (.*)$", out, re.M)
    return Run(p.returncode, out, err, ranges, launches, values, lines, slots)


# ---- what a report says ----

def range_name(ranges, base):
    """The first range printed for an address is the one that a graph captured: later ones of the
    same address are printed only after it was freed."""
    for name, start, _ in ranges:
        if start == base:
            return name
    for name, start, size in ranges:
        if start <= base < start + size:
            return name
    return f"0x{base:x}"


def causes(found, ranges):
    """Normalised: the set of (kind, reason, range), never a count."""
    found = [line for line in found if line["type"] == "finding"]
    return {(line["kind"], ref["reason"], range_name(ranges, int(ref["old"]["base"], 16)))
            for line in found for ref in line["refs"]} | \
        {(line["kind"], "unsafe", "-") for line in found if not line["refs"]}


def matches(cause, pattern):
    return (cause[0], cause[2]) == (pattern[0], pattern[2]) and cause[1] in pattern[1].split("|")


def check_findings(form, r, gate):
    found = causes(r.lines, r.ranges)
    for want in sorted(form.findings):
        if want[1] == "unsafe" and gate != "strict":
            continue
        if not any(matches(c, want) for c in found):
            yield "missing finding: " + " ".join(want)
    for cause in sorted(found):
        if not any(matches(cause, want) for want in form.findings | form.maybe):
            yield "unexpected finding: " + " ".join(cause)


def check_stacks(form, r):
    """Who allocated: each range under `unwound` has a stack with a frame in the victim."""
    stacks = {line["id"]: line for line in r.lines if line["type"] == "stack"}
    modules = {line["id"]: line for line in r.lines if line["type"] == "module"}
    for line in r.lines:
        for ref in line.get("refs", []) if line["type"] == "finding" else []:
            name = range_name(r.ranges, int(ref["old"]["base"], 16))
            if name not in form.unwound or STACKS == "off":
                continue
            frames = stacks.get(ref["old"]["stack_open"], {}).get("frames", [])
            paths = [modules[f[0]]["path"] for f in frames if f[0] in modules]
            if not any("v_" in pathlib.Path(p).name for p in paths):
                yield f"{line['kind']} of {name}: no frame of the program in its stack {paths}"


def check_text(r):
    """Each finding says the old address in words."""
    for line in r.lines:
        if line["type"] != "finding":
            continue
        if line["refs"] and not any(ref["old"]["base"] in line["text"] for ref in line["refs"]):
            yield f"text without an address: {line['text']}"


def check_sources(r):
    """Both sources of captured addresses must say the same, where there are two."""
    for line in r.lines:
        if line["type"] == "cross":
            reasons = sorted({d["reason"] for d in line["differences"]})
            yield f"CUPTI and the walk differ: {' '.join(reasons)}"


def default_verdict(form):
    stale = any(f[0] in ("stale-launch", "reload-failed") for f in form.findings)
    ends = [s[2] for s in form.slots if s[0] == "reload"]
    return "fail" if stale or ends[-1:] in (["fail"], ["abort"]) else "pass"


def check_report(form, r, gate):
    if not r.lines or r.lines[-1]["type"] != "exit":
        yield "no exit line in the report"
        return
    if any(line.get("schema") != 1 for line in r.lines):
        yield "a line without schema 1"
    last = r.lines[-1]
    want = form.verdict[0] if form.verdict else default_verdict(form)
    if last["verdict"] not in want.split("|"):
        yield f"verdict {last['verdict']}, not {want}"
    for gap in form.gaps:
        if not last["coverage"].get(gap):
            yield f"coverage {gap} is not counted"
    for line in r.lines:
        in_flight = all(ref["reason"] == "in-flight" for ref in line.get("refs", []))
        if line.get("kind") == "stale-launch" and not in_flight:
            if line["refused"] != (gate == "strict"):
                yield f"refused is {line['refused']} under {gate}"
    if form.events:
        yield from check_events(form, r)


def event_kinds(lines, size):
    """Allocations of one size, and everything that happened to graphs."""
    sized = ("alloc", "free", "map", "unmap")
    return [line["event"] for line in lines if line["type"] == "event" and
            (line["event"] not in sized or line["size"] == size)]


def check_events(form, r):
    want, got = form.events[1:], event_kinds(r.lines, form.events[0])
    if got != want:
        yield f"events {got}, not {want}"


def check_launches(form, r, gate):
    want = [(name, "0" if code == REFUSED and gate != "strict" else code)
            for name, code in form.launches]
    got = list(r.launches)
    if "unordered" in form.flags:
        want, got = sorted(want), sorted(got)
    same = len(want) == len(got) and all(
        w[0] == g[0] and g[1] in w[1].split("|") for w, g in zip(want, got))
    if not same:
        yield f"launches {got}, not {want}"


# ---- slots: what the API answered ----

def slot_items(found):
    """The findings of a JSON object that the API returned, as KIND:SLOT[:SEVERITY]."""
    for f in found:
        name = f["slot"] or f["source"] or f["cache"]
        yield f"{f['kind']}:{name}" + (f":{f['severity']}" if f["severity"] != "error" else "")


def item_matches(item, pattern):
    kind, _, rest = pattern.lstrip("?").partition(":")
    return item.partition(":")[2] == rest and item.partition(":")[0] in kind.split("|")


def check_items(wanted, found, where):
    for want in wanted:
        if want[0] != "?" and not any(item_matches(f, want) for f in found):
            yield f"{where}: missing {want}"
    for f in sorted(found):
        if not any(item_matches(f, want) for want in wanted):
            yield f"{where}: unexpected {f}"


def check_call(want, got):
    where = " ".join(got[:3])
    if got[2] not in want[2].split("|"):
        yield f"{where} {got[3]}: not {want[2]}"
    for word in want[3:]:
        if word not in got[3]:
            yield f"{where}: no '{word}' in its message '{got[3]}'"


def reload_code(answer, outcome):
    """What the end of a reload returns under strict: refused, or sound in an unsafe process."""
    if outcome in ("fail", "unproven"):
        return "-8"
    return "-9" if outcome == "pass" and answer["unsafe"] else "0"


def check_slot_line(want, got, gate):
    verb, name, code, text = got
    if verb == "call":
        yield from check_call(want, got)
        return
    answer = json.loads(text)
    found = set(slot_items(answer["findings"]))
    if verb == "verify":
        refused = any(item.count(":") == 1 for item in found)
        items = want[2:]
        expected = "-8" if refused else "0"     # whatever the gate
    else:
        outcome = "abort" if answer["aborted"] else answer["verdict"]
        expected = reload_code(answer, outcome) if gate == "strict" else "0"
        items = want[3:]
        if outcome not in want[2].split("|"):
            yield f"reload {name}: {outcome}, not {want[2]}"
    if code != expected:
        yield f"{verb} {name} returned {code} under {gate}"
    yield from check_items(items, found, f"{verb} {name}")


def check_slots(form, r, gate):
    want, got = list(form.slots), list(r.slots)
    if "unordered" in form.flags:
        want, got = sorted(want, key=lambda w: w[:2]), sorted(got, key=lambda g: g[:2])
    if [w[:2] for w in want] != [g[:2] for g in got]:
        yield f"answers {[g[:3] for g in got]}, not {[w[:2] for w in want]}"
        return
    for w, g in zip(want, got):
        yield from check_slot_line(w, g, gate)


def check(form, r, gate):
    if r.code:
        yield f"exit {r.code}: {r.err.strip() or r.out.strip()}"
    if re.search(r"runtime error:|Sanitizer", r.err):
        yield f"a sanitizer speaks: {r.err.strip()}"
    yield from check_launches(form, r, gate)
    yield from check_slots(form, r, gate)
    yield from check_findings(form, r, gate)
    yield from check_stacks(form, r)
    yield from check_text(r)
    yield from check_sources(r)
    yield from check_report(form, r, gate)


# ---- forms and gates ----

def may_refuse(form):
    return any(REFUSED in code for _, code in form.launches)


def check_alone(args, form, under, gate):
    """Without the library, and with it switched off, the program must say the same."""
    r = run(args, form, gate)
    if r.code == SKIP:
        return
    if r.lines:
        yield "a report was written"
    if r.code:
        yield f"exit {r.code}: {r.err.strip() or r.out.strip()}"
    if sorted(r.launches) != sorted(under.launches) or r.values != under.values:
        yield f"the program said {r.launches} {r.values}, not {under.launches} {under.values}"


def run_form(args, form):
    """Yields (gate, problems), problems None for a form that cannot be told here."""
    under = None
    for gate in ("strict", "warn"):
        if gate not in args.gates:
            continue
        if gate == "warn" and may_refuse(form) and "harmless" not in form.flags:
            continue
        r = run(args, form, gate)
        if r.code == SKIP:
            yield gate, None
            continue
        under = under or r
        yield gate, list(check(form, r, gate)) + list(schema.problems(r.lines))
    for name, gate in (("off", "off"), ("alone", None)):
        if under and name in args.gates and not may_refuse(form) and "racing" not in form.flags:
            yield name, list(check_alone(args, form, under, gate))


def parse_arguments(words=None):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--sim")
    parser.add_argument("--victim", required=True)
    parser.add_argument("--form")
    parser.add_argument("--keep", help="folder for the reports")
    parser.add_argument("--gates", type=lambda words: words.split(","), default=GATES)
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--libraries", action="append", default=[])
    parser.add_argument("expect")
    args = parser.parse_args(words)
    args.shim = os.path.realpath(args.shim)
    args.sim = args.sim and os.path.realpath(args.sim)
    args.victim = os.path.realpath(args.victim)
    args.libraries = [os.path.realpath(folder) for folder in args.libraries]
    return args


def main():
    args = parse_arguments()
    forms = parse_expect(pathlib.Path(args.expect).read_text())
    bad = told = 0
    for form in forms:
        if args.form and form.name != args.form:
            continue
        for gate, problems in run_form(args, form):
            word = "skip" if problems is None else "FAIL" if problems else "ok"
            told += problems is not None
            bad += bool(problems)
            print(f"{word:4} {pathlib.Path(args.victim).name} {form.name} {gate}")
            for p in problems or []:
                print(f"     {p}")
    return 1 if bad else 0 if told else SKIP


if __name__ == "__main__":
    sys.exit(main())
