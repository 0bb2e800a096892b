#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs bench_hooks in four worlds, in turn, and prints what each adds to a direct call.

direct: no preload. nop: every wrapper only forwards. off: the shim with ARENA_GATE=off. on: the
shim. The worlds take turns, and the best of all turns counts, so that a slow phase of the machine
hits all of them. Nothing is asserted: figures are for readers (and for RESULTS.md).
"""
import argparse
import os
import subprocess
import sys

BUDGET = {  # design.md section 6; what the shim adds to a direct call
    "cuLaunchKernel": "<= 5 ns",
    "cuGraphLaunch-1": "<= 25 ns",
    "cuGraphLaunch-10000": "<= 25 ns",
    "instantiate-node": "<= 1500 ns, a quarter of the driver's 6 us",
}


def worlds(args):
    off = {"ARENA_GATE": "off"}
    on = {"ARENA_GATE": "warn", "ARENA_REPORT": ""}
    return {
        "direct": {},
        "nop": {"LD_PRELOAD": args.nop},
        "off": {"LD_PRELOAD": args.shim, **off},
        "on": {"LD_PRELOAD": args.shim, **on},
    }


def run(args, mode, extra):
    env = {k: v for k, v in os.environ.items() if not k.startswith("ARENA_") and k != "LD_PRELOAD"}
    env.update(extra)
    done = subprocess.run([args.bench, mode], env=env, stdout=subprocess.PIPE, text=True, check=True)
    result = {}
    for line in done.stdout.splitlines():
        name, threads, value = line.split()
        result[name, int(threads)] = float(value)
    return result


def best(args, mode):
    """{world: {(operation, threads): value}}, the least of all turns."""
    table = {}
    for _ in range(args.turns):
        for world, extra in worlds(args).items():
            mine = table.setdefault(world, {})
            for key, value in run(args, mode, extra).items():
                mine[key] = min(value, mine.get(key, value))
    return table


def print_calls(table):
    print("One thread, ns per call (alloc+free: per pair; instantiate: per node of 1,000)")
    print(f"{'':28}{'direct':>9}{'nop':>9}{'off':>9}{'on':>9}{'on-direct':>11}{'on/direct':>11}  budget")
    for name, threads in table["direct"]:
        if threads != 1:
            continue
        row = [table[w][name, 1] for w in ("direct", "nop", "off", "on")]
        print(f"{name:28}" + "".join(f"{v:9.1f}" for v in row)
              + f"{row[3] - row[0]:11.1f}{row[3] / max(row[0], 0.1):11.1f}  {BUDGET.get(name, '')}")


def print_threads(table):
    counts = sorted({threads for _, threads in table["on"]})
    print(f"\nThreads, million calls per second together, without and with the shim"
          f" ({os.cpu_count()} cores)")
    print(f"{'':37}" + "".join(f"{n:9}" for n in counts) + "   gain")
    for name in dict.fromkeys(n for n, _ in table["on"]):
        for world in ("direct", "on"):
            rates = [1e3 / table[world][name, n] for n in counts if (name, n) in table[world]]
            if len(rates) > 1:
                print(f"{name if world == 'direct' else '':28} {world:8}"
                      + "".join(f"{r:9.1f}" for r in rates) + f"{max(rates) / rates[0]:6.1f}x")


def print_memory(memory):
    print("\nMemory, bytes per graph node of 4 pointers")
    for key, text in (("bytes-per-node", "into 256 segments (budget <= 96)"),
                      ("bytes-per-node-spread", "each into a range of its own")):
        added = memory["on"][key, 1] - memory["direct"][key, 1]
        print(f"{added:9.0f}  {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--nop", required=True)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()

    table = best(args, "time")
    print_calls(table)
    print_threads(table)
    print_memory(best(args, "memory"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
