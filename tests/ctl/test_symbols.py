#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names of native frames, from files of every kind: test_symbols.py SYMBOLS CC CXX

SYMBOLS is symbols.c. A library with an inlined C++ call is built with debug information, taken
apart, stripped, damaged; each time the names must be right, or the answer must say that there are
none, and why. Never another build's.
"""
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SYMBOLS, CC, CXX = os.path.abspath(sys.argv[1]), *sys.argv[2:4]
SEED = int(os.environ.get("SEED", "20251129"))
MUTANTS = 120

SOURCE = """
namespace deep {
template <typename T> struct layer {
	__attribute__((noinline)) static int answer(T x);
};
static volatile int sink;
static inline __attribute__((always_inline)) int inner(int x)
{
	sink = x;
	__asm__ volatile(".globl the_place\\nthe_place: nop");
	return sink;
}
static inline __attribute__((always_inline)) int middle(int x)
{
	return inner(x + 1);
}
template <typename T> int layer<T>::answer(T x)
{
	return middle(static_cast<int>(x)) + 1;
}
template struct layer<float>;
}
static __attribute__((noinline)) int hidden(int x)
{
	__asm__ volatile("" : "+r"(x));
	return x;
}
extern "C" int shown(int x)
{
	return hidden(x) + 1;
}
"""


def run(*command, **options):
    return subprocess.run([str(c) for c in command], check=True, text=True, capture_output=True,
                          **options).stdout


class Symbols(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.top = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.top.name)
        source = cls.folder / "victim.cc"
        source.write_text(SOURCE)
        cls.library = cls.folder / "libvictim.so"
        run(CXX, "-g", "-O2", "-shared", "-fPIC", "-Wl,--build-id=sha1", source, "-o", cls.library)
        cls.build_id = re.search(r"Build ID: (\w+)", run("readelf", "-n", cls.library)).group(1)
        cls.at = {}
        for line in run("nm", cls.library).splitlines():
            address, kind, name = (line.rsplit(maxsplit=2) + [""])[:3] if len(line) > 20 else "   "
            if kind in "tTwW":
                cls.at[name] = int(address, 16)
        # Where a call inside would return to: one past the first byte of it.
        cls.place = f"{cls.at['the_place'] + 1:x}"
        cls.hidden = f"{next(a for n, a in cls.at.items() if 'hidden' in n) + 1:x}"
        cls.shown = f"{cls.at['shown'] + 1:x}"

    @classmethod
    def tearDownClass(cls):
        cls.top.cleanup()

    def ask(self, path, build_id, *offsets, folders=None, env=None):
        options = [f"--folders={folders}"] if folders else []
        return run(SYMBOLS, *options, path, build_id, *offsets, timeout=120,
                   env={**os.environ, "DEBUGINFOD_URLS": "", **(env or {})})

    def notes(self, path, build_id, *offsets):
        p = subprocess.run([SYMBOLS, str(path), build_id, *offsets], text=True, check=True,
                           capture_output=True, env=dict(os.environ, DEBUGINFOD_URLS=""))
        return p.stderr

    def stripped(self, name, *options):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        run("objcopy", *(options or ["--strip-all"]), self.library, path)
        return path

    def debug_folder(self):
        folder = self.folder / "symbols"
        path = folder / ".build-id" / self.build_id[:2] / (self.build_id[2:] + ".debug")
        path.parent.mkdir(parents=True, exist_ok=True)
        run("objcopy", "--only-keep-debug", self.library, path)
        return folder

    def full(self, text):
        self.assertEqual(text.splitlines()[1:], [
            "  inner [inlined] victim.cc:10", "  middle [inlined] victim.cc:15",
            "  deep::layer<float>::answer(float) victim.cc:19"])

    def test_debug_information(self):
        text = self.ask(self.library, self.build_id, self.place)
        self.assertTrue(text.startswith("found libvictim.so+0x"), text)
        self.full(text)

    def test_separate_file(self):
        path = self.stripped("stripped/libvictim.so")
        self.full(self.ask(path, self.build_id, self.place, folders=self.debug_folder()))

    def test_separate_file_alone(self):
        self.full(self.ask("/no/such/folder/libvictim.so", self.build_id, self.place,
                           folders=f"/no/such:{self.debug_folder()}"))

    def test_file_of_a_folder(self):
        self.full(self.ask("/no/such/libvictim.so", self.build_id, self.place, folders=self.folder))

    def test_stripped(self):
        path = self.stripped("stripped/libvictim.so")
        text = self.ask(path, self.build_id, self.shown, self.hidden)
        shown, hidden = re.split(r"(?m)^(?=no-name)", text)
        self.assertEqual(shown.splitlines()[1:], ["  shown"])
        self.assertIn("does not name the address", hidden)

    def test_other_build(self):
        other = self.folder / "other" / "libvictim.so"
        other.parent.mkdir(exist_ok=True)
        (other.parent / "v.cc").write_text(SOURCE.replace("answer", "question"))
        run(CXX, "-g", "-O2", "-shared", "-fPIC", "-Wl,--build-id=sha1", other.parent / "v.cc",
            "-o", other)
        text = self.ask(other, self.build_id, self.place)
        self.assertTrue(text.startswith("other-build libvictim.so+0x"), text)
        self.assertRegex(text, r"is another build \(build-id \w{12}, the report has "
                         + self.build_id[:12])
        self.assertNotIn("question", text)
        # One of the right build, found later, counts.
        self.full(self.ask(other, self.build_id, self.place, folders=self.debug_folder()))

    def test_no_build_id(self):
        text = self.ask(self.library, "-", self.place)
        self.assertTrue(text.startswith("found unverified "), text)
        lines = text.splitlines(keepends=True)
        self.assertIn("why: the report has no build-id of", lines.pop(1))
        self.full("".join(lines))

    def test_notes(self):
        """Whose names were not used is said once a module."""
        note = self.notes(self.library, "0123456789", self.place, self.shown)
        self.assertRegex(note, r"^arenactl test: note: .*libvictim.so is another build .*\n$")
        note = self.notes(self.library, "-", self.place, self.shown)
        self.assertRegex(note, r"^arenactl test: note: the report has no build-id of .*\n$")
        self.assertEqual(self.notes(self.library, self.build_id, self.place), "")
        self.assertEqual(self.notes("/no/such.so", self.build_id, self.place), "")

    def test_build_id_that_is_none(self):
        for wrong in ("../../etc", "zz", "ab", "A" * 40, "0" * 1000):
            self.assertNotIn("found lib", self.ask(self.library, wrong, self.place))

    def test_what_is_no_file(self):
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        for path in (fifo, "/dev/zero", self.folder, "/proc/self/exe", "libvictim.so", "/"):
            text = self.ask(path, "-", "10")
            self.assertTrue(text.startswith("no-file "), text)

    def test_what_is_no_elf(self):
        path = self.folder / "text.so"
        for content in (b"", b"\x7fELF", b"hello\n" * 100, b"!<arch>\n", b"\x7fELF" + b"\xff" * 4000):
            path.write_bytes(content)
            text = self.ask(path, "-", "10", "20")
            self.assertNotIn("found", text)
            self.assertEqual(text.count("why:"), 2)

    def test_damaged(self):
        whole = self.library.read_bytes()
        dice = random.Random(SEED)
        path = self.folder / "damaged.so"
        for n in range(MUTANTS):
            data = bytearray(whole)
            if n % 3 == 0:
                del data[dice.randrange(len(data)):]
            for _ in range(dice.choice((1, 4, 64))):
                if data:
                    # The headers and the last sections are what most depends on.
                    where = dice.choice((64, 1024, len(data)))
                    data[dice.randrange(min(where, len(data)))] = dice.choice((0, 255, 0x7f,
                                                                            dice.randrange(256)))
            path.write_bytes(data)
            with self.subTest(seed=SEED, mutant=n):
                text = self.ask(path, "-", self.place, self.hidden, "ffffffffffffffff", "0")
                self.assertEqual(len(re.findall(r"(?m)^\S", text)), 4)

    def test_reader_that_dies(self):
        source, library = self.folder / "crash.c", self.folder / "crash.so"
        source.write_text("void *dwfl_begin(void *c) { return *(void *volatile *)8; }\n")
        run(CC, "-shared", "-fPIC", source, "-o", library)
        text = self.ask(self.library, self.build_id, self.place, self.shown,
                        env={"LD_PRELOAD": str(library)})
        self.assertEqual(len(re.findall(r"(?m)^unreadable libvictim.so\+0x", text)), 2)
        self.assertEqual(text.count("is damaged"), 2)

    def test_no_server_is_asked(self):
        """A library in place of libdebuginfod tells when it is used with a server to ask."""
        source, library = self.folder / "server.c", self.folder / "libdebuginfod.so.1"
        source.write_text("""
#include <stdio.h>
#include <stdlib.h>
static void tell(void)
{
	if (getenv("DEBUGINFOD_URLS"))
		fclose(fopen(getenv("TOLD"), "w"));
}
void *debuginfod_begin(void) { tell(); return malloc(1); }
void debuginfod_end(void *c) { free(c); }
int debuginfod_find_executable(void) { tell(); return -38; }
int debuginfod_find_debuginfo(void) { tell(); return -38; }
""")
        run(CC, "-shared", "-fPIC", source, "-o", library)
        path = self.stripped("stripped/libvictim.so")
        self.ask(path, self.build_id, self.hidden,
                 env={"LD_LIBRARY_PATH": str(self.folder), "TOLD": str(self.folder / "told"),
                      "DEBUGINFOD_URLS": "http://127.0.0.1:9"})
        self.assertFalse((self.folder / "told").exists())

    def test_memory_is_limited(self):
        text = run(SYMBOLS, "--memory", "_Z6kernelPfi")
        self.assertRegex(text, r"Max address space +1[67]\d{9} ")

    def test_names(self):
        def name(text):
            return run(SYMBOLS, "--name", text).rstrip("\n")
        self.assertEqual(name("_Z6kernelPfi"), "kernel(float*, int)")
        self.assertEqual(name("_ZN4deep5layerIfE6answerEf"), "deep::layer<float>::answer(float)")
        for plain in ("main", "i", "", "_Z", "_Zrubbish", "_ZN" + "1a" * 20000):
            self.assertEqual(name(plain), plain)


if __name__ == "__main__":
    if not shutil.which("objcopy") or not shutil.which("readelf"):
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=1)
