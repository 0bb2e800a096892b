# SPDX-License-Identifier: Apache-2.0
"""The sections `cupti` and `cupti_times` of run.py: what CUPTI sees of the nodes that other libraries
add, other users of CUPTI, the cases with it; what a window costs and what is left of it. Figures go where run.py keeps its own:
"cupti: ..." with the samples of each process."""
import concurrent.futures
import importlib.util
import os
import pathlib
import re
import shutil
import sys

import overhead
import run_case

SECTION = "cupti"
WORKERS = 16                    # programs that take no times
# Of the time; PyTorch takes long to start.
PARTS = {"C": 0.25, "alone": 0.15, "PyTorch": 0.4, "windows": 0.35}
WINDOWS = 6                     # that cupti_replay.py opens and closes after the first
GOAL_PERCENT = 2                # of a replay, when no window is open
MODES = {"off": ("ARENA_CUPTI=off", GOAL_PERCENT),
         "capture": ("window used and closed", GOAL_PERCENT),
         "always": ("always attached", None)}
ALSO = ("always", "alone")      # are compared only if COST_ALSO names them; alone: without the library
TOOLS = {
    # name: its arguments, a line of its output that must not change
    "compute-sanitizer": (["--tool", "memcheck"], r"ERROR SUMMARY: .*"),
    "ncu": (["--metrics", "gpu__time_duration.sum"], r"==PROF== Profiling.*"),
    "nsys": (["profile", "--trace=cuda", "--cuda-graph-trace=node", "--force-overwrite=true",
              "--output=nsys"], r"Generated:"),
}

ERROR_OF_CALL = re.compile(r"Program hit (\w+) .* on CUDA API call to (\w+)")
KNOWN_REFUSALS = ("cuFuncGetParamInfo", "cuKernelGetParamInfo")


def cupti_of(lines):
    """`cupti` of the exit line that has most nodes: of the process that made the graphs."""
    ends = [line for line in lines if line["type"] == "exit"]
    best = max(ends, key=lambda e: e["graphs"]["nodes_live"] + e["graphs"]["execs_opened"],
               default={})
    return best.get("cupti", {})


def cupti_folder(toolkit):
    """Where a libcupti is, for programs that do not bring one: the toolkit's, else PyTorch's."""
    wheels = importlib.util.find_spec("nvidia")
    places = [toolkit / "lib64", toolkit / "extras" / "CUPTI" / "lib64"]
    places += [lib for top in (wheels.submodule_search_locations if wheels else ())
               for lib in sorted(pathlib.Path(top).glob("*/lib"))]
    return next((str(p) for p in places if any(p.glob("libcupti.so.1[23]"))), None)


def environment(suite, command, mode, more=None):
    """The recorder lies in a folder of its own in a build. A framework brings its own CUPTI, and
    would take the rest of the toolkit, too, if it were told of it."""
    paths = [str(suite.build / "cupti"), os.environ.get("LD_LIBRARY_PATH")]
    if command[0] != sys.executable:
        paths.append(cupti_folder(suite.cuda))
    return {"ARENA_CUPTI": mode, "LD_LIBRARY_PATH": os.pathsep.join(filter(None, paths)),
            **(more or {})}


def missing(result):
    """The reason when the program cannot run on this machine, else None."""
    if "ModuleNotFoundError" in result.err or "ImportError" in result.err:
        return result.err.strip().splitlines()[-1]
    return None


def last_line(text):
    return (text.strip().splitlines() or [""])[-1][:200]


class Section:
    def __init__(self, suite):
        self.suite = suite

    def add(self, name, problems, note=""):
        self.suite.add(SECTION, name, problems, note)

    def under(self, command, mode, more=None, timeout=60):
        gate = None if mode is None else "strict"
        return self.suite.run(command, gate, environment(self.suite, command, mode or "off", more),
                              timeout)

    # ---- times; nothing else runs meanwhile ----

    def run_replays(self):
        try:
            self.also = overhead.asked_also(ALSO)
            self.groups = overhead.asked_number("COST_GROUPS", overhead.GROUPS)
            seconds = overhead.asked_number("COST_SECONDS", overhead.SECONDS)
        except overhead.Failed as failed:
            self.add("replays", [str(failed)])
            return
        parts = {name: part for name, part in PARTS.items() if name != "alone" or name in self.also}
        self.seconds = {name: seconds * part / sum(parts.values()) for name, part in parts.items()}
        self.replays("C", [self.suite.victims / "measure", "replays"])
        if "alone" in self.also:
            self.replays_without_us()
        self.replays("PyTorch", self.suite.python("cupti_replay.py"))
        self.replays_after_windows()

    def variants(self, command, modes):
        """Without the library, and with it in each of the modes."""
        return [overhead.Variant(mode or "plain", command, mode and "strict",
                                 environment(self.suite, command, mode or "off"))
                for mode in (None, *modes)]

    def replays(self, where, command):
        modes = [mode for mode in MODES if mode not in ALSO or mode in self.also]
        taken = self.compare(f"replay in {where}", self.variants(command, modes),
                             self.seconds[where])
        if not taken:
            return
        (found,), reports = taken
        for mode in modes:
            what, goal = MODES[mode]
            self.tell(f"replay in {where}, {what}", found, mode, goal)
        windows = [cupti_of(lines).get("windows") for lines in reports["capture"]]
        self.add(f"replay in {where}, windows", [] if all(windows) else
                 [f"not one in each process: {windows}"], f"{sum(windows)} in {len(windows)}"
                 if all(windows) else "")

    def tell(self, name, found, mode, goal):
        over, said = overhead.tell(found, mode, "plain", goal)
        self.add(name, [said] if over else [], said)

    def replays_without_us(self):
        """What CUPTI leaves behind by itself: the part of a closed window that is not ours."""
        program = self.suite.build / "tests" / "cupti" / "replays"
        variants = [overhead.Variant(form, [program, form], None,
                                     environment(self.suite, [program], "off"))
                    for form in ("never", "inside", "after")]
        taken = self.compare("replay in C, CUPTI without the library", variants,
                             self.seconds["alone"])
        for form in ("inside", "after") if taken else ():
            self.add(f"replay in C, graph made {form} a CUPTI that is gone, without the library",
                     [], overhead.tell(taken[0][0], form, "never")[1])

    def compare(self, what, variants, seconds):
        """@return ([groups of each measure], reports), or None, and a row says why."""
        try:
            samples, reports = overhead.compare(self.suite, variants, seconds, self.groups)
        except overhead.Failed as failed:
            absent = re.search(r"ModuleNotFoundError|cannot open shared object", str(failed))
            self.add(what, None if absent else [str(failed)], str(failed))
            return None
        self.suite.figures[f"cupti: {what}, ns"] = samples
        self.add(f"{what}, cores", [f"cut short: {samples.failed}"] if samples.failed else [],
                 samples.cores)
        for variant, uses in samples.uses.items():
            self.add(f"{what}, {variant}", [], uses)
        return list(samples.values()), reports

    def replays_after_windows(self):
        """Does each window leave a little behind, in graphs that were there or in those to come?"""
        command = [*self.suite.python("cupti_replay.py"), "windows"]
        what = f"replay after {WINDOWS} windows"
        taken = self.compare(what, self.variants(command, ["capture"]), self.seconds["windows"])
        if not taken:
            return
        measures, reports = taken
        for which, found in zip(("first", "newest"), measures):
            self.tell(f"{what}, {which} graph", found, "capture", GOAL_PERCENT)
        self.tell_windows([cupti_of(lines) for lines in reports["capture"]])

    def tell_windows(self, facts):
        """@param facts of each process"""
        self.suite.figures["cupti: windows"] = facts
        windows = [f.get("windows", 0) for f in facts]
        if min(windows) < WINDOWS + 1:
            self.add("windows", [f"not {WINDOWS + 1} in each process: {windows}"])
            return
        attach, finalize = (sum(f[ns] for f in facts) / sum(windows) / 1e6
                            for ns in ("attach_ns", "finalize_ns"))
        self.add("windows", [], f"{sum(windows)} in {len(windows)} programs at a time, attach {attach:.1f} ms, "
                 f"finalize {finalize:.1f} ms; "
                 f"CUPTI {facts[0].get('version')}, {facts[0].get('library')}")

    # ---- what CUPTI sees ----

    def programs(self):
        scenes = self.suite.build / "tests" / "cupti" / "scenes"
        victims = self.suite.victims
        yield from ((f"torch {name}", self.suite.python("cupti_nodes.py", name), {})
                    for name in ("block", "conv", "cub", "nccl"))
        yield "jax command buffers", self.suite.python("jax_jit.py"), {
            "XLA_FLAGS": self.suite.xla_flags, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        yield "C, conditional nodes", [victims / "v_conditional_body", "healthy"], {}
        # Told of a template's new parameters is nothing: no node-updated, no node-params-set.
        yield "C, new parameters", [victims / "v_a24_params_owner", "swapped"], {}
        yield from ((f"C, {form}", [scenes, form], {})
                    for form in ("edits", "fifty", "later", "threads", "forks"))

    def see(self, program):
        name, command, more = program
        r = self.under(command, "capture", more)
        if missing(r):
            return name, None, missing(r)
        if "no conditional" in r.out or r.code == run_case.SKIP:
            return name, None, last_line(r.out)
        cupti = cupti_of(r.lines)
        cross, events = cupti.get("cross", {}), cupti.get("events", {})
        wrong = {k: v for k, v in cross.get("reasons", {}).items() if v}
        problems = [f"exit {r.code} {last_line(r.err)}"] if r.code else []
        problems += [f"{k}: {v}" for k, v in wrong.items()]
        problems += [line["text"] for line in r.lines if line["type"] == "finding"][:2]
        if not cross.get("compared"):
            problems.append(f"nothing was compared, windows {cupti.get('windows')} "
                            f"{last_line(r.err)}")
        self.suite.figures[f"cupti: nodes, {name}"] = cupti
        return name, problems, (
            f"{cross.get('agreed')} of {cross.get('compared')} graphs agree, "
            f"{cross.get('nodes')} nodes, {cross.get('addresses')} addresses, {cross.get('changed')} changed; "
            f"{cupti.get('windows')} windows; told: {told(events)}")

    def gone(self, job):
        """Memory that is gone before the first replay: the same verdict, whoever recorded."""
        when, mode = job
        name = f"torch, freed {when}, ARENA_CUPTI={mode}"
        r = self.under(self.suite.python("cupti_memory.py", when), mode)
        if missing(r):
            return name, None, missing(r)
        refused = re.search(r"^refused: .*$", r.out, re.M)
        stale = {ref["reason"] for line in r.lines if line.get("kind") == "stale-launch"
                 for ref in line["refs"]}
        return name, [] if refused and stale and not r.code else \
            [f"exit {r.code}, stale {sorted(stale)}, {last_line(r.out)} {last_line(r.err)}"], \
            f"{refused[0] if refused else ''} {sorted(stale)}"

    # ---- other users of CUPTI ----

    def profile(self, mode):
        r = self.under(self.suite.python("cupti_profiler.py"), mode)
        return mode, r, dict(re.findall(r"^kernels (\w+) (\d+)$", r.out, re.M))

    def tell_profiles(self, results):
        results = list(results)
        plain = results[0][2]
        self.suite.figures["cupti: kernels that torch.profiler saw"] = {
            str(mode): kernels for mode, _, kernels in results}
        for mode, r, kernels in results:
            if missing(r):
                self.add(f"torch.profiler, {mode}", None, missing(r))
                continue
            problems = [f"exit {r.code} {last_line(r.err)}"] if r.code or len(kernels) < 4 else []
            if kernels != plain:
                problems.append(f"{kernels}, without the library {plain}")
            cupti = cupti_of(r.lines)
            self.add(f"torch.profiler, {mode or 'without the library'}", problems,
                     f"{kernels} windows {cupti.get('windows')} yielded {cupti.get('yielded')} "
                     f"{sorted(notes(r, 'cupti-busy'))}")

    def guest(self, form):
        """Another user in a C program, with the real CUPTI: the build has a fake one beside it."""
        name = f"C, guest {form}"
        r = self.under([self.suite.build / "tests" / "cupti" / "guest", form], "capture")
        cupti = cupti_of(r.lines)
        if "tests/cupti" in cupti.get("library", ""):
            return name, None, "no libcupti here, only the fake one of the build"
        problems = [f"exit {r.code} {last_line(r.err)}"] if r.code else []
        return name, problems, (f"{cupti.get('windows')} windows, yielded {cupti.get('yielded')}, "
                                f"lost {cupti.get('lost')}; {cupti.get('library')}")

    def tool(self, name):
        """A23: the same findings and launches as without the tool, and the tool's own output."""
        path = shutil.which(name) or shutil.which(name, path=f"{self.suite.cuda / 'bin'}")
        program = [self.suite.victims / "v_a10_workspace_growth", "fixed"]
        if not path:
            return name, None, "not installed"
        words, kept = TOOLS[name]
        plain = self.under([path, *words, *program], None)
        pattern = re.compile(kept, re.M)
        mine = pattern.findall(plain.out + plain.err)
        if plain.code or not mine:
            return name, None, f"does not work here: exit {plain.code} {refusal(plain)}"
        problems = []
        both = self.under([path, *words, *program], "capture")
        theirs = pattern.findall(both.out + both.err)
        refused = ERROR_OF_CALL.findall(both.out + both.err)
        if name == "compute-sanitizer" and theirs != mine and not only_known(theirs, refused):
            problems.append(f"the tool says {theirs[-1:]}, not {mine[-1:]}: "
                            f"{first_error(both)}")
        elif len(theirs) != len(mine):
            problems.append(f"the tool says {theirs[-1:]} ({len(theirs)}), not {mine[-1:]}")
        if both.code or launches(both) != launches(plain):
            problems.append(f"exit {both.code}, launches {launches(both)}, not {launches(plain)}")
        faulty = [self.suite.victims / "v_a10_workspace_growth", "buggy"]
        alone = self.under(faulty, "capture")
        beside = self.under([path, *words, *faulty], "capture")
        if kinds(alone) != kinds(beside) or not kinds(alone):
            problems.append(f"findings {sorted(kinds(beside))}, without the tool "
                            f"{sorted(kinds(alone))}")
        noted = notes(both, "cupti-busy") | notes(both, "cupti-unavailable")
        self.suite.figures[f"cupti: A23, {name}"] = {"errors": first_error(both)}
        return name, problems, (f"{theirs[-1] if theirs else ''} {sorted(noted)} "
                                f"{' '.join(map(str, refused))}")

    # ---- all of it ----

    def run(self):
        gone = [(when, mode) for when in ("inside", "between") for mode in ("off", "capture")]
        guests = ("first", "arrives", "looks-up", "activity", "finalizes")
        # Those that take longest begin first.
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            profiles = [pool.submit(self.profile, mode) for mode in (None, "capture", "always")]
            jobs = [pool.submit(self.tool_row, name) for name in TOOLS]
            jobs += [pool.submit(self.see, program) for program in self.programs()]
            jobs += [pool.submit(self.gone, job) for job in gone]
            jobs += [pool.submit(self.guest, form) for form in guests]
            for job in concurrent.futures.as_completed(jobs):
                self.add(*job.result())
            self.tell_profiles(job.result() for job in profiles)

    def tool_row(self, name):
        word, problems, note = self.tool(name)
        return f"A23, {word}", problems, note


def only_known(summaries, refused):
    """Did nothing fail but what the library cannot avoid? Drivers that do not tell how many
    parameters a kernel has are asked for each, until they say that there is no further one."""
    return bool(refused) and summaries == [f"ERROR SUMMARY: {len(refused)} error"
                                           f"{'s' if len(refused) > 1 else ''}"] and \
        all(call.startswith(KNOWN_REFUSALS) for _, call in refused)


def first_error(result):
    """The first six lines of the first error that compute-sanitizer shows."""
    lines = [line.lstrip("= ") for line in (result.out + result.err).splitlines()
             if line.startswith("=========")]
    at = next((i for i, line in enumerate(lines)
               if re.search(r"^(Program hit|Invalid|.*error)", line, re.I)), len(lines))
    return lines[at:at + 6]


def told(events):
    return " ".join(f"{kind} {n}" for kind, n in events.items() if n) if events else "nothing"


def launches(result):
    return re.findall(r"^launch (\S+) (\d+)$", result.out, re.M)


def notes(result, key):
    return {note for line in result.lines if line["type"] == "exit"
            for note in line["noted"].get(key, [])}


def kinds(result):
    return {(line["kind"], ref["reason"]) for line in result.lines if line["type"] == "finding"
            for ref in line["refs"]}


def refusal(result):
    """The line in which a tool says why it does not work."""
    lines = (result.out + result.err).splitlines()
    why = r"error|not supported|denied|permission"
    said = [line for line in lines if re.search(why, line, re.I)]
    return (said or lines or [""])[0][:160]


def run(suite):
    """The cases first: they are what a run that is cut short must not lose."""
    folders = [str(suite.build / "cupti"), cupti_folder(suite.cuda)]
    for mode in ("capture", "alone"):
        suite.run_expectations(f"{SECTION} {mode}", suite.expectations(), [
            "--gates", "strict", "--env", f"ARENA_CUPTI={mode}",
            *(f"--libraries={folder}" for folder in filter(None, folders))], workers=WORKERS)
    Section(suite).run()


def run_times(suite):
    Section(suite).run_replays()
