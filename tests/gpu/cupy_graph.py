#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CuPy: a stream captured into a graph, replayed with new values."""
import cupy

n = 1 << 20
x = cupy.ones(n, dtype=cupy.float32)
y = cupy.full(n, 2, dtype=cupy.float32)
out = cupy.empty(n, dtype=cupy.float32)
add = cupy.ElementwiseKernel("float32 a, float32 b", "float32 c", "c = a * 3 + b", "scale_add")
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    add(x, y, out)
    stream.synchronize()
    stream.begin_capture()
    add(x, y, out)
    add(out, y, out)
    graph = stream.end_capture()
    for i in range(4):
        x.fill(i)
        graph.launch(stream)
        stream.synchronize()
        print(i, float(out[0]), float(out[n - 1]))
