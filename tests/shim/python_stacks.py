#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Python frames in the stacks of a report.

    python_stacks.py --shim SHIM --sim FOLDER [--python INTERPRETER]

Runs itself once more, under the shim, with the interpreter that is tested: each scene allocates
memory of a size of its own, by which its event is found in the trace.
"""
import argparse
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

DEPTH = 64		# STACK_PYTHON_MAX
HERE = os.path.abspath(__file__)
LONG = "f" * 3000
GENERATED = "modèle_\U0001f600.py"
KIB = 1024


# ---- what runs under the shim ----

class Driver:
    """CDLL gives up the GIL for the call, PyDLL keeps it."""

    def __init__(self, kind):
        self.lib = kind("libcuda.so.1")

    def alloc(self, size):
        p = ctypes.c_uint64()
        assert self.lib.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(size)) == 0
        return p.value


def start(lib):
    context, device = ctypes.c_void_p(), ctypes.c_int()
    assert lib.cuInit(0) == 0
    assert lib.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert lib.cuCtxSetCurrent(context) == 0
    return context


def middle(driver, size):
    return driver.alloc(size)


def outer(driver, size):
    return middle(driver, size)


def deep(driver, size, left):
    return deep(driver, size, left - 1) if left else driver.alloc(size)


def generate(driver, size):
    yield driver.alloc(size)


async def wait_for(driver, size):
    return driver.alloc(size)


def run_coroutine(driver, size):
    try:
        wait_for(driver, size).send(None)
    except StopIteration:
        pass


def run_generated(driver, name, size):
    """Code of a file whose name is no ASCII."""
    space = {}
    source = f"\n\ndef {name}(driver, size):\n    return driver.alloc(size)\n"
    exec(compile(source, GENERATED, "exec"), space)
    space[name](driver, size)


def run_thread(driver, size, context):
    def work():
        driver.lib.cuCtxSetCurrent(context)
        outer(driver, size)
    t = threading.Thread(target=work)
    t.start()
    t.join()


def run_thread_exit(driver, size, context):
    """A destructor of the thread frees memory, when Python does not know the thread any more."""
    libc, key = ctypes.CDLL(None), ctypes.c_uint()
    libc.pthread_key_create(ctypes.byref(key), driver.lib.cuMemFree_v2)

    def work():
        driver.lib.cuCtxSetCurrent(context)
        libc.pthread_setspecific(key, ctypes.c_void_p(driver.alloc(size)))
    t = threading.Thread(target=work)
    t.start()
    t.join()
    while os.path.exists(f"/proc/self/task/{t.native_id}"):	# join() waits for Python's part
        time.sleep(0.001)


def run_many_threads(driver, size, context):
    def work(n):
        driver.lib.cuCtxSetCurrent(context)
        for _ in range(50):
            deep(driver, size, n)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


class Late:
    """Allocates while the interpreter goes away."""

    def __init__(self, driver, size):
        self.driver, self.size = driver, size
        self.pointer, self.length, self.ref = ctypes.c_uint64(), ctypes.c_size_t(size), ctypes.byref

    def __del__(self):
        self.driver.lib.cuMemAlloc_v2(self.ref(self.pointer), self.length)


def run_sub_interpreter(size):
    try:
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            import _interpreters as interpreters
        script = (f"import ctypes\nl = ctypes.CDLL('libcuda.so.1')\np = ctypes.c_uint64()\n"
                  f"l.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t({size}))\n")
        interpreters.run_string(interpreters.create(), script)
    except Exception as e:	# ctypes does not load there in some versions
        print("sub-interpreter:", e)


def scenes():
    driver, holder = Driver(ctypes.CDLL), Driver(ctypes.PyDLL)
    context = start(driver.lib)
    outer(driver, 1 * KIB)
    outer(holder, 2 * KIB)
    run_thread(driver, 3 * KIB, context)
    deep(driver, 4 * KIB, 200)
    list(generate(driver, 5 * KIB))
    run_coroutine(driver, 6 * KIB)
    run_generated(driver, "größe", 7 * KIB)
    run_generated(driver, LONG, 8 * KIB)
    run_thread_exit(driver, 9 * KIB, context)
    run_many_threads(driver, 10 * KIB, context)
    run_sub_interpreter(11 * KIB)
    for _ in range(3):
        outer(driver, 12 * KIB)
    sys.late = Late(driver, 13 * KIB)


# ---- what looks at the report ----

class Report:
    def __init__(self, path):
        self.lines = [json.loads(line) for line in path.read_text().splitlines()]
        self.stacks = {line["id"]: line for line in self.lines if line["type"] == "stack"}

    def events(self, kib, event="alloc"):
        return [line for line in self.lines if line["type"] == "event" and
                line["event"] == event and line["size"] == kib * KIB]

    def python(self, kib, event="alloc"):
        events = self.events(kib, event)
        assert events and events[0]["stack"], f"no stack of the {event} of {kib} KiB"
        stack = self.stacks[events[0]["stack"]]
        return [(os.path.basename(file), line, name) for file, line, name in stack["python"]]

    def names(self, kib, event="alloc"):
        return [name for _, _, name in self.python(kib, event)]


def line_of(text, after):
    """Where the source says @text, below the definition of @after."""
    lines = pathlib.Path(HERE).read_text(encoding="utf-8").splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith(f"def {after}("))
    return next(i + 1 for i in range(begin, len(lines)) if text in lines[i])


def check(report):
    me = os.path.basename(HERE)
    chain = ["alloc", "middle", "outer"]

    assert report.python(1)[1:3] == [(me, line_of("return driver.alloc", "middle"), "middle"),
                                     (me, line_of("return middle", "outer"), "outer")], \
        report.python(1)
    assert report.names(1) == chain + ["scenes", "<module>"], report.names(1)
    assert report.names(2) == chain + ["scenes", "<module>"], "with the GIL held"
    assert report.names(3)[:4] == chain + ["work"] and "scenes" not in report.names(3)
    assert report.names(4) == ["alloc"] + ["deep"] * (DEPTH - 1), len(report.names(4))
    assert report.names(5)[:3] == ["alloc", "generate", "scenes"], report.names(5)
    assert report.names(6)[:3] == ["alloc", "wait_for", "run_coroutine"], report.names(6)
    assert report.python(7)[1] == (GENERATED, 4, "größe"), report.python(7)[1]
    cut = report.names(8)[1]
    assert cut.startswith("fff") and cut.endswith("...") and len(cut) < len(LONG), cut
    assert report.names(9)[:2] == ["alloc", "work"]
    assert report.names(9, "free") == [], "a thread that Python does not know"
    assert len({e["stack"] for e in report.events(10)}) == 8, "one stack for each depth"
    assert len(report.events(10)) == 400
    assert len({e["stack"] for e in report.events(12)}) == 1, "one place, one stack"
    assert report.names(13) == [], "the interpreter is going away"
    exit_line = report.lines[-1]
    assert exit_line["type"] == "exit" and exit_line["coverage"]["python-unread"] == 0


def known(interpreter):
    code = ("import sys, sysconfig; print(sys.version_info[1], int(hasattr(sys, 'gettotalrefcount')"
            " or bool(sysconfig.get_config_var('Py_GIL_DISABLED'))))")
    try:
        out = subprocess.run([interpreter, "-c", code], check=True, text=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as e:
        print("skip:", e)
        sys.exit(77)
    minor, odd = map(int, out.stdout.split())
    return 10 <= minor <= 13 and not odd


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--shim", required=True)
    p.add_argument("--sim", required=True)
    p.add_argument("--python", default=sys.executable)
    args = p.parse_args()
    readable = known(args.python)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "report.jsonl")
        first = os.environ.get("ARENA_TEST_PRELOAD")
        env = dict(os.environ, LD_LIBRARY_PATH=args.sim, ARENA_TRACE="on", ARENA_REPORT=str(path),
                   LD_PRELOAD=":".join(([first] if first else []) + [os.path.abspath(args.shim)]))
        done = subprocess.run([args.python, HERE], env=env, timeout=120, check=False)
        assert done.returncode == 0, done.returncode
        report = Report(path)
    if readable:
        check(report)
    else:
        assert report.names(1) == [] and report.lines[-1]["coverage"]["python-unread"] == 1


if __name__ == "__main__":
    if len(sys.argv) == 1:
        scenes()
    else:
        main()
