# SPDX-License-Identifier: Apache-2.0
"""Small reports for tests, line by line: of ranks that reload. Valid by reports/schema.json."""
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_NS = 1_795_980_000_000_000_000
FULL = {"full": True, "layers": [], "sources": [], "role": ""}


def seconds(n):
    return START_NS + int(n * 1e9)


def scope(**given):
    return dict(FULL, full=not given, **given)


def start(rank=0, pid=None, at=0.0, **given):
    line = {"schema": 1, "type": "start", "time_ns": seconds(at), "pid": pid or 1000 + rank,
            "ppid": 1, "host": f"node{rank // 8}", "rank": rank, "exe": "/opt/engine/worker",
            "argv0": "worker", "version": "0.1.0", "library": "/opt/arena/libarena_shim.so",
            "unwinder": "libunwind", "ld_preload": "/opt/arena/libarena_shim.so",
            "driver_version": 13000, "options": {"ARENA_GATE": "strict", "ARENA_TRACE": "off"}}
    line.update(given)
    return line


def finding(text, severity="error", kind="moved", layer="model.layers.0", slot="W_UV"):
    return {"kind": kind, "severity": severity, "title": "a slot moved", "text": text,
            "layer": layer, "slot": slot, "source": "", "cache": "", "detail": "", "old": None,
            "new": None, "execs": 1, "inferred": False}


def reload(number, rank=0, pid=None, at=1.0, took=1.0, **given):
    line = {"schema": 1, "type": "reload", "time_ns": seconds(at + took), "pid": pid or 1000 + rank,
            "verdict": "pass", "id": number, "counts_as": "pass", "aborted": False, "why": "",
            "unsafe": False, "generation": number, "scope": FULL,
            "layers": {"committed": 4, "refused": 0, "open": 0}, "published_bytes": 1 << 20,
            "shadow_peak_bytes": 1 << 18, "begin_ns": seconds(at), "end_ns": seconds(at + took),
            "receipts": {"sources": 4, "parts": 4, "bytes": 1 << 20}, "manifest": True,
            "caches": [], "coverage": {}, "findings": [], "only_layers": [], "only_model": []}
    line.update(given)
    line["counts_as"] = "pass" if line["verdict"] == "pass" else "fail"
    return line


def verify(rank=0, verdict="pass", findings=(), at=30.0):
    return {"schema": 1, "type": "verify", "time_ns": seconds(at), "pid": 1000 + rank,
            "verdict": verdict, "findings": list(findings)}


def ended(rank=0, pid=None, at=60.0, verdict="pass", last="pass", number=1, is_open=False,
          unsafe=False, coverage=None, graphs=None, unproven=()):
    counts = dict({"execs_opened": 4, "nodes": 256, "refs": 512, "launches_stale": 0,
                   "nodes_by_kind": {"kernel": 256}}, **(graphs or {}))
    return {"schema": 1, "type": "exit", "time_ns": seconds(at), "pid": pid or 1000 + rank,
            "verdict": verdict, "counts_as": "pass" if verdict == "pass" else "fail",
            "findings": {"info": 0, "warn": 0, "error": 0},
            "findings_by_kind": {}, "findings_repeated": 0,
            "findings_left_out": 0, "lines_lost": 0, "unproven": list(unproven),
            "coverage": coverage or {},
            "reload": {"last": last, "id": number, "generation": number, "unsafe": unsafe,
                       "open": is_open},
            "ledger": {"opened": 8, "closed": 4, "live": 4, "kinds": {}}, "graphs": counts,
            "cupti": {"cross": {"compared": 0, "agreed": 0, "skipped": 0, "nodes": 0,
                                "addresses": 0, "reasons": {}}},
            "noted": {}, "entries": ["cuGraphLaunch", "cuMemAlloc_v2"]}


def dumps(lines):
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def write(folder, name, lines):
    path = pathlib.Path(folder) / name
    path.write_text(dumps(lines), encoding="utf-8")
    return str(path)
