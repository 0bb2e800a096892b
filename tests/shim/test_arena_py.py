#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/arena.py on the simulated driver, and without the library.

    test_arena_py.py SCRIPTS present | absent | off [unittest options]
"""
import array
import ctypes
import gc
import json
import os
import sys
import tempfile
import threading
import unittest
import warnings

sys.path.insert(0, sys.argv[1])
MODE = sys.argv[2]

with warnings.catch_warnings():
    warnings.simplefilter("error")
    import arena  # noqa: E402


class Driver:
    """The few calls that the tests make themselves."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.do("cuInit", 0)
        self.do("cuDeviceGet", ctypes.byref(device), 0)
        self.do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.do("cuCtxSetCurrent", context)
        self.context = context

    def do(self, name, *arguments):
        result = getattr(self.lib, name)(*arguments)
        if result:
            raise RuntimeError(f"{name}: {result}")

    def alloc(self, count):
        p = ctypes.c_uint64()
        self.do("cuMemAlloc_v2", ctypes.byref(p), ctypes.c_size_t(count))
        return p.value

    def read(self, pointer, count):
        self.do("cuCtxSynchronize")
        values = (ctypes.c_int * count)()
        self.do("cuMemcpyDtoH_v2", values, ctypes.c_uint64(pointer), ctypes.c_size_t(4 * count))
        return list(values)

    def fill(self, pointer, value, count):
        self.do("cuMemsetD32_v2", ctypes.c_uint64(pointer), value, ctypes.c_size_t(count))


class OnDevice:
    """An array of somebody else, as CuPy's."""

    def __init__(self, pointer, shape, strides=None):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<i4", "version": 3,
                                         "data": (pointer, False), "strides": strides,
                                         "stream": None}


def ints(*values):
    class Host:
        data = array.array("i", values)
        __array_interface__ = {"shape": (len(values),), "typestr": "<i4", "version": 3,
                               "data": (data.buffer_info()[0], False)}
    return Host()


@unittest.skipIf(MODE != "present", "the library is absent")
class Present(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver = Driver()
        arena.require()

    def path(self):
        return "tests." + self.id().rpartition(".")[2]

    def test_status(self):
        self.assertEqual(arena.abi(), 1)
        self.assertTrue(arena.available())
        before = arena.status()["arenas"]
        arena.Layer(self.path())
        self.assertEqual(arena.status()["arenas"], before + 1)
        self.assertIsInstance(arena.status()["verdict"], arena.Verdict)

    def test_put_is_published_by_commit(self):
        a = arena.Layer(self.path())
        w = a.put("w", ints(1, 2, 3))
        self.assertEqual(self.driver.read(w.pointer, 3), [1, 2, 3])
        with arena.reload() as r:
            again = a.put("w", ints(4, 5, 6))
            self.assertEqual(again.pointer, w.pointer)
            self.assertEqual(self.driver.read(w.pointer, 3), [1, 2, 3])
            a.commit()
            self.assertEqual(self.driver.read(w.pointer, 3), [4, 5, 6])
        self.assertEqual(r.report["verdict"], "pass")
        self.assertEqual(r.report["id"], r.id.value)

    def test_put_from_device(self):
        p = self.driver.alloc(64)
        self.driver.fill(p, 9, 16)
        with arena.layer(self.path()) as a:
            w = a.put("w", OnDevice(p, (4, 4)))
        self.assertEqual(self.driver.read(w.pointer, 16), [9] * 16)
        self.assertEqual(w.shape, (4, 4))

    def test_put_bytes(self):
        w = arena.Layer(self.path()).put("w", b"\1\0\0\0")
        self.assertEqual((w.dtype, w.nbytes, self.driver.read(w.pointer, 1)), ("|u1", 4, [1]))

    def test_interface(self):
        slot = arena.Layer(self.path()).get_or_alloc("s", (2, 3), "float32", init=arena.Init.ZERO)
        interface = slot.__cuda_array_interface__
        self.assertEqual(interface, {"shape": (2, 3), "typestr": "<f4", "version": 3,
                                     "data": (slot.pointer, False), "strides": None, "stream": 1})
        self.assertEqual(slot.raw.__cuda_array_interface__["shape"], (24,))

    def test_types_without_interface(self):
        slot = arena.Layer(self.path()).get_or_alloc("s", 8, "torch.bfloat16")
        self.assertEqual((slot.dtype, slot.nbytes), ("bfloat16", 16))
        self.assertFalse(hasattr(slot, "__cuda_array_interface__"))
        self.assertEqual(slot.raw.__cuda_array_interface__["typestr"], "|u1")
        small = arena.Layer(self.path()).get_or_alloc("t", 8, "float4_e2m1fn_x2")
        self.assertEqual(small.dtype, "float4_e2m1fnx2")

    def test_misfit_changes_nothing(self):
        a = arena.Layer(self.path())
        first = a.get_or_alloc("s", 4, "int32")
        with self.assertRaisesRegex(arena.Error, "bytes=16.*bytes=32") as caught:
            a.get_or_alloc("s", 8, "int32")
        self.assertEqual(caught.exception.code, -5)
        self.assertEqual(a.get_or_alloc("s", 4, "int32").pointer, first.pointer)

    def test_strided_memory_is_bound_with_its_extent(self):
        p = self.driver.alloc(4096)
        column = OnDevice(p, (8,), (64,))
        a = arena.Layer(self.path())
        self.assertIs(a.bind("column", column), column)
        a.bind("ws", OnDevice(p, (8,)), scratch=True)
        a.unbind("column")

    def test_scopes(self):
        self.assertIsNone(arena.current())
        seen = []
        with arena.layer(self.path()) as outer:
            with arena.layer(self.path() + ".inner"):
                self.assertEqual(arena.current().path, self.path() + ".inner")
            thread = threading.Thread(target=lambda: seen.append(arena.current()))
            thread.start()
            thread.join()
            self.assertEqual(arena.current().path, outer.path)
        self.assertEqual(seen, [None])
        self.assertIsNone(arena.current())

    def test_tag(self):
        passes = []
        with arena.layer(self.path()):
            for _ in range(2):
                with arena.tag("ws"):
                    passes.append([self.driver.alloc(4096), self.driver.alloc(512)])
        self.assertEqual(passes[0], passes[1])

    def test_object(self):
        class Wrapper:
            pass
        a = arena.Layer(self.path())
        made = a.object("o", Wrapper)
        kept = id(made)
        del made
        gc.collect()
        self.assertEqual(id(a.object("o", Wrapper)), kept)
        with self.assertRaises(ZeroDivisionError):
            a.object("p", lambda: 1 / 0)
        with self.assertRaises(arena.Error):
            a.object("o", Wrapper, "another type")

    def test_body_fails(self):
        a = arena.Layer(self.path())
        a.put("w", ints(1))
        with self.assertRaisesRegex(KeyError, "mine") as caught:
            with arena.reload() as r:
                a.put("w", ints(2))
                raise KeyError("mine")
        self.assertTrue(r.report["aborted"] and "mine" in r.report["why"])
        self.assertTrue(arena.status()["unsafe"])
        if sys.version_info >= (3, 11):
            self.assertIn("unsafe", caught.exception.__notes__[0])
        self.assertEqual(self.driver.read(a.put("w", ints(3)).pointer, 1), [3])
        with arena.reload():
            a.put("w", ints(4))
            a.commit()
        self.assertFalse(arena.status()["unsafe"])

    def test_reloads_do_not_nest(self):
        with arena.reload():
            with self.assertRaisesRegex(arena.Error, "is open"):
                with arena.reload():
                    pass

    def test_scope(self):
        inside, outside = arena.Layer(self.path() + ".in"), arena.Layer(self.path() + ".out")
        with arena.reload(layers=[inside.path], role="draft") as r:
            with self.assertRaisesRegex(arena.Error, "scope"):
                outside.commit()
            inside.put("w", ints(1))
            inside.commit()
        self.assertEqual(r.report["scope"]["layers"], [inside.path])
        self.assertEqual(r.report["scope"]["role"], "draft")
        with self.assertRaisesRegex(arena.Error, "layers is empty"):
            arena.reload(layers=[])

    def test_caches(self):
        flushed = []
        arena.cache("prefix", flushed.append)
        arena.cache("encoder")
        with arena.reload() as r:
            arena.cache_flushed("encoder")
        self.assertEqual(flushed, [r.report["generation"]])
        arena.cache("encoder", lambda generation: None)

        def fail(generation):
            raise OSError("unreachable")
        arena.cache("prefix", fail)
        with self.assertWarnsRegex(RuntimeWarning, "unreachable"), arena.reload() as r:
            pass
        self.assertEqual([f["cache"] for f in r.report["findings"]], ["prefix"])

        def leave(generation):
            raise SystemExit(3)
        arena.cache("prefix", leave)
        with self.assertWarnsRegex(RuntimeWarning, "SystemExit"), arena.reload() as r:
            pass
        self.assertEqual([f["cache"] for f in r.report["findings"]], ["prefix"])
        arena.cache("prefix", flushed.append)

    def test_a_refused_commit_breaks_nothing_off(self):
        a = arena.Layer(self.path())
        a.put("w", ints(1))
        with self.assertRaises(arena.Refused):
            with arena.reload() as r, arena.layer(a.path):
                r.receive("twice", bytes=4)
                r.receive("twice", bytes=4)
                a.put("w", ints(2))
                a.commit()
        self.assertFalse(r.report["aborted"])
        self.assertEqual(r.report["verdict"], "fail")
        self.assertFalse(arena.status()["unsafe"])

    def test_verify(self):
        a = arena.Layer(self.path())
        a.get_or_alloc("s", 4, "int32")
        found = arena.Snapshot().verify()
        self.assertEqual((found["verdict"], found["findings"]), ("pass", []))

    def test_manifest(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.json")
            with open(path, "w") as f:
                json.dump({"schema": 1, "sources": [{"key": "a", "bytes": -1}]}, f)
            with self.assertRaisesRegex(arena.Error, r"m\.json: sources\[0\]\.bytes"):
                arena.manifest(path)


@unittest.skipIf(MODE == "present", "the library is there")
class Absent(unittest.TestCase):
    def run_all(self):
        source, held = ints(1), object()
        with arena.reload(layers=["x"], role="draft") as r:
            with arena.layer("x") as a, arena.tag("t"):
                r.receive("k", bytes=4)
                self.assertIs(a.put("w", source), source)
                self.assertIsNone(a.get_or_alloc("s", 4, "int32"))
                self.assertIs(a.bind("b", source), source)
                self.assertIs(a.object("o", lambda: held), held)
                a.unbind("b")
                a.commit()
        arena.cache("c", print)
        arena.cache_flushed("c")
        arena.manifest("/nowhere")
        self.assertIsNone(arena.Snapshot().verify())
        self.assertIsNone(arena.status())
        self.assertIsNone(arena.current())
        self.assertIsNone(r.report)
        self.assertFalse(arena.available())

    def test_one_warning(self):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.run_all()
        self.assertEqual(len(said), 1, [str(w.message) for w in said])
        self.assertIn("libarena_shim.so is not loaded", str(said[0].message))

    def test_the_bodys_error_comes_through(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with self.assertRaises(KeyError), arena.reload():
                raise KeyError("mine")

    def test_required(self):
        with self.assertRaisesRegex(arena.Error, "LD_PRELOAD"):
            arena.require()
        with self.assertRaisesRegex(arena.Error, "LD_PRELOAD"):
            with arena.reload(required=True):
                self.fail("the body ran")
        arena._required = False


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
