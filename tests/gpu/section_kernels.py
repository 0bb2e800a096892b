# SPDX-License-Identifier: Apache-2.0
"""Section kernels of run.py: the kernels of kernels/ on the GPU.

Each derivation (kernels_check) and each maintenance kernel (kernels_maintain) against its C twin,
bit for bit, each kernel of a decode graph (decode_check) within its bound, the same under
compute-sanitizer where it is installed, and what share of a copy's bandwidth those reach that move
a weight, or look at all of it.
"""
import re
import shutil

SECTION = "kernels"
PROGRAMS = {"kernels_check": "derivations", "kernels_maintain": "maintenance",
            "decode_check": "decode graph"}
# Per cent that figures have to reach, by how their names begin; the others are only told.
SHARES_MIN = {
    "kernels_check": {"": 60.0},  # of a device-to-device copy of the same bytes
    "kernels_maintain": {"fingerprint, one span": 80.0, "scan, one span": 80.0},  # of its traffic
}
SEEDS = ("20251129", "1")
TOOLS = ("memcheck", "racecheck", "initcheck")


def run(suite):
    for name in PROGRAMS:
        program = suite.build / "tests" / "gpu" / name
        if not program.exists():
            suite.add(SECTION, PROGRAMS[name], None, f"{name} is not in this build")
            continue
        for seed in SEEDS:
            r = suite.run([program, "large", seed], None, timeout=300)
            add_checks(suite, r, f"{PROGRAMS[name]}, seed {seed}")
            if seed == SEEDS[0]:
                add_figures(suite, r, SHARES_MIN.get(name, {}))
        add_sanitizer(suite, program)


def add_checks(suite, r, title):
    if r.code == 77:
        suite.add(SECTION, title, None, r.out.strip())
        return
    rows = re.findall(r"^(ok|FAIL) +(\w+) (\d+) calls", r.out, re.M)
    # What differs, with the call: indented lines.
    notes = [line.strip() for line in r.err.splitlines() if line]
    problems = [name for word, name, _ in rows if word == "FAIL"] + notes[:6]
    if r.code and not problems:
        problems = [f"exit {r.code}"]
    calls = sum(int(n) for _, _, n in rows)
    suite.add(SECTION, title, problems if r.code or not rows else [],
              f"{len(rows)} kernels, {calls} calls equal to the twins")


def add_figures(suite, r, shares_min):
    for name, value, unit in re.findall(r"^(\S.*?) +([\d.]+) (GB/s|%)$", r.out, re.M):
        suite.figures[f"{SECTION} {name}"] = float(value)
        least = max((share for start, share in shares_min.items() if name.startswith(start)),
                    default=0.0)
        low = unit == "%" and float(value) < least
        suite.add(SECTION, name, [f"{value} %, wanted {least:.0f} %"] if low else [],
                  f"{value} {unit}")


def add_sanitizer(suite, program):
    tool = shutil.which("compute-sanitizer") or suite.cuda / "bin" / "compute-sanitizer"
    for kind in TOOLS:
        title = f"{program.name}, {kind}"
        if not shutil.which(str(tool)):
            suite.add(SECTION, title, None, "compute-sanitizer is not installed")
            continue
        r = suite.run([tool, "--tool", kind, "--error-exitcode", "9", program, "small"], None,
                      timeout=300)
        summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", r.out + r.err)
        clean = summary and re.search(r"SUMMARY: 0 ", summary[-1]) and not r.code
        suite.add(SECTION, title, [] if clean else [f"exit {r.code} {' '.join(summary[-1:])}"],
                  " ".join(summary[-1:]))
