#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Views of slots in an array library, without a copy: views.py torch|cupy|jax

A reload stages a value by the client (scripts/arena.py), the library reads the slot by
__cuda_array_interface__; a second reload changes the value, and the same array shows it.
"""
import importlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import arena  # noqa: E402

N = 4096


class Torch:
    def __init__(self):
        self.lib = importlib.import_module("torch")

    def make(self, value):
        return self.lib.full((4, N // 4), value, dtype=self.lib.float32, device="cuda")

    def view(self, slot):
        return self.lib.as_tensor(slot, device="cuda")

    def pointer(self, array):
        return array.data_ptr()

    def values(self, array):
        return array.flatten().tolist()

    def again(self, array, slot):
        """The same memory: the array that is there already shows it."""
        return array

    def bfloat16(self, a):
        """A type that has no array interface: torch() has it."""
        want = self.lib.arange(N, dtype=self.lib.bfloat16, device="cuda").view(64, N // 64)
        slot = a.put("b", want)
        tensor = slot.torch()
        assert tensor.dtype == want.dtype and tensor.shape == want.shape
        return lambda: self.lib.equal(tensor, want)


class Cupy(Torch):
    def __init__(self):
        self.lib = importlib.import_module("cupy")

    def make(self, value):
        return self.lib.full((4, N // 4), value, dtype=self.lib.float32)

    def view(self, slot):
        return self.lib.asarray(slot)

    def pointer(self, array):
        return array.data.ptr

    def values(self, array):
        return array.ravel().tolist()

    def bfloat16(self, a):
        return lambda: True


class Jax(Cupy):
    def __init__(self):
        self.lib = importlib.import_module("jax.numpy")

    def make(self, value):
        array = self.lib.full((4, N // 4), value, dtype=self.lib.float32)
        return array.block_until_ready()

    def view(self, slot):
        return self.lib.asarray(slot)

    def pointer(self, array):
        return array.unsafe_buffer_pointer()

    def again(self, array, slot):
        """Arrays of JAX keep the values that they have shown: a new one over the slot."""
        return self.view(slot)


def put(kit, value, partial=False):
    with arena.reload() as r, arena.layer("model.layers.0") as a:
        slot = a.put("w", kit.make(value))
        check = None if partial else kit.bfloat16(a)
        a.commit()
    assert r.report["verdict"] == "pass", r.report
    return slot, check


def main():
    kit = {"torch": Torch, "cupy": Cupy, "jax": Jax}[sys.argv[1]]()
    kit.make(0.0)                   # the library makes its context
    arena.require()
    slot, check = put(kit, 1.0)
    array = kit.view(slot)
    assert kit.pointer(array) == slot.pointer, "a copy was made"
    assert kit.values(array) == [1.0] * N
    assert check()
    again, _ = put(kit, 2.0, partial=True)
    assert again.pointer == slot.pointer
    assert kit.values(kit.again(array, again)) == [2.0] * N
    print(f"{slot!r}: the same memory in {sys.argv[1]}")


if __name__ == "__main__":
    main()
