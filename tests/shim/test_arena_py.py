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
import types
import unittest
import warnings

sys.path.insert(0, sys.argv[1])
MODE = sys.argv[2]

with warnings.catch_warnings():
    warnings.simplefilter("error")
    import arena  # noqa: E402
from sim_driver import Driver, OnDevice  # noqa: E402


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

    def test_zero_at_commit(self):
        with arena.reload(), arena.layer(self.path()) as a:
            locks, plain = (a.get_or_alloc(n, 8, "int32", zero=n == "locks")
                            for n in ("locks", "plain"))
            for slot in (locks, plain):
                self.driver.fill(slot.pointer, 7, 8)
            a.commit()
        self.assertEqual(self.driver.read(locks.pointer, 8), [0] * 8)
        self.assertEqual(self.driver.read(plain.pointer, 8), [7] * 8)

    def test_types_without_interface(self):
        slot = arena.Layer(self.path()).get_or_alloc("s", 8, "torch.bfloat16")
        self.assertEqual((slot.dtype, slot.nbytes), ("bfloat16", 16))
        self.assertFalse(hasattr(slot, "__cuda_array_interface__"))
        self.assertEqual(slot.raw.__cuda_array_interface__["typestr"], "|u1")
        small = arena.Layer(self.path()).get_or_alloc("t", 8, "float4_e2m1fn_x2")
        self.assertEqual(small.dtype, "float4_e2m1fnx2")

    def test_names_that_c_would_cut_and_types_that_nobody_knows(self):
        a = arena.Layer(self.path())
        for call in (lambda: a.get_or_alloc("s\0t", 4, "int32"),
                     lambda: a.get_or_alloc("s", 4, "int32", layout="x\0"),
                     lambda: arena.layer("a\0b").__enter__(), lambda: arena.receive("k\0"),
                     lambda: arena.reload(layers=["a\0"]).__enter__()):
            with self.assertRaisesRegex(arena.Error, "has a NUL character"):
                call()
        for name in ("nonsense", "f4", "float32s"):
            with self.assertRaisesRegex(arena.Error, f"'{name}' is not known: .* bool, .*bfloat16"):
                a.get_or_alloc("s", 4, name)
        self.assertEqual(a.get_or_alloc("s", 4, "float8_e5m2").nbytes, 4)

    def test_names_that_are_none(self):
        a = arena.Layer(self.path())
        for name in (5, None, b"x", "\ud800"):
            for call in (lambda: arena.Layer(name), lambda: a.put(name, b"1"),
                         lambda: a.get_or_alloc(name, 4, "int32"), lambda: a.unbind(name),
                         lambda: arena.tag(name).__enter__(), lambda: arena.cache(name),
                         lambda: arena.receive(name), lambda: arena.reload(layers=[name]),
                         lambda: a.get_or_create_object(name, dict)):
                with self.assertRaisesRegex(arena.Error, "pass a str|half of a surrogate") as caught:
                    call()
                self.assertEqual(caught.exception.code, -2)
        for path in (5, None, "a\0b"):
            with self.assertRaisesRegex(arena.Error, "pass a path|a NUL character"):
                arena.manifest(path)

    def test_numbers_that_c_would_cut(self):
        a = arena.Layer(self.path())
        for wrong in ((2**64 + 1,), (2**40, 2**40), (-1,), (1.5,), "ab", 1.5, None, -4):
            with self.assertRaisesRegex(arena.Error, "^(shape|the size in bytes) is .*: pass "):
                a.get_or_alloc("s", wrong, "int32")
        for device in (2**32, -1, "cuda:0"):
            with self.assertRaisesRegex(arena.Error, "^device is .*: pass "):
                a.get_or_alloc("s", 4, "int32", device=device)
        for numbers in ({"part": -1}, {"part": 2**64}, {"bytes": -5}, {"bytes": 1.5}):
            with self.assertRaisesRegex(arena.Error, "^(part|bytes) is .*: pass "):
                arena.receive("k", **numbers)
        with self.assertRaisesRegex(arena.Error, "^count is 18446744073709551616: pass "):
            a.derive("arena_sinks_f32", **{"in": "s", "out": "f", "count": 2**64})

    def test_a_report_has_no_negative_bytes(self):
        with arena.layer(self.path()) as a, arena.reload(role="draft") as r:
            a.put("w", b"1234")
            arena.receive("k", bytes=2**64 - 1)
            a.commit()
        self.assertGreater(r.report["receipts"]["bytes"], 2**63)

    def test_a_str_is_one_name(self):
        path = self.path()
        with arena.reload(layers=path) as r:
            arena.Layer(path).put("w", b"1234")
            arena.Layer(path).commit()
        self.assertEqual(r.report["scope"]["layers"], [path])
        with arena.reload(sources="k") as r:
            pass
        self.assertEqual(r.report["scope"]["sources"], ["k"])
        for wrong in ([], (), 5):
            with self.assertRaisesRegex(arena.Error, "layers is "):
                arena.reload(layers=wrong)

    def test_an_error_that_says_nothing(self):
        class Mute(Exception):
            def __str__(self):
                raise ValueError

        for error in (Mute(), KeyError("\ud800")):
            with self.assertRaises(type(error)):
                with arena.reload(role="draft"):
                    raise error
            self.assertFalse(arena.status()["reload_open"])

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

    def test_torch_allocator(self):
        """Looked up and called as torch.cuda.memory.CUDAPluggableAllocator does it."""
        kept, looked = sys.modules.get("torch"), []
        memory = types.SimpleNamespace(CUDAPluggableAllocator=lambda *a: looked.append(a) or a)
        sys.modules["torch"] = types.SimpleNamespace(cuda=types.SimpleNamespace(memory=memory))
        try:
            path, malloc, free = arena.torch_allocator()
        finally:
            sys.modules.pop("torch")
            if kept:
                sys.modules["torch"] = kept
        self.assertEqual(looked, [(path, malloc, free)])
        lib = ctypes.CDLL(path)
        malloc, free = getattr(lib, malloc), getattr(lib, free)
        malloc.restype, passes = ctypes.c_void_p, []
        malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        free.argtypes = [ctypes.c_void_p] + malloc.argtypes
        with arena.layer(self.path()):
            for _ in range(2):
                with arena.tag("ws"):
                    passes.append(malloc(2 << 20, 0, None))
                free(passes[-1], 2 << 20, 0, None)
        self.assertTrue(passes[0])
        self.assertEqual(passes[0], passes[1])

    def test_the_way_out_masks_nothing(self):
        """A layer that cannot be left, because a tag is pushed: an error, unless there is one."""
        def leave_badly(error):
            with arena.layer(self.path()):
                arena._call("arena_tag_push", b"open", 1)
                if error:
                    raise error
        with self.assertRaisesRegex(arena.Error, "tag"):
            leave_badly(None)
        arena._call("arena_tag_pop")
        arena._call("arena_leave")
        with self.assertRaisesRegex(KeyError, "mine"):
            leave_badly(KeyError("mine"))
        arena._call("arena_tag_pop")
        arena._call("arena_leave")

    def test_inferred_move(self):
        """Captured memory without a slot, and who allocated the old and the new one."""
        def derive():
            return self.driver.alloc(40960)
        old, target = derive(), self.driver.alloc(40960)
        self.driver.capture([old], target, 64)
        with arena.reload() as r:
            new = derive()
            self.driver.free(old)
        found = [f for f in r.report["findings"] if f["inferred"]]
        self.assertEqual([(f["old"]["base"], f["new"]["base"]) for f in found],
                         [(hex(old), hex(new))], r.report["findings"])
        path = os.environ["ARENA_REPORT"].replace("%p", str(os.getpid()))
        with open(path, encoding="utf-8") as report:
            lines = [json.loads(line) for line in report]
        stacks = {line["id"]: line["python"] for line in lines if line["type"] == "stack"}
        for side in ("old", "new"):
            frames = [name for _, _, name in stacks[found[0][side]["stack_open"]]]
            self.assertEqual(frames[2:4], ["derive", "test_inferred_move"])
        self.assertIn("free", [name for _, _, name in stacks[found[0]["old"]["stack_close"]]])

    def test_object(self):
        class Wrapper:
            pass
        a = arena.Layer(self.path())
        made = a.get_or_create_object("o", Wrapper)
        kept = id(made)
        del made
        gc.collect()
        self.assertEqual(id(a.get_or_create_object("o", Wrapper)), kept)
        with self.assertRaises(ZeroDivisionError):
            a.get_or_create_object("p", lambda: 1 / 0)
        with self.assertRaises(arena.Error):
            a.get_or_create_object("o", Wrapper, "another type")

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
        # What was refused is due in the next reload.
        with arena.reload() as r:
            a.put("w", ints(3))
            a.commit()
        self.assertNotEqual(r.report["verdict"], "fail")

    def test_derive(self):
        a = arena.Layer(self.path())
        half = b"\x80\x3f\x00\x40"     # bf16 1.0, 2.0
        full = b"\0\0\x80\x3f\0\0\x00\x40"
        sinks = {"in": "sinks", "out": "sinks_f32", "count": 2}
        with self.assertRaisesRegex(arena.Error, "no slot sinks"):
            a.derive("arena_sinks_f32", **sinks)
        with self.assertRaisesRegex(arena.Error, "mode is 'maybe'"):
            a.derive("arena_sinks_f32", "maybe", **sinks)
        a.put("sinks", half)
        live = a.put("sinks_f32", full)
        a.derive("arena_sinks_f32", **sinks)
        try:
            with arena.reload():
                a.put("sinks", half)
                a.commit()
        except arena.Error as error:
            if "there is no kernel" in str(error):
                self.skipTest("built without nvcc")
            raise
        with self.assertRaises(arena.Refused):
            with arena.reload() as r:
                a.put("sinks", half[2:] + half[:2])
                a.commit()
        self.assertEqual([(f["kind"], f["slot"]) for f in r.report["findings"]],
                         [("stale-value", "sinks_f32")])
        a.derive("arena_sinks_f32", "compute", **sinks)
        with arena.reload():
            a.put("sinks", half[2:] + half[:2])
            a.commit()
        self.assertEqual(self.driver.read(live.pointer, 2), [0x40000000, 0x3f800000])

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
                self.assertIs(a.get_or_create_object("o", lambda: held), held)
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
        if MODE == "absent":	# turned off, it is the driver's memory
            self.assertIsNone(arena.torch_allocator())

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
