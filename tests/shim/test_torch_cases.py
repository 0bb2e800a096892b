#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cases of tests/gpu/torch_cases.py with PyTorch's CPU tensors on the simulated driver: what
"cuda" tensors would be is host memory that is registered while a tensor uses it, and a graph is one
of copies.

    test_torch_cases.py SCRIPTS CASES_FOLDER [CASE...]      exit 77: no PyTorch here
"""
import collections
import ctypes
import sys
import weakref

sys.path[:0] = sys.argv[1:3]
try:
    import torch
    from torch.overrides import TorchFunctionMode
except ImportError as error:
    print(f"no PyTorch, or too old a one: {error}")
    sys.exit(77)

import arena  # noqa: E402
from sim_driver import Driver  # noqa: E402

import torch_cases  # noqa: E402

driver = Driver()


class Memory:
    """Which storages are in use, by how many tensors: those are registered with the driver."""

    def __init__(self):
        self.users, self.known = collections.Counter(), set()

    def add(self, t):
        if id(t) in self.known:
            return
        with torch._C.DisableTorchFunction():
            storage = t.storage()
            base, size = storage.data_ptr(), storage.nbytes()
        if size and not self.users[base]:
            driver.register(base, size)
        self.users[base] += 1
        self.known.add(id(t))
        weakref.finalize(t, self.drop, id(t), base, size)

    def drop(self, number, base, size):
        self.known.discard(number)
        self.users[base] -= 1
        if size and not self.users[base]:
            driver.do("cuMemHostUnregister", ctypes.c_void_p(base))


class OnCpu(TorchFunctionMode):
    """Tensors for "cuda" are made on the CPU, and each one that a function returns is noted."""
    memory = Memory()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        result = func(*args, **kwargs)
        if type(result) is torch.Tensor:
            self.memory.add(result)
        return result


class Graph:
    def __init__(self, graph):
        self.graph = graph

    def replay(self):
        error = driver.launch(self.graph)
        if error:
            raise RuntimeError(f"driver: {error}")

    def __del__(self):
        driver.do("cuGraphExecDestroy", self.graph[0])


def capture(case, *sources):
    return Graph(driver.capture([s.data_ptr() for s in sources], case.out.data_ptr(), 256))


def stand_in():
    """Make torch_cases what it can be here."""
    parameter, watch = torch.nn.Parameter, arena.watch

    def make_parameter(*args, **options):
        p = parameter(*args, **options)     # this one no function returns
        OnCpu.memory.add(p)
        return p

    torch.nn.Parameter = make_parameter
    torch.cuda.synchronize = torch.cuda.empty_cache = lambda: None
    arena.watch = lambda *args, **options: watch(*args, devices=("cpu",), **options)
    # Small enough for the heap: a graph that is not refused reads what was freed.
    torch_cases.SIDE, torch_cases.N, torch_cases.SEGMENT = 32, 32 * 32, 8192
    torch_cases.new.__defaults__ = (1.0, torch_cases.N)
    torch_cases.Case.capture = capture


if __name__ == "__main__":
    stand_in()
    sys.argv[1:] = sys.argv[3:]
    with OnCpu():
        status = torch_cases.main()
    sys.exit(status)
