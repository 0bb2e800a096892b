#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""watch() of scripts/arena.py on modules of a real PyTorch, of the CPU, on the simulated driver.
Host memory that is registered has ranges and can be captured, so CPU tensors stand for others.

    test_torch_py.py SCRIPTS [unittest options]     exit 77: no PyTorch here
"""
import gc
import re
import sys
import unittest
import warnings

sys.path.insert(0, sys.argv[1])
try:
    import torch
except ImportError as error:
    print(f"no PyTorch: {error}")
    sys.exit(77)

import arena  # noqa: E402
from sim_driver import Driver  # noqa: E402

BOTH = ("cuda", "cpu")
N = 64


class Spying(torch.Tensor):
    """A subclass whose functions may not be called."""
    called = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.called.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class Saying(torch.Tensor):
    """A subclass with a say in where it is."""

    def _no(self, *args):
        Spying.called.append(type(self))
        raise RuntimeError("code of the model ran")

    device = layout = dtype = shape = is_nested = property(_no)
    data_ptr = stride = element_size = _no


class Wrapper(torch.Tensor):
    """A tensor without memory of its own, as DTensor and quantised weights are."""

    @staticmethod
    def __new__(cls, inner):
        t = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        t._inner = inner
        return t

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError("the wrapper was asked")


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kv_b_proj = torch.nn.Linear(N, N, bias=False)
        self.register_buffer("cos", torch.ones(N))
        self.derive()

    def derive(self):
        self.W_UV = self.kv_b_proj.weight.detach().t().contiguous()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(N, N)
        self.layers = torch.nn.ModuleList([Attention(), Attention()])
        self.head = torch.nn.Linear(N, N, bias=False)
        self.head.weight = self.embed.weight


class Torch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver = Driver()
        arena.require()
        cls.out = cls.driver.alloc(4 * N)
        cls.registered = []                 # registered memory must not be given back

    def setUp(self):
        self.path = self.id().rpartition(".")[2]

    def watch(self, model, **options):
        return arena.watch(model, self.path, **dict({"devices": BOTH}, **options))

    def names(self, w):
        return {(layer[len(self.path):] + "/" + slot).lstrip("/") for layer, slot in w.bound}

    def reasons(self, w):
        return {s.path[len(self.path) + 1:]: s.reason for s in w.skipped}

    def capture(self, *tensors):
        for t in tensors:
            self.driver.register(t.data_ptr(), t.numel() * t.element_size())
            self.registered.append(t)
        return self.driver.capture([t.data_ptr() for t in tensors], self.out, 4 * N)

    def test_paths(self):
        m = Model()
        w = self.watch(m)
        self.assertEqual(self.names(w), {
            ".embed/weight", *(f".layers.{i}{name}" for i in (0, 1)
                               for name in ("/cos", "/W_UV", ".kv_b_proj/weight"))})
        b = w.bound[self.path + ".embed", "weight"]
        self.assertEqual(b.aliases, (self.path + ".head.weight",))
        self.assertEqual((b.pointer, b.dtype, b.shape, b.strides, b.bytes),
                         (m.embed.weight.data_ptr(), "<f4", (N, N), (N, 1), 4 * N * N))
        self.assertTrue(w.complete)

    def test_devices(self):
        m = Model()
        m.shape = torch.ones(3, device="meta")
        w = arena.watch(m, self.path)
        self.assertEqual(w.bound, {})
        self.assertEqual(self.reasons(w)["embed.weight"], "on cpu")
        self.assertEqual(self.reasons(w)["shape"], "on meta")

    def test_hiding_places(self):
        m = torch.nn.Linear(N, N, bias=False)
        m.weight.scale = torch.ones(N)                  # as weight loaders leave them
        held = torch.ones(N)
        m.register_forward_hook(lambda *a: held)
        m.hidden = [torch.nn.Linear(N, N, bias=False)]  # a module that is not registered
        m.view = m.weight.detach()[1:, ::2]
        w = self.watch(m)
        self.assertEqual({re.sub(r"hooks\[\d+\]", "hooks[]", n) for n in self.names(w)}, {
            "weight", "weight.scale", "_forward_hooks[].__closure__[0]", "view",
            ".hidden[0]/weight"})
        b = w.bound[self.path, "view"]
        self.assertEqual((b.pointer, b.strides), (m.view.data_ptr(), m.view.stride()))

    def test_layouts(self):
        warnings.simplefilter("ignore")     # PyTorch's, of what is in beta state
        m = torch.nn.Module()
        m.coo = torch.eye(4).to_sparse()
        m.csr = torch.eye(4).to_sparse_csr()
        m.quantised = torch.quantize_per_tensor(torch.ones(8), 0.1, 0, torch.qint32)
        m.nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        m.bf16 = torch.ones(4, dtype=torch.bfloat16)
        m.ten = torch.ones((1,) * 10)
        m.empty = torch.ones(0)
        m.lazy = torch.nn.UninitializedParameter()
        w = self.watch(m)
        self.assertEqual(self.names(w), {
            "coo._indices()", "coo._values()", "csr.crow_indices()", "csr.col_indices()",
            "csr.values()", "quantised", "bf16", "ten"})
        self.assertEqual(w.bound[self.path, "quantised"].bytes, 32)
        self.assertEqual(w.bound[self.path, "bf16"].dtype, "bfloat16")
        self.assertEqual(set(self.reasons(w)), {"nested", "empty", "lazy"})

    def test_subclasses(self):
        m = torch.nn.Module()
        m.spying = torch.ones(4).as_subclass(Spying)
        m.saying = torch.ones(4).as_subclass(Saying)
        m.wrapper = Wrapper(torch.ones(4))
        Spying.called.clear()
        w = self.watch(m)
        self.assertEqual(Spying.called, [])
        self.assertEqual(self.names(w), {"spying", "saying", "wrapper._inner"})
        self.assertIn("__torch_dispatch__", self.reasons(w)["wrapper"])

    def test_fake_tensors(self):
        try:
            from torch._subclasses.fake_tensor import FakeTensorMode
        except ImportError as error:
            self.skipTest(str(error))
        with FakeTensorMode():
            m = torch.nn.Linear(4, 4)
        self.assertEqual(self.names(self.watch(m)), set())

    def test_in_place(self):
        m, source = Model(), Model()
        attention = m.layers[1]
        graph = self.capture(attention.W_UV, attention.kv_b_proj.weight)
        w = self.watch(m)
        for _ in range(20):
            with arena.reload(watch=w) as r:
                m.load_state_dict(source.state_dict())
                for layer in m.layers:
                    with arena.layer(self.path):
                        layer.W_UV.copy_(layer.kv_b_proj.weight.detach().t())
            self.assertEqual((r.report["verdict"], r.report["findings"]), ("pass", []))
        self.assertEqual(self.driver.launch(graph), 0)

    def test_derived_tensor_moves(self):
        m = Model()
        graph = self.capture(*(layer.W_UV for layer in m.layers))
        w = self.watch(m)
        old = [hex(layer.W_UV.data_ptr()) for layer in m.layers]
        with arena.reload(watch=w) as r:
            for layer in m.layers:
                layer.derive()
        self.assertEqual(r.report["verdict"], "fail")
        self.assertEqual(
            [(f["layer"], f["slot"], f["kind"], f["severity"], f["old"]["base"], f["new"]["base"])
             for f in r.report["findings"]],
            [(f"{self.path}.layers.{i}", "W_UV", "moved", "error", old[i],
              hex(m.layers[i].W_UV.data_ptr())) for i in (0, 1)])
        self.assertEqual(r.report["findings"], w.findings)
        # As long as it lives, no reload passes; the next one takes what is for right.
        self.driver.do("cuGraphExecDestroy", graph[0])
        with arena.reload():
            pass

    def test_expanded(self):
        m = torch.nn.Linear(N, N, bias=False)
        m.scale, m.rows = torch.ones(1).expand(4), torch.ones(3, 1).expand(3, 5)
        m.all, m.none = torch.ones(1).expand(2, 2), torch.ones(1).expand(0)
        w = self.watch(m)
        self.assertEqual(self.names(w), {"weight", "scale", "rows", "all"})
        self.assertEqual(self.reasons(w), {"none": "empty"})

    def test_untied(self):
        """A tied weight that gets memory of its own: the name that the graph knows stays."""
        m = Model()
        w = self.watch(m)
        m.head.weight = torch.nn.Parameter(m.embed.weight.detach().clone())
        self.assertEqual(self.watch(m).findings, [])
        self.assertEqual(w.split, [self.path + ".head.weight"])

    def test_no_reference_is_kept(self):
        m = Model()
        held = [m.layers[0].W_UV, m.layers[0], m.embed.weight, m]
        before = [sys.getrefcount(o) for o in held]
        self.watch(m)
        gc.collect()
        self.assertEqual([sys.getrefcount(o) for o in held], before)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
