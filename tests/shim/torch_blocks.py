#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Block events of a real PyTorch, without a GPU: CPU tensors are told while a profiler records.

Runs under the shim (with_shim.py) on the simulated driver, with ARENA_BLOCKS=all and
ARENA_GATE=strict. A graph captures a copy out of a CPU tensor; it is refused once that is gone.
What the profiler itself sees must not suffer. Exit 77: no PyTorch here.
"""
import ctypes
import sys

try:
    import torch
except ImportError as error:
    print(f"skip: {error}", file=sys.stderr)
    sys.exit(77)

BYTES = 1 << 20
REFUSED = 401
cuda = ctypes.CDLL("libcuda.so.1")


def ok(code):
    assert code == 0, f"the driver answered {code}"


def start():
    """A context, a stream and device memory."""
    context, stream, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    ok(cuda.cuInit(0))
    ok(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
    ok(cuda.cuStreamCreate(ctypes.byref(stream), 1))
    ok(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(BYTES)))
    return stream, memory


def capture(stream, memory, source):
    """An exec that copies the tensor @source to the device."""
    graph, exec_ = ctypes.c_void_p(), ctypes.c_void_p()
    ok(cuda.cuStreamBeginCapture_v2(stream, 1))
    ok(cuda.cuMemcpyHtoDAsync_v2(memory, ctypes.c_void_p(source.data_ptr() + 64),
                                 ctypes.c_size_t(4096), stream))
    ok(cuda.cuStreamEndCapture(stream, ctypes.byref(graph)))
    ok(cuda.cuGraphInstantiateWithFlags(ctypes.byref(exec_), graph, ctypes.c_ulonglong(0)))
    ok(cuda.cuGraphDestroy(graph))
    return exec_


def story(stream, memory):
    kept = torch.zeros(BYTES, dtype=torch.uint8)
    gone = torch.zeros(BYTES, dtype=torch.uint8)
    of_kept, of_gone = capture(stream, memory, kept), capture(stream, memory, gone)
    ok(cuda.cuGraphLaunch(of_kept, stream))
    ok(cuda.cuGraphLaunch(of_gone, stream))
    ok(cuda.cuStreamSynchronize(stream))
    del gone
    ok(cuda.cuGraphLaunch(of_kept, stream))
    answer = cuda.cuGraphLaunch(of_gone, stream)
    assert answer == REFUSED, f"a launch on a tensor that is gone: {answer}"
    # A graph of what lives there now is as good as any.
    again = torch.zeros(BYTES, dtype=torch.uint8)
    ok(cuda.cuGraphLaunch(capture(stream, memory, again), stream))
    ok(cuda.cuStreamSynchronize(stream))


def main():
    stream, memory = start()
    with torch.autograd.profiler.profile(profile_memory=True) as profiler:
        story(stream, memory)
    seen = sum(e.self_cpu_memory_usage for e in profiler.key_averages()
               if e.self_cpu_memory_usage > 0)
    assert seen >= 3 * BYTES, f"the profiler saw {seen} bytes"
    # Nothing is told without the profiler; nothing must break either.
    story_free = torch.zeros(BYTES)
    del story_free
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
