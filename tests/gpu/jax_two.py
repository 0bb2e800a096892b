#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A JAX program on two GPUs: a matrix is split over them, and the compiled computation, whose
all-reduce is NCCL's, runs as command buffers. XLA_FLAGS is set by the runner."""
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

if jax.device_count() < 2:
    sys.exit("two GPUs are needed")
mesh = Mesh(np.array(jax.devices()[:2]), ("d",))
rows = NamedSharding(mesh, PartitionSpec("d", None))
columns = NamedSharding(mesh, PartitionSpec(None, "d"))


@jax.jit
def layers(x, weights):
    for w in weights:
        x = jax.lax.with_sharding_constraint(x, columns) @ w
        x = jnp.round(jnp.maximum(x, 0) * 2 - 1)
    return x


weights = [jax.device_put(jnp.eye(512, dtype=jnp.float32), rows) for _ in range(4)]
for i in range(6):
    x = jax.device_put(jnp.full((64, 512), float(i), jnp.float32), columns)
    y = layers(x, weights)
    weights = [w + 0 for w in weights]          # new buffers, the old ones are freed
    print(i, float(y.sum()))
