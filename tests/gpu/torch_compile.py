#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Healthy PyTorch: torch.compile with CUDA graph trees; parameters updated in place."""
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.GELU(),
                            torch.nn.Linear(128, 8)).cuda().eval()
compiled = torch.compile(model, mode="reduce-overhead")
x = torch.ones(32, 128, device="cuda")
with torch.no_grad():
    for i in range(12):
        torch.compiler.cudagraph_mark_step_begin()
        y = compiled(x).clone()
        if i == 6:
            for p in model.parameters():
                p.mul_(0.5)
            torch.cuda.empty_cache()
        print(i, y.shape[0], bool(torch.isfinite(y).all()))
    print("close", bool(torch.allclose(y, model(x), atol=1e-3)))
