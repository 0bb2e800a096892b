#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Healthy PyTorch: torch.cuda.make_graphed_callables around a small model, in a training loop."""
import torch

torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = False
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(),
                            torch.nn.Linear(256, 16)).cuda()
graphed = torch.cuda.make_graphed_callables(model, (torch.randn(64, 256, device="cuda"),))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(64, 256, device="cuda")
target = torch.randint(0, 16, (64,), device="cuda")
for i in range(20):
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(graphed(data), target)
    loss.backward()
    optimizer.step()
torch.cuda.empty_cache()
print("loss fell to", round(loss.item(), 3))
