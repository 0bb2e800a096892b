#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A20 told by PyTorch: allocate, capture one kernel, launch, free, launch again (guarded)."""
import sys

import torch

STORY_INTS = 48 * 2**20 // 4

out = torch.zeros(1024, dtype=torch.int32, device="cuda")
story = torch.full((STORY_INTS,), 7, dtype=torch.int32, device="cuda")
out.add_(story[:1024])          # loads the kernel before the capture
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out.add_(story[:1024])
graph.replay()
torch.cuda.synchronize()
del story
torch.cuda.empty_cache()
try:
    graph.replay()
    torch.cuda.synchronize()
except RuntimeError as error:
    print("refused:", str(error).splitlines()[0])
    sys.exit(0)
print("not refused")
sys.exit(1)
