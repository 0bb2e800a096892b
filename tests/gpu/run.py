#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everything that needs a real GPU, in one run: tests/gpu/run.py BUILD_DIR [SECTION...]

Sections: victims (the cases, both gates), slots (the same with slots, allocations under tags,
figures of the publication, views of slots in the array libraries), a20 (one story in four builds), stock (programs that
are well: no finding, the same output), faulty (PyTorch programs that must be caught), measure
(CPU time with the library as a ratio of the time without), cupti (what it sees, its other users,
the cases with it), cupti_times (windows, and replays after them; section_cupti.py), client (the Python client on real models,
the gate over processes; section_client.py), python (what stock PyTorch can say and use:
NVTX, stacks, a MemPool; section_python.py), kernels (the shim's own kernels against their
C twins, and their bandwidth; section_kernels.py), blocks and blocks_times (tensors that move inside
the caching allocator, and what its events cost; section_blocks.py), engine (every model family of tests/engine, 20
reloads; section_engine.py), two (programs on two GPUs; section_two.py). A table comes last. With
$OUT set, the table, the log, the figures and the reports of the programs are left there.
Exit: 0 all as expected, 1 not, 77 no GPU.
"""
import argparse
import collections
import concurrent.futures
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
import overhead  # noqa: E402
import run_case  # noqa: E402  (the reader of reports that the simulation is tested with)
import section_blocks  # noqa: E402
import section_client  # noqa: E402
import section_cupti  # noqa: E402
import section_engine  # noqa: E402
import section_kernels  # noqa: E402
import section_python  # noqa: E402
import section_two  # noqa: E402

SKIP = 77
CUDA = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
WORKERS = 4
MEASURE_GROUPS, MEASURE_SECONDS = 6, 25    # of each program, with their starts
EXPECTATIONS = sorted((HERE.parent / "victims").glob("*.expect"))
XLA_FLAGS = ("--xla_gpu_graph_min_graph_size=1 "
             "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL")
ALLOCATORS = {
    "default": {},
    "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "async": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
}

Row = collections.namedtuple("Row", "section name word note")
Result = collections.namedtuple("Result", "code out err lines seconds")


class Suite:
    def __init__(self, build, out):
        self.build = pathlib.Path(build).resolve()
        self.shim = self.build / "shim" / "libarena_shim.so"
        self.victims = self.build / "tests" / "victims"
        self.cuda, self.xla_flags = CUDA, XLA_FLAGS
        self.out = out
        self.rows, self.log, self.reports, self.figures = [], [], [], {}

    # ---- running ----

    def environment(self, gate, directory, extra):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith("ARENA_") and k not in ("LD_PRELOAD", "OUT")}
        env.update(extra or {})
        env["ARENA_GATE"] = gate or "strict"
        if gate:
            env["LD_PRELOAD"] = str(self.shim)
            env["ARENA_REPORT"] = f"{directory}/%p.jsonl"
        return env

    def run(self, command, gate, extra=None, timeout=100):
        """Run a program with (gate) or without the library; all of its reports are read."""
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="arena-") as directory:
            try:
                p = subprocess.run([str(c) for c in command], cwd=directory, text=True,
                                   env=self.environment(gate, directory, extra), timeout=timeout,
                                   capture_output=True, check=False)
                code, out, err = p.returncode, p.stdout, p.stderr
            except subprocess.TimeoutExpired as late:
                code, err = 124, f"stopped after {timeout} s"
                out = (late.stdout or b"").decode(errors="replace")
            lines = self.read_reports(command, gate, directory)
        seconds = time.monotonic() - start
        self.log.append(f"$ {' '.join(map(str, command))} [{gate}] {extra or ''} -> {code} "
                        f"in {seconds:.1f} s\n{out}{err}")
        return Result(code, out, err, lines, seconds)

    def read_reports(self, command, gate, directory):
        lines = []
        for path in sorted(pathlib.Path(directory).glob("*.jsonl")):
            text = path.read_text()
            self.reports.append(f"# {' '.join(map(str, command))} [{gate}]\n{text}")
            lines.extend(json.loads(line) for line in text.splitlines())
        return lines

    def python(self, name, *arguments):
        return [sys.executable, HERE / name, *arguments]

    def add(self, section, name, problems, note=""):
        row = Row(section, name, verdict_word(problems), "; ".join(problems or []) or note)
        self.rows.append(row)
        print(f"{row.word:4} {section} {name} {row.note}", flush=True)

    # ---- sections ----

    def run_victims(self):
        self.run_expectations("victims", [e for e in EXPECTATIONS if not tells_of_slots(e)])

    def run_slots(self):
        self.run_expectations("slots", [e for e in EXPECTATIONS if tells_of_slots(e)])
        self.run_tags()
        for program in ("bench_publish", "bench_slots"):
            self.run_figures(program)
        for library in ("torch", "cupy", "jax"):
            r = self.run(self.python("views.py", library), "strict")
            problems = None if "ModuleNotFoundError" in r.err else \
                [f"exit {r.code} {last_line(r.err)}"] if r.code else []
            found = [line["text"] for line in r.lines if line["type"] == "finding"]
            self.add("slots", f"views in {library}", found or problems, last_line(r.out))

    def run_tags(self):
        """Allocations under tags, a process a scene."""
        program = self.build / "tests" / "shim" / "shim_route_tags"
        if not program.exists():
            self.add("slots", "tags", None, "shim_route_tags is not in this build")
            return
        for scene in self.run([program, "--list"], None).out.split():
            r = self.run([program, scene], "strict")
            ends = [line["verdict"] for line in r.lines if line["type"] == "exit"]
            self.add("slots", f"tags, {scene}", [] if ends and not r.code else
                     [f"exit {r.code} {last_line(r.err)}"], "/".join(ends))

    def run_figures(self, program):
        """Figures that a benchmark prints, from one process with the library."""
        r = self.run([self.build / "tests" / "bench" / program], "strict", timeout=300)
        figures = re.findall(r"^(\S.*?) +([\d.]+) (\S+)$", r.out, re.M)
        self.add("slots", program, [] if figures and not r.code else
                 [f"exit {r.code} {last_line(r.err)}"])
        for name, value, unit in figures:
            self.figures[name] = float(value)
            self.add("slots", name, [], f"{value} {unit}")

    def expectations(self):
        return EXPECTATIONS

    def run_cupti(self):
        section_cupti.run(self)

    def run_cupti_times(self):
        section_cupti.run_times(self)

    def run_client(self):
        section_client.run(self)

    def run_engine(self):
        section_engine.run(self)

    def run_kernels(self):
        section_kernels.run(self)

    def run_two(self):
        section_two.run(self)

    def run_blocks(self):
        section_blocks.run(self)

    def run_blocks_times(self):
        section_blocks.run_times(self)

    caught = staticmethod(lambda result, name: caught(result, name))

    def run_python(self):
        section_python.run(self)

    def run_expectations(self, section, expects, options=(), workers=WORKERS):
        def one(expect):
            command = [sys.executable, HERE.parent / "e2e" / "run_case.py", "--shim", self.shim,
                       *options, "--victim", self.victims / expect.stem, expect]
            return subprocess.run([str(c) for c in command], text=True, capture_output=True,
                                  timeout=300, check=False)

        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            jobs = {pool.submit(one, expect): expect for expect in expects}
            for job in concurrent.futures.as_completed(jobs):
                expect, p = jobs[job], job.result()
                self.log.append(p.stdout + p.stderr)
                bad = [line.strip() for line in p.stdout.splitlines() if line[:1] == " "]
                forms = sum(line.startswith("ok") for line in p.stdout.splitlines())
                skips = sum(line.startswith("skip") for line in p.stdout.splitlines())
                problems = None if p.returncode == SKIP else \
                    (bad or [p.stderr.strip()[-300:]]) if p.returncode else []
                self.add(section, expect.stem[2:], problems,
                         f"{forms} runs ok" + (f", {skips} skipped" if skips else ""))

    def run_a20(self):
        want = "alloc capture instantiate launch free refused".split()
        builds = {
            "driver": [self.victims / "v_a20_story_driver"],
            "static": [self.victims / "a20_story_static"],
            "shared": [self.victims / "a20_story_shared"],
            "torch": self.python("a20_torch.py"),
        }
        for name, command in builds.items():
            extra = {"ARENA_TRACE": "on"}
            if name == "shared":
                paths = [os.environ.get("LD_LIBRARY_PATH"), str(CUDA / "lib64")]
                extra["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, paths))
            r = self.run(command, "strict", extra)
            got = run_case.event_kinds(r.lines, 48 << 20)
            got = got[:got.index("refused") + 1] if "refused" in got else got
            problems = [] if got == want else [f"events {' '.join(got)}"]
            if "ModuleNotFoundError" in r.err:
                problems = None
            elif r.code:
                problems.append(f"exit {r.code} {last_line(r.err)}")
            self.add("a20", name, problems, " ".join(got))

    def run_stock(self):
        programs = [(f"torch graphs, {name}", self.python("torch_capture.py"), extra)
                    for name, extra in ALLOCATORS.items() if name != "async"]
        programs += [
            ("torch graphs, async", self.python("torch_async.py"), ALLOCATORS["async"]),
            ("torch make_graphed_callables", self.python("torch_callables.py"), {}),
            ("torch.compile reduce-overhead", self.python("torch_compile.py"),
             {"TORCHINDUCTOR_COMPILE_THREADS": "1"}),
            ("torch cuBLAS", self.python("torch_cublas.py"), {}),
            ("triton in a torch graph", self.python("triton_graph.py"), {}),
            ("jax command buffers", self.python("jax_jit.py"),
             {"XLA_FLAGS": XLA_FLAGS, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
            ("cupy graph", self.python("cupy_graph.py"), {}),
        ]
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            for row in pool.map(lambda p: self.stock_program(*p), programs):
                self.add("stock", *row)

    def stock_program(self, name, command, extra):
        plain = self.run(command, None, extra)
        if plain.code:
            return name, None, f"does not run here: {last_line(plain.err)}"
        under = self.run(command, "strict", extra)
        problems = []
        if under.code or under.out != plain.out:
            problems.append(f"exit {under.code}, {difference(plain.out, under.out)} "
                            f"{last_line(under.err) if under.code else ''}")
        found = [line["text"] for line in under.lines if line["type"] == "finding"]
        problems += [f"finding: {text}" for text in found[:3]]
        totals = exit_totals(under.lines)
        if not totals["execs"]:
            problems.append("no graph was seen")
        return name, problems, describe(totals)

    def run_faulty(self):
        programs = [(f"torch reload, {name}", self.python("torch_faulty.py"), extra,
                     "captured again 5.0") for name, extra in ALLOCATORS.items()]
        programs.append(("torch cuBLAS weight", self.python("torch_cublas.py", "faulty"), {},
                         "refused:"))
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            for row in pool.map(lambda p: self.faulty_program(*p), programs):
                self.add("faulty", *row)

    def faulty_program(self, name, command, extra, said):
        strict = self.run(command, "strict", extra)
        if "ModuleNotFoundError" in strict.err:
            return name, None, last_line(strict.err)
        problems = caught(strict, "w")
        refused = re.search(r"^refused: .*$", strict.out, re.M)
        if not refused or said not in strict.out or strict.code:
            problems.append(f"strict: exit {strict.code}, said {last_line(strict.out)} "
                            f"{last_line(strict.err)}")
        problems += [f"warn: {p}" for p in caught(self.run(command, "warn", extra), "w")]
        return name, problems, refused[0] if refused else ""

    def run_measure(self):
        for command in (self.python("torch_replay.py"), [self.victims / "measure"]):
            try:
                samples, reports = overhead.compare(
                    self, [overhead.Variant("plain", command, None),
                           overhead.Variant("strict", command, "strict")],
                    MEASURE_SECONDS, MEASURE_GROUPS)
            except overhead.Failed as failed:
                missing = "ModuleNotFoundError" in str(failed)
                self.add("measure", command[-1].stem, None if missing else [str(failed)])
                continue
            for name, groups in samples.items():
                self.figures[name] = groups
                self.add("measure", name, [], overhead.tell(groups, "strict", "plain")[1])
            graphs = exit_totals(reports["strict"][0])
            if graphs["nodes_live"]:
                self.add("measure", f"bytes a node ({command[-1].stem})", [],
                         f"{graphs['bytes'] / graphs['nodes_live']:.1f} "
                         f"({graphs['nodes_live']} nodes)")

    # ---- results ----

    def table(self):
        width = max((len(r.name) for r in self.rows), default=0)
        lines = [f"{r.word:4} {r.section:7} {r.name:{width}} {r.note[:150]}" for r in self.rows]
        count = collections.Counter(r.word for r in self.rows)
        lines.append(f"{count['ok']} passed, {count['FAIL']} failed, {count['skip']} skipped")
        return "\n".join(lines)

    def leave(self, table):
        if not self.out:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "gpu-table.txt").write_text(table + "\n")
        (self.out / "gpu-log.txt").write_text("\n".join(self.log)[-12_000_000:])
        (self.out / "gpu-figures.json").write_text(json.dumps(self.figures, indent=1))
        with gzip.open(self.out / "gpu-reports.jsonl.gz", "wt") as f:
            f.write("".join(self.reports))


def tells_of_slots(expect):
    return '#include "slots.h"' in expect.with_suffix(".c").read_text()


def verdict_word(problems):
    return "skip" if problems is None else "FAIL" if problems else "ok"


def last_line(text):
    return (text.strip().splitlines() or [""])[-1][:200]


def difference(a, b):
    for x, y in zip(a.splitlines() + ["<end>"], b.splitlines() + ["<end>"]):
        if x != y:
            return f"'{x}' became '{y}'"
    return "the same output"


def exit_totals(lines):
    """Sums over the exit lines of all processes of a program."""
    ends = [line for line in lines if line["type"] == "exit"]
    total = {key: sum(e["graphs"][name] for e in ends)
             for key, name in (("execs", "execs_opened"), ("nodes_live", "nodes_live"),
                               ("bytes", "bytes"), ("exact", "refs_exact"), ("struct", "refs_struct"))}
    total["verdicts"] = sorted({e["verdict"] for e in ends})
    total["unproven"] = sorted({why for e in ends for why in e["unproven"]})
    return total


def describe(t):
    return (f"{'/'.join(t['verdicts'])}: {t['execs']} execs, refs {t['exact']} exact "
            f"{t['struct']} struct {'; '.join(t['unproven'])}")


def caught(r, name):
    """A stale-launch that names the range which the program printed."""
    ranges = [(m[1], int(m[2], 16), int(m[3]))
              for m in re.finditer(r"^range (\S+)=(0x[0-9a-f]+):(\d+)$", r.out, re.M)]
    hits = [ref for line in r.lines if line.get("kind") == "stale-launch" for ref in line["refs"]
            if covers(ref, ranges, name)]
    return [] if hits else [f"no stale-launch names {name} (exit {r.code}, {last_line(r.err)})"]


def covers(ref, ranges, name):
    return any(n == name and base <= int(ref["value"], 16) < base + size
               for n, base, size in ranges)


def have_gpu():
    return shutil.which("nvidia-smi") is not None or os.path.exists("/dev/nvidia0")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    sections = ["victims", "slots", "a20", "stock", "faulty", "measure", "cupti", "cupti_times",
                "client", "python", "blocks", "blocks_times", "kernels", "engine", "two"]
    parser.add_argument("build")
    parser.add_argument("sections", nargs="*", default=sections)
    args = parser.parse_args()
    if not have_gpu():
        print("no GPU here")
        return SKIP
    out = os.environ.get("OUT")
    suite = Suite(args.build, pathlib.Path(out) if out else None)
    start = time.monotonic()
    for section in args.sections or sections:
        try:
            getattr(suite, f"run_{section}")()
        except Exception as error:  # one section must not cost the results of the others
            suite.add(section, "section", [f"{type(error).__name__}: {error}"])
        suite.leave(suite.table())  # a later section may be cut
    table = suite.table()
    print(f"\n{table}\n{time.monotonic() - start:.0f} s")
    return 1 if any(r.word == "FAIL" for r in suite.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
