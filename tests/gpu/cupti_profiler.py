#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.profiler around a graph: before the first capture, right after one (a window is open, if
there are any), and after many replays (it is closed). Prints how many kernels it saw each time,
which must not depend on the library."""
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

x = torch.randn(512, 512, device="cuda")


def eager():
    for _ in range(5):
        torch.relu(x @ x)


def profiled(name, step):
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
        step()
        torch.cuda.synchronize()
    kernels = [e for e in p.events() if e.device_type == DeviceType.CUDA
               and not e.name.startswith(("Mem", "ProfilerStep", "Activity"))]
    print("kernels %s %d" % (name, len(kernels)))


def capture():
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            torch.relu(x @ x)
    return graph


def replay(graph, times):
    for _ in range(times):
        graph.replay()
    torch.cuda.synchronize()


eager()
profiled("before", eager)
graph = capture()
profiled("during", lambda: (eager(), replay(graph, 3)))
replay(graph, 1000)
profiled("after", lambda: (eager(), replay(graph, 3)))
later = capture()
profiled("later", lambda: replay(later, 3))
