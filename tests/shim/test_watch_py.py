#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""watch(), receipts and the judgement of ranks of scripts/arena.py, without PyTorch: modules are
objects that have what nn.Module has, tensors are arrays on the simulated driver.

    test_watch_py.py SCRIPTS present | absent | off [unittest options]
"""
import contextlib
import ctypes
import enum
import functools
import gc
import json
import os
import sys
import threading
import types
import unittest
import warnings
import weakref

sys.path.insert(0, sys.argv[1])
MODE = sys.argv[2]

import arena  # noqa: E402
from sim_driver import Driver, OnDevice  # noqa: E402

STRICT = os.environ.get("ARENA_GATE") == "strict"
N = 16                              # elements of most arrays


class Module:
    """What watch() knows of nn.Module."""

    def __init__(self, **parameters):
        self._parameters, self._buffers, self._modules = dict(parameters), {}, {}


class Slots:
    __slots__ = ("a", "unset", "__weakref__")


class Hostile:
    """Any code of it that runs is a fault."""
    ran = []

    def _tell(self, *args):
        Hostile.ran.append(sys._getframe(1).f_code.co_name)
        raise SystemExit("code of the model ran")

    def __getattr__(self, name):
        self._tell()

    __iter__ = __len__ = __repr__ = __eq__ = __hash__ = __bool__ = __dir__ = __call__ = _tell
    scale = property(_tell)
    __class__ = property(_tell)


class HostileDict(dict):
    items = __iter__ = __len__ = keys = values = __getitem__ = Hostile._tell


class HostileList(list):
    __iter__ = __len__ = __getitem__ = Hostile._tell


class Color(enum.Enum):
    RED = 1


class Case(unittest.TestCase):
    def setUp(self):
        self.path = "t." + self.id().rpartition(".")[2]

    def watch(self, model, **options):
        return arena.watch(model, self.path, **options)

    def names(self, w):
        return {f"{layer[len(self.path):]}/{slot}" for layer, slot in w.bound}


@unittest.skipIf(MODE != "present", "the library is absent")
class Present(Case):
    @classmethod
    def setUpClass(cls):
        cls.driver = Driver()
        arena.require()
        cls.out = cls.driver.alloc(4 * N)

    def array(self, shape=(N,), strides=None):
        return OnDevice(self.driver.alloc(4096), shape, strides)

    def pointer(self, array):
        return array.__cuda_array_interface__["data"][0]

    def capture(self, *arrays):
        return self.driver.capture([self.pointer(a) for a in arrays], self.out, 4 * N)

    def test_names(self):
        m, attention = Module(weight=self.array()), Module(bias=None)
        m._modules["layers"] = layers = Module()
        layers._modules["0"] = attention
        attention._buffers["cos"] = self.array()
        attention.W_UV = self.array()
        cell, default = self.array(), self.array()

        def kernel(x, y=default, *, z=default):
            return cell, x, y, z
        kernel.state = self.array()
        attention.kernel = kernel
        attention.fn = functools.partial(print, self.array(), end=self.array())
        attention.slots = Slots()
        attention.slots.a = self.array()
        attention.method = weakref.WeakMethod       # a class: not entered
        attention.many = {"k": [self.array(), (self.array(),)], 3: {self.array()},
                          Color.RED: self.array(), (1, "a"): self.array()}
        bound_to = Slots()
        bound_to.a = self.array()
        attention.bound = types.MethodType(Driver.do, bound_to)
        attention.lam = lambda x=self.array(): x
        self.assertEqual(self.names(self.watch(m)), {
            "/weight", ".layers.0/cos", ".layers.0/W_UV", ".layers.0/kernel.__closure__[0]",
            ".layers.0/kernel.__defaults__[0]", ".layers.0/kernel.state", ".layers.0/fn.args[0]",
            ".layers.0/fn.keywords['end']", ".layers.0/slots.a", ".layers.0/many['k'][0]",
            ".layers.0/many['k'][1][0]", ".layers.0/many[3]{0}", ".layers.0/many[<Color #2>]",
            ".layers.0/many[(1, 'a')]", ".layers.0/bound.__self__.a",
            ".layers.0/lam.__defaults__[0]"})

    def test_no_code_of_the_model_runs(self):
        m = Module(w=self.array())
        hostile = Hostile()
        object.__setattr__(hostile, "inner", self.array())
        m.hostile, m.mapping, m.sequence = hostile, HostileDict(), HostileList()
        dict.__setitem__(m.mapping, "k", self.array())
        list.append(m.sequence, self.array())
        w = self.watch(m)
        self.assertEqual(Hostile.ran, [])
        self.assertEqual(self.names(w), {"/w", "/hostile.inner", "/mapping['k']", "/sequence[0]"})

    def test_a_model_that_is_not_to_be_asked_anything(self):
        """As a compiled module, whose len() raises; and a class that cannot be hashed."""
        class Meta(type):
            __eq__ = Hostile._tell
            __hash__ = None

        class Model(Hostile, metaclass=Meta):
            pass

        for kind in (Hostile, Model):
            model = object.__new__(kind)
            object.__setattr__(model, "w", self.array())
            object.__setattr__(model, "part", object.__new__(Model))
            watch = arena.watch(model, self.path + kind.__name__)
            self.assertEqual([b.slot for b in watch.bound.values()], ["w"])
            with arena.reload(watch=watch):
                pass
            self.assertEqual(watch.rebind(model), [])
            with self.assertRaisesRegex(arena.Error, "another model is watched"):
                arena.watch(object.__new__(Model), watch.path)
            with self.assertRaisesRegex(arena.Error, "^watch is .*: pass what arena.watch"):
                arena.reload(watch=[1])
        self.assertEqual(Hostile.ran, [])

    def test_devices_as_one_str(self):
        m = Module(w=self.array())
        self.assertEqual(len(self.watch(m, devices="cuda").bound), 1)

    def test_tied(self):
        tied = self.array()
        m, head = Module(weight=tied), Module(weight=tied)
        m._modules["head"] = head
        head.config = Slots()
        head.config.a = tied
        w = self.watch(m)
        self.assertEqual(self.names(w), {"/weight"})
        self.assertEqual(w.bound[self.path, "weight"].aliases,
                         (self.path + ".head.weight", self.path + ".head.config.a"))
        # An orphan copy beside a value that stayed is no finding (case A01), and is told.
        graph = self.capture(tied)
        head.config.a = self.array()
        self.assertEqual(self.watch(m).findings, [])
        self.assertEqual(w.split, [self.path + ".head.config.a"])
        self.assertEqual(self.driver.launch(graph), 0)

    def test_views(self):
        base = self.array((8, 8))
        m = Module(w=base)
        m.view = OnDevice(self.pointer(base) + 4, (4, 4), (32, 8))
        b = self.watch(m).bound[self.path, "view"]
        self.assertEqual((b.pointer, b.shape, b.strides, b.bytes),
                         (self.pointer(base) + 4, (4, 4), (8, 2), 4 * (3 * 8 + 3 * 2 + 1)))

    def test_cycles_and_limits(self):
        m = Module(w=self.array())
        m.self, m.list = m, []
        m.list.append(m.list)
        m.deep = deep = {}
        for _ in range(40):
            deep["d"] = deep = {}
        deep["w"] = self.array()
        w = self.watch(m, max_depth=30)
        self.assertEqual(self.names(w), {"/w"})
        self.assertTrue(w.complete)
        self.assertIn("more than 30 levels deep", [s.reason for s in w.skipped][0])

    def test_too_many(self):
        m = Module(w=self.array())
        last = [self.array()]
        m.last = [[[last]]]                         # below what the crowd is at
        w = self.watch(m, max_objects=50)
        self.assertTrue(w.complete and (self.path, "last[0][0][0][0]") in w.bound)
        graph = self.capture(last[0])
        m.__dict__ = dict({"crowd": [[] for _ in range(100)]}, **m.__dict__)
        again = self.watch(m)
        self.assertIs(again, w)
        self.assertFalse(w.complete)
        self.assertIn("50 objects", w.skipped[-1].reason)
        # What was not reached is not taken for gone.
        self.assertIn((self.path, "last[0][0][0][0]"), w.bound)
        self.assertEqual((w.findings, self.driver.launch(graph)), ([], 0))

    def test_too_long(self):
        m = Module()
        m.crowd = [[] for _ in range(1000)]
        w = self.watch(m, max_seconds=0)
        self.assertFalse(w.complete)
        self.assertIn("seconds are over", w.skipped[-1].reason)

    def test_a_known_path_looks_as_it_is_told(self):
        """Devices and limits that are given hold from then on; the others stay."""
        m = Module(w=self.array())
        w = self.watch(m, devices="cpu")
        self.assertEqual(len(w.bound), 0)
        m.crowd = [[] for _ in range(100)]
        self.assertIs(self.watch(m, devices=("cuda:0",), max_objects=50), w)
        self.assertFalse(w.complete)
        self.assertEqual(len(w.bound), 1)
        self.assertFalse(self.watch(m).complete)
        self.assertTrue(self.watch(m, max_objects=5000).complete)
        self.assertRegex(w.gap, "^$")
        self.watch(m, devices="cpu")
        self.assertRegex(w.gap, "bound nothing on cpu")
        with self.assertRaisesRegex(arena.Error, "is not known"):
            self.watch(m, devices="gpu")
        self.assertRegex(w.gap, "bound nothing on cpu")

    def test_the_library_knows_what_the_watch_did_not_see(self):
        m = Module(w=self.array())
        w = self.watch(m, max_objects=50)
        m.crowd = [[] for _ in range(100)]
        with self.assertRaises(arena.Refused) as raised:
            with arena.reload(watch=w):
                pass
        self.assertRegex(raised.exception.report["why"], "watch of .* incomplete")
        self.assertEqual(arena.status()["verdict"], arena.Verdict.UNPROVEN)
        m.crowd = []
        w.rebind()
        with arena.reload(watch=w):
            pass
        self.assertEqual(arena.status()["verdict"], arena.Verdict.PASS)
        with self.assertRaisesRegex(arena.Error, "no reload is open"):
            arena._call("arena_reload_doubt", b"late")

    def born(self):
        """A model that made its cache in the capture of its graph. @return it, and the block."""
        tell = ctypes.CDLL(None)["_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"]
        segment = self.driver.alloc(1 << 21)
        self.driver.alloc(4096)

        def allocate():
            tell(ctypes.c_void_p(segment), ctypes.c_int64(4096), ctypes.c_size_t(0),
                 ctypes.c_size_t(0), ctypes.c_uint16(1))
        m = Module()
        m.graph = self.driver.capture([self.out], segment, 4 * N, before=allocate)
        m.cache = OnDevice(segment, (N,))
        return m, segment

    def test_a_cache_that_is_born_in_a_capture(self):
        m, p = self.born()
        w = self.watch(m)
        with arena.reload(watch=w):             # an output, as far as anybody can tell
            pass
        values = (ctypes.c_int * N)()
        with arena.reload(watch=w) if not STRICT else self.assertRaisesRegex(
                arena.Refused, "born-in-capture. cache .* graph exec"):
            with arena.reload(watch=w) if STRICT else contextlib.nullcontext():
                self.driver.do("cuMemcpyHtoD_v2", ctypes.c_uint64(p), values, 4 * N)
        found = [f["kind"] for f in (arena._last_report or {})["findings"]]
        self.assertEqual(found, ["born-in-capture"])
        self.driver.do("cuGraphExecDestroy", m.graph[0])
        with arena.reload(watch=w):
            self.driver.do("cuMemcpyHtoD_v2", ctypes.c_uint64(p), values, 4 * N)

    def test_a_walk_that_was_cut_proves_nothing(self):
        """A tensor that the look before, or after, did not reach may have moved."""
        m = Module(w=self.array())
        w = self.watch(m, max_objects=50)
        for crowd in ([[i] for i in range(100)], []):           # cut at the end; at the begin
            m.crowd = crowd
            with self.assertRaisesRegex(arena.Refused, "unproven: watch of .* incomplete: limit of "
                                        "max_objects=50 hit") as raised:
                with arena.reload(watch=w):
                    pass
            self.assertEqual(raised.exception.report["verdict"], "unproven")
            with self.assertRaisesRegex(arena.GateError, "unproven: watch of .* incomplete"):
                arena.gate()
        arena._required = False
        self.addCleanup(arena.require)
        m.crowd = [[i] for i in range(100)]
        # Whether it is refused is the gate's to say, then.
        with self.assertRaisesRegex(arena.Refused, "unproven: .* incomplete") if STRICT else \
                self.assertWarnsRegex(RuntimeWarning, "reload .* is unproven: .* incomplete"):
            with arena.reload(watch=w):
                pass
        self.assertRaises(arena.GateError, arena.gate)
        m.crowd = []
        w.rebind()
        with arena.reload(watch=w):
            pass
        self.assertTrue(arena.gate())

    def test_a_plain_reload_while_an_incomplete_watch_lives(self):
        m, other = Module(w=self.array()), Module(w=self.array())
        w = self.watch(m, max_objects=50)
        complete = arena.watch(other, self.path + ".other")
        m.crowd = [[i] for i in range(100)]
        w.rebind()
        with self.assertRaisesRegex(arena.Refused, "unproven: watch of .* incomplete"):
            with arena.reload():
                pass
        self.assertEqual(arena.status()["verdict"], arena.Verdict.UNPROVEN)
        self.assertRaises(arena.GateError, arena.gate)
        with arena.reload(watch=complete):      # that is all that the caller asks about
            pass
        del m                                   # there is nothing any more that it did not see
        gc.collect()
        with arena.reload():
            pass
        self.assertEqual(arena.status()["verdict"], arena.Verdict.PASS)

    def test_a_watch_of_nothing(self):
        m = Module()
        with self.assertWarnsRegex(RuntimeWarning, "bound nothing on cuda: watch a model when"):
            w = self.watch(m)
        with self.assertRaisesRegex(arena.Refused, "unproven: watch of .* bound nothing"):
            with arena.reload(watch=w):
                pass
        self.assertRaises(arena.GateError, arena.gate)

    def test_devices(self):
        m = Module(w=self.array())
        self.assertEqual(len(self.watch(m, devices=("cuda:0",)).bound), 1)
        for wrong in ("gpu", "cuda:x", 5):
            with self.assertRaisesRegex(arena.Error, "is not known: pass 'cuda', 'cuda:N'"):
                arena.watch(m, self.path + "2", devices=(wrong,))

    def test_pieces_that_are_no_memory(self):
        """One of them is no reason to lose the others."""
        m = Module(w=self.array())
        p = self.pointer(m._parameters["w"])
        for i, wrong in enumerate(({"strides": (-4,)}, {"data": (0, False)}, {"data": (1.5, False)},
                                   {"data": ("x", False)}, {"data": (-1, False)}, {"shape": (0,)},
                                   {"data": (1 << 65, False)}, {"shape": (1 << 62, 4)},
                                   {"shape": (1 << 70,)}, {"shape": (-5,)}, {"typestr": 5})):
            a = OnDevice(p, (4,))
            a.__cuda_array_interface__.update(wrong)
            setattr(m, f"wrong{i}", a)
        w = self.watch(m)
        self.assertEqual(self.names(w), {"/w"})
        self.assertEqual({s.path for s in w.skipped}, {f"{self.path}.wrong{i}" for i in range(11)})

    def test_expanded(self):
        """All strides 0 is how a spec says that there are none."""
        m = Module(w=self.array())
        for i, (shape, strides, size) in enumerate((((4,), (0,), 4), ((2, 2), (0, 0), 4),
                                                    ((3, 5), (4, 0), 12), ((5, 3), (0, 4), 12))):
            setattr(m, f"e{i}", self.array(shape, strides))
            with arena.layer(self.path) as layer:
                layer.bind(f"own{i}", getattr(m, f"e{i}"))
        w = self.watch(m)
        self.assertEqual((len(w.bound), w.skipped), (5, []))
        self.assertEqual([w.bound[self.path, f"e{i}"].bytes for i in range(4)], [4, 4, 12, 12])
        graph = self.capture(m.e0)
        m.e0 = self.array((4,), (0,))
        self.assertEqual([(f["kind"], f["slot"]) for f in self.watch(m).findings],
                         [("moved", "e0")])
        del graph

    def test_names_that_are_no_plain_str(self):
        class Name(str):
            __str__ = __repr__ = __format__ = __eq__ = Hostile._tell
            __hash__ = str.__hash__
        m = Module()
        m.__dict__[Name("a")] = self.array()
        m.box = {Name("k"): self.array(), 10**5000: self.array(), (10**5000,): self.array()}
        m.part = Module()
        m.part.__dict__[Name("n")] = self.array()
        m.__dict__["x\0b"], m.__dict__["x\0c"] = self.array(), self.array()
        w = self.watch(m)
        self.assertEqual(Hostile.ran, [])
        self.assertEqual(self.names(w), {"/a", "/box[<Name #0>]", "/box[<int #1>]", ".part/n",
                                         "/box[<tuple #2>]", "/x\\x00b", "/x\\x00c"})
        with arena.reload(watch=w) as r:
            pass
        self.assertEqual(r.report["findings"], [])

    def test_too_long_inside_of_one_container(self):
        m = Module(w=self.array())
        m.crowd = [[]] * 3000
        w = self.watch(m, max_seconds=0)
        self.assertFalse(w.complete)
        self.assertIn("0 seconds are over", w.skipped[-1].reason)

    def test_containers_as_a_model(self):
        one, two = Module(w=self.array()), Module(w=self.array())
        for name, make in (("list", lambda: [one, two]), ("tuple", lambda: (one, two)),
                           ("dict", lambda: {"one": one, "two": two})):
            w = arena.watch(make(), self.path + name)
            self.assertIs(arena.watch(make(), self.path + name), w)
            self.assertEqual(len(w.bound), 2)
            with self.assertRaisesRegex(arena.Error, "another model is watched"):
                arena.watch([one], self.path + name)

    def test_attributes_of_classes(self):
        class Rope:
            cos = self.array()
        m = Module(w=self.array())
        m.rope, m.again = Rope(), Rope()
        told = [s for s in self.watch(m).skipped if s.path.endswith("Rope.cos")]
        self.assertEqual(len(told), 1)
        self.assertIn("an attribute of a class", told[0].reason)

    def test_allocator_without_pytorch(self):
        if "torch" not in sys.modules:
            with self.assertRaisesRegex(arena.Error, "import torch first"):
                arena.torch_allocator()

    def test_moved(self):
        m, attention = Module(), Module(weight=self.array())
        m._modules["attn"] = attention
        attention.W_UV = self.array()
        old = self.pointer(attention.W_UV)
        self.watch(m)
        graph = self.capture(attention.W_UV, attention._parameters["weight"])
        self.assertEqual(self.watch(m).findings, [])
        self.assertEqual(self.driver.launch(graph), 0)
        kept, attention.W_UV = attention.W_UV, self.array()
        for _ in range(2):                          # nothing is sticky, nothing is forgotten
            found = self.watch(m).findings
            self.assertEqual([(f["layer"], f["slot"], f["kind"], f["severity"]) for f in found],
                             [(self.path + ".attn", "W_UV", "moved", "error")])
            self.assertEqual((found[0]["old"]["base"], found[0]["new"]["base"]),
                             (hex(old), hex(self.pointer(attention.W_UV))))
        self.assertEqual(self.driver.launch(graph), 401 if STRICT else 0)
        attention.W_UV = kept
        self.assertEqual(self.watch(m).findings, [])
        self.assertEqual(self.driver.launch(graph), 0)

    def test_captured_before_it_was_watched(self):
        m = Module()
        m.w = self.array()
        graph = self.capture(m.w)
        self.watch(m)
        m.w = self.array()
        self.assertEqual([(f["kind"], f["severity"], f["execs"]) for f in self.watch(m).findings],
                         [("moved", "error", 1)])
        self.assertEqual(self.driver.launch(graph), 401 if STRICT else 0)

    def test_missing(self):
        m = Module()
        m.ws = self.array()
        self.watch(m)
        graph = self.capture(m.ws)
        self.driver.free(self.pointer(m.ws))
        del m.ws
        found = self.watch(m).findings
        self.assertEqual([(f["slot"], f["kind"], f["severity"]) for f in found],
                         [("ws", "missing", "error")])
        self.assertEqual(self.names(self.watch(m)), set())
        del graph

    def test_respecified(self):
        m = Module()
        m.w = self.array((4, 4))
        self.watch(m)
        m.w = OnDevice(self.pointer(m.w), (16,))
        self.assertEqual([(f["slot"], f["kind"]) for f in self.watch(m).findings],
                         [("w", "respecified")])
        self.assertEqual(self.watch(m).findings, [])        # a warning is said once

    def test_set(self):
        """What stayed in a set keeps its name, so that only what moved is found."""
        class Ordered(OnDevice):
            def __hash__(self):
                return self.place               # sets of small numbers are in their order

        def make(place):
            a = Ordered(self.driver.alloc(4096), (N,))
            a.place = place
            return a
        first, second = make(1), make(2)
        m = Module()
        m.set = {first, second}
        w = self.watch(m)
        graph = self.capture(first, second)
        self.assertEqual(w.bound[self.path, "set{1}"].pointer, self.pointer(second))
        m.set = {make(3), second}
        self.assertEqual([(f["slot"], f["kind"]) for f in self.watch(m).findings],
                         [("set{0}", "moved")])
        self.assertEqual(w.bound[self.path, "set{1}"].pointer, self.pointer(second))
        del graph

    def test_in_a_reload(self):
        m = Module()
        m.w = self.array()
        w = self.watch(m)
        graph = self.capture(m.w)
        with arena.reload(watch=w) as r:
            pass
        self.assertEqual((r.report["verdict"], r.report["findings"]), ("pass", []))
        self.assertTrue(arena.gate())
        kept = m.w
        try:
            with arena.reload(watch=[w]) as r:
                m.w = self.array()
            self.assertFalse(STRICT)
        except arena.Refused as refused:
            self.assertTrue(STRICT)
            self.assertIs(refused.report, r.report)
        self.assertEqual(r.report["verdict"], "fail")
        self.assertEqual([f["slot"] for f in r.report["findings"]], ["w"])
        with self.assertRaisesRegex(arena.GateError, "rank 0: reload .* fail: .*moved. w"):
            arena.gate()
        m.w = kept
        with self.assertRaisesRegex(KeyError, "mine"), arena.reload(watch=w) as r:
            raise KeyError("mine")
        with self.assertRaisesRegex(arena.GateError, "was aborted: KeyError: 'mine'"):
            arena.gate()
        with arena.reload(watch=w):
            pass
        self.assertEqual(self.driver.launch(graph), 0)

    def test_gate_while_open(self):
        with arena.reload():
            with self.assertRaisesRegex(arena.GateError, "still open"):
                arena.gate()

    def test_gate_without_process_group(self):
        os.environ["WORLD_SIZE"] = "2"
        try:
            with self.assertRaisesRegex(arena.Error, "WORLD_SIZE is 2: call init_process_group"):
                arena.gate()
            os.environ["WORLD_SIZE"] = "abc"
            with self.assertRaisesRegex(arena.Error, "WORLD_SIZE is 'abc': set the number"):
                arena.gate()
        finally:
            del os.environ["WORLD_SIZE"]

    def test_two_models(self):
        m = Module(w=self.array())
        self.watch(m)
        with self.assertRaisesRegex(arena.Error, "another model is watched"):
            self.watch(Module())
        old = self.pointer(m._parameters["w"])
        graph = self.capture(m._parameters["w"])
        del m
        gc.collect()
        successor = Module(w=self.array())
        found = self.watch(successor).findings
        self.assertEqual([(f["kind"], f["old"]["base"]) for f in found], [("moved", hex(old))])
        del graph

    def test_nothing_is_kept_alive(self):
        m = Module()
        m.thing = Slots()
        m.thing.a = self.array()
        w = self.watch(m)
        seen = weakref.ref(m.thing)
        del m.thing
        self.assertIsNone(seen())
        gone = weakref.ref(m)
        del m
        gc.collect()
        self.assertIsNone(gone())
        self.assertIsNone(w.model)
        w.rebind()
        self.assertEqual(w.bound, {})

    def test_names_that_do_not_fit(self):
        m = Module()
        m.__dict__["x" * 300], m.__dict__["x" * 301] = self.array(), self.array()
        m.wide = self.array((1,) * 12)
        w = self.watch(m)
        self.assertEqual(len({slot for _, slot in w.bound}), 3)
        self.assertEqual(max(len(slot) for _, slot in w.bound), 255)

    def test_one_name_for_two(self):
        m = Module()
        m.a = Slots()
        m.a.a = self.array()
        m.__dict__["a.a"] = self.array()
        w = self.watch(m)
        before = dict(w.bound)
        self.assertEqual(self.names(w), {"/a.a", "/a.a~"})
        self.assertEqual(self.watch(m).bound, before)

    def test_a_slot_of_the_library(self):
        m = Module()
        a = arena.Layer(self.path)
        m.w = a.put("w", b"1234")
        m.s = self.array()
        a.get_or_alloc("s", 4, "int32")
        w = self.watch(m)
        self.assertEqual(self.names(w), set())
        self.assertIn("a slot that the library owns", w.skipped[-1].reason)

    def test_opaque(self):
        m = Module()
        m.cached = functools.lru_cache(lambda: 1)
        m.iterators = [iter([1]), iter([2])]
        told = [s for s in self.watch(m).skipped if s.type == "list_iterator"]
        self.assertEqual([(s.path, s.reason[-16:]) for s in told],
                         [(self.path + ".iterators[0]", "(2 such objects)")])

    def test_threads(self):
        m = Module(**{f"w{i}": self.array() for i in range(50)})
        m.box = {}
        failed = []

        def run(n):
            try:
                for i in range(20):
                    m.box[f"{n}.{i}"] = [i]
                    self.watch(m)
            except Exception as error:
                failed.append(error)
        threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failed, [])
        self.assertEqual(len(self.watch(m).bound), 50)

    def test_receipt(self):
        with arena.reload(role="draft") as r:
            pass
        said = json.loads(json.dumps(arena.receipt(3)))
        self.assertEqual((said["rank"], said["id"], said["verdict"], said["scope"]["role"]),
                         (3, r.id.value, r.report["verdict"], "draft"))

    def verdict(self, w, change=lambda: None):
        try:
            with arena.reload(watch=w) as r:
                change()
        except arena.Refused:
            self.assertTrue(STRICT)
        return r.report["verdict"]

    def test_wrong_until_repaired(self):
        p, q, out = (self.driver.alloc(4096) for _ in range(3))
        m = Module(a=OnDevice(p, (N,)), b=OnDevice(q, (N,)))
        a, b = m._parameters["a"], m._parameters["b"]
        w = self.watch(m)
        g = self.driver.capture([p], out, 4 * N)
        for name, there in (("moved", {"a": OnDevice(q + 1024, (N,))}),
                            ("swapped", {"a": b, "b": a}), ("shape", {"a": OnDevice(p, (4, 4))})):
            with self.subTest(name):
                self.assertEqual(self.verdict(w, lambda: m._parameters.update(there)), "fail")
                self.assertEqual(self.verdict(w), "fail", "once more")
                self.assertEqual(self.driver.launch(g) != 0, STRICT and name != "shape")
                back = {"a": a, "b": b}
                self.assertNotEqual(self.verdict(w, lambda: m._parameters.update(back)), "fail")
                self.assertNotEqual(self.verdict(w), "fail")
                self.assertEqual(self.driver.launch(g), 0)


def passed(rank, **changes):
    said = {"rank": rank, "host": "h", "pid": 1, "present": True, "open": False, "unsafe": False,
            "id": 7, "verdict": "pass", "why": "", "aborted": False, "generation": 2,
            "scope": {"full": True}, "findings": []}
    return {k: v for k, v in dict(said, **changes).items() if v is not ...}


class Ranks(unittest.TestCase):
    """The judgement is a pure function: it needs no library."""

    def judge(self, *receipts, world=None, **options):
        return arena.judge_ranks(receipts, len(receipts) if world is None else world, **options)

    def test_pass(self):
        result = self.judge(passed(1), passed(0))
        self.assertTrue(result)
        self.assertEqual(list(result.ranks), [0, 1])
        self.assertIn("2 of 2 ranks passed", str(result))

    def test_one_bad_rank(self):
        for why, bad in {
                "rank 1: reload 7 fail: L: .moved. w": passed(1, verdict="fail",
                                                              findings=["L: [moved] w"]),
                "rank 1: reload 7 unproven: no manifest": passed(1, verdict="unproven",
                                                                 why="no manifest"),
                "rank 1: reload 7 was aborted: KeyError": passed(1, verdict="fail", aborted=True,
                                                                 why="KeyError"),
                "rank 1: the process is unsafe": passed(1, unsafe=True),
                "rank 1: its reload is still open": passed(1, open=True),
                "rank 1: it made no reload": passed(1, id=...),
                "rank 1: libarena_shim.so is not loaded": {"rank": 1, "present": False},
                "rank 1: sent no receipt but dict": {"rank": 1},
                "rank 1: its receipt has no .* but id None": passed(1, id=None),
                r"rank 1: its receipt has no .* but id \[7\]": passed(1, id=[7]),
                "rank 1: its receipt has no .* but id True": passed(1, id=True),
                "rank 1: its receipt has no .* but id '7'": passed(1, id="7"),
                "rank 1: reload 7 fail: 5": passed(1, verdict="fail", why=5, findings=5),
                "rank 1: passed another reload: scope": passed(1, scope={"layers": {"x"}}),
                "rank 1: passed another reload: id 8, rank 0 has 7": passed(1, id=8),
                "rank 1: passed another reload: scope .*draft": passed(1, scope={"role": "draft"}),
        }.items():
            with self.subTest(why):
                result = self.judge(passed(0), bad, passed(2))
                self.assertFalse(result)
                self.assertRegex(str(result), "1 of 3 ranks do not pass: " + why)
                self.assertEqual([n for n, v in result.ranks.items() if v.reasons], [1])

    def test_who_is_expected(self):
        self.assertRegex(str(self.judge(passed(0), world=2)), "rank 1: sent no receipt")
        self.assertRegex(str(self.judge(passed(0), None, world=2)), "rank 1: sent no receipt")
        self.assertRegex(str(self.judge(passed(0), passed(0), world=1)), "sent 2 receipts")
        self.assertRegex(str(self.judge(passed(0), passed(5), world=1)), "rank 5: is not one of")
        self.assertRegex(str(self.judge(passed(0), "junk", world=1)), "rank -1: is not one of")
        self.assertTrue(self.judge(passed(4), passed(6), world=[4, 6]))
        self.assertFalse(self.judge(world=0))

    def test_absent(self):
        nobody = {"rank": 0, "present": False}
        self.assertFalse(self.judge(nobody, passed(1)))
        self.assertTrue(self.judge(nobody, passed(1), required=False))
        alone = self.judge(nobody, required=False)
        self.assertFalse(alone)
        self.assertEqual(alone.absent, (0,))
        self.assertIn("nothing was proven", str(alone))


@unittest.skipIf(MODE == "present", "the library is there")
class Absent(Case):
    def test_one_warning(self):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            m = Module(w=OnDevice(4096, (4,)))
            w = self.watch(m)
            self.assertEqual((w.bound, w.rebind()), ({}, []))
            with arena.reload(watch=w):
                pass
            self.assertFalse(arena.gate(required=False))
        self.assertEqual(len(said), 1, [str(s.message) for s in said])

    def test_a_gate_does_not_pass_because_it_is_not_there(self):
        with self.assertRaisesRegex(arena.GateError, "rank 0: libarena_shim.so is not loaded"):
            arena.gate()
        self.assertEqual(arena.receipt(2)["present"], False)

    def test_required(self):
        with self.assertRaisesRegex(arena.Error, "LD_PRELOAD"):
            self.watch(Module(), required=True)
        arena._required = False


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
