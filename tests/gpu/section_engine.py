# SPDX-License-Identifier: Apache-2.0
"""Section engine of run.py: every model family of the decode engine, naive and over arenas, with 20
reloads; the table of the README, from this GPU."""
import argparse
import concurrent.futures
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "engine"))
import run_families  # noqa: E402

SECTION = "engine"
RELOADS = 20
WORKERS = 4


def run(suite):
    program = suite.build / "tests" / "engine" / "engine"
    if not program.exists():
        suite.add(SECTION, "families", None, "engine is not in this build")
        return
    args = argparse.Namespace(shim=str(suite.shim), engine=str(program), sim=None,
                              reloads=RELOADS)
    families = list(run_families.NAIVE)
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        results = list(pool.map(lambda f: run_families.family_row(args, f), families))
    for family, (cells, problems) in zip(families, results):
        suite.add(SECTION, family, problems, ", ".join(cells[1:]))
    suite.log.append(run_families.table(args, [cells for cells, _ in results]))
