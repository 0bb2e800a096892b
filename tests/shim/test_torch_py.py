#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""watch() of scripts/arena.py on modules of a real PyTorch, of the CPU, on the simulated driver.
Host memory that is registered has ranges and can be captured, so CPU tensors stand for others.

    test_torch_py.py SCRIPTS [unittest options]     exit 77: no PyTorch here
"""
import ctypes
import gc
import re
import sys
import threading
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
        w = arena.watch(model, self.path, **dict({"devices": BOTH}, **options))
        self.addCleanup(self.unbind, w)
        return w

    @staticmethod
    def unbind(w):
        """Tensors of later tests may lie in the same memory."""
        for b in w.bound.values():
            arena.Layer(b.layer).unbind(b.slot)
        w.bound = {}

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

    def born(self):
        """A tensor that a capture allocates, as PyTorch's allocator says it, and the graph, which
        writes it. Blocks of a device begin at multiples of 512."""
        class Device(ctypes.Structure):
            _fields_ = [("type", ctypes.c_int8), ("index", ctypes.c_int8)]

        flat = torch.zeros(1024 + 128)
        t = flat[-flat.data_ptr() % 512 // 4:][:1024]
        report = ctypes.CDLL(None)._ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
        self.driver.register(t.data_ptr(), 4096)
        self.registered.append(flat)
        return t, self.driver.capture(
            [self.out], t.data_ptr(), 4 * N,
            lambda: report(ctypes.c_void_p(t.data_ptr()), ctypes.c_int64(4096), ctypes.c_size_t(0),
                           ctypes.c_size_t(0), Device(1, 0)))

    def found(self, r):
        return [(f["kind"], f["slot"], f["severity"]) for f in r.report["findings"]]

    def test_kernels_write_what_a_capture_allocated(self):
        """They are not seen; that the tensor was written in place is."""
        m = torch.nn.Module()
        m.other = torch.zeros(1024)
        m.scale, graph = self.born()
        w, new = self.watch(m), torch.full((1024,), 2, dtype=torch.float64)
        writes = {
            "copy_": lambda: m.scale.copy_(new),
            "fill_": lambda: m.scale.fill_(3),
            "mul_": lambda: m.scale.mul_(2),
            "_foreach_add_": lambda: torch._foreach_add_([m.scale, m.other], 1),
            "of a view": lambda: m.scale.detach()[3:].copy_(new[3:]),
        }
        for name, write in writes.items():
            for options in {"watch": w}, {}:
                with self.subTest(name), arena.reload(**options) as r:
                    write()
                self.assertEqual(self.found(r), [("born-in-capture", "scale", "warn")])
                self.assertEqual(r.report["verdict"], "pass")
        self.assertEqual(self.driver.launch(graph), 0)

        def move():
            m.scale.data = torch.zeros(1024)
            m.scale.fill_(3)

        harmless = {
            "nothing": lambda: None,
            "it is read": lambda: m.other.copy_(m.scale),
            "the tensor is elsewhere": move,
            "it is another tensor": lambda: setattr(m, "scale", new.clone()),
        }
        for name, write in harmless.items():
            with self.subTest(name), arena.reload() as r:
                write()
            self.assertEqual(r.report["findings"], [])
        self.driver.do("cuGraphExecDestroy", graph[0])

    def test_kernels_write_after_the_graph(self):
        m = torch.nn.Module()
        m.scale, graph = self.born()
        w = self.watch(m)
        self.driver.do("cuGraphExecDestroy", graph[0])
        with arena.reload(watch=w) as r:
            m.scale.fill_(3)
        self.assertEqual(r.report["findings"], [])

    def test_views_share_a_version(self):
        """That one of them was written cannot be told from another: one finding, of the whole."""
        m = torch.nn.Module()
        flat, graph = self.born()
        m.kv = [flat[i * 128:(i + 1) * 128] for i in range(8)]
        w = self.watch(m)
        for write in m.kv[0].zero_, m.kv[5].zero_, flat.zero_:
            with arena.reload(watch=w) as r:
                write()
            self.assertEqual(len(self.found(r)), 1, self.found(r))
            self.assertIn("elsewhere in its allocation", r.report["findings"][0]["text"])
        self.driver.do("cuGraphExecDestroy", graph[0])

    def test_another_tensor_takes_over_the_memory(self):
        """As replace_parameter() of vLLM does: the old object dies."""
        for written in True, False:
            for take_over in torch.Tensor.detach, lambda t: t.data, lambda t: t[512:]:
                m = torch.nn.Module()
                t, graph = self.born()
                t.zero_()
                m.w = torch.nn.Parameter(t.detach(), requires_grad=False)
                del t
                w = self.watch(m)
                with arena.reload(watch=w) as r:
                    m.w = torch.nn.Parameter(take_over(m.w.detach()), requires_grad=False)
                    gc.collect()
                    if written:
                        m.w.fill_(3).mul_(2)
                self.assertEqual([f for f in self.found(r) if f[0] == "born-in-capture"],
                                 [("born-in-capture", "w", "warn")] * written)
                self.driver.do("cuGraphExecDestroy", graph[0])
                self.unbind(w)
                del m
                with arena.reload():
                    pass

    def test_a_commit_that_is_refused(self):
        """What else is wrong is told as well, and the error has the report."""
        m = torch.nn.Module()
        m.scale, graph = self.born()
        m.other = torch.zeros(1024)
        reads = self.capture(m.other)
        w = self.watch(m)
        with self.assertRaises(arena.Refused) as refused, arena.reload(watch=w) as r:
            m.scale.fill_(3)
            m.other = torch.zeros(1024)
            raise arena.Refused(-8, "as commit() does")
        self.assertEqual(sorted(self.found(r)), [("born-in-capture", "scale", "warn"),
                                                 ("moved", "other", "error")])
        self.assertEqual(refused.exception.report, r.report)
        self.assertFalse(r.report["aborted"])
        for g in graph, reads:
            self.driver.do("cuGraphExecDestroy", g[0])
        with arena.reload():
            pass

    def test_parts_of_sparse_tensors(self):
        """They are made when they are asked for: no version of them is there to be compared."""
        m = torch.nn.Linear(4, 4)
        m.sparse = torch.eye(64).to_sparse()
        w = self.watch(m)
        self.assertIn("sparse._values()", self.names(w))
        self.assertEqual(len(w._tensors), 2)

    def in_capture(self, body):
        """Another thread captures while @body runs."""
        begun, go = threading.Event(), threading.Event()
        thread = threading.Thread(target=lambda: Driver().capture(
            [self.out], self.out, 4 * N, lambda: (begun.set(), go.wait(60))))
        thread.start()
        try:
            self.assertTrue(begun.wait(60))
            body()
        finally:
            go.set()
            thread.join()

    def test_a_capture_that_is_open_at_the_begin(self):
        """A version counts what is captured: in another thread, around the reload, or in it."""
        m = torch.nn.Module()
        m.scale, graph = self.born()
        w = self.watch(m)

        def write():
            m.scale.fill_(3)

        def reload_(body):
            with arena.reload(watch=w) as r:
                body()
            self.assertEqual(self.found(r), [])

        def capture(body):
            made = self.driver.capture([self.out], m.scale.data_ptr(), 4 * N, body)
            self.driver.do("cuGraphExecDestroy", made[0])

        self.in_capture(lambda: reload_(write))
        self.in_capture(lambda: reload_(lambda: capture(write)))
        capture(lambda: reload_(write))
        # Those that came before are over.
        with arena.reload(watch=w) as r:
            write()
        self.assertEqual(self.found(r), [("born-in-capture", "scale", "warn")])
        self.driver.do("cuGraphExecDestroy", graph[0])

    def test_a_reload_that_captures(self):
        """A version counts what is captured, too."""
        m = torch.nn.Module()
        m.scale, graph = self.born()
        w = self.watch(m)
        with arena.reload(watch=w) as r:
            other = self.driver.capture([self.out], m.scale.data_ptr(), 4 * N,
                                        lambda: m.scale.fill_(3))
        self.assertEqual(r.report["findings"], [])
        for g in graph, other:
            self.driver.do("cuGraphExecDestroy", g[0])

    def test_versions_that_are_not_counted(self):
        m = torch.nn.Module()
        with torch.inference_mode():
            m.scale = torch.zeros(1024)
        w = self.watch(m)
        with torch.inference_mode(), arena.reload(watch=w) as r:
            m.scale.fill_(3)
        self.assertEqual((r.report["verdict"], r.report["findings"]), ("pass", []))

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
