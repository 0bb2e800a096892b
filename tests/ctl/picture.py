#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make reports/ctl/html/report.png anew: picture.py BUILD OUT.png

Runs serve.py under the library of a build, on its simulated driver, and takes the page of the report
in a headless Chromium. The picture gets a palette, for it lies in the repository.
"""
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

import browser

HERE = pathlib.Path(__file__).resolve().parent
WIDTH, HEIGHT = 1160, 2240


def report(build, directory):
    env = {**os.environ, "LD_LIBRARY_PATH": str(build / "tests/sim/full"),
           "LD_PRELOAD": str(build / "shim/libarena_shim.so"), "ARENA_GATE": "strict", "ARENA_TRACE": "on",
           "ARENA_STACKS": "all", "ARENA_LOG": "error", "ARENA_REPORT": str(directory / "serve.jsonl")}
    subprocess.run([sys.executable, HERE / "serve.py", build / "tests/victims/kernels.fatbin"], env=env,
                   stderr=subprocess.DEVNULL, check=True)
    subprocess.run([build / "reports/ctl/arenactl", "report", "--format=html", "-o", directory / "serve.html",
                    directory / "serve.jsonl"], check=True)
    return directory / "serve.html"


def chunks(data):
    at = 8
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        yield kind, data[at + 8:at + 8 + size]
        at += size + 12


def pixels(data):
    """Rows of (r, g, b) of an 8-bit PNG without interlace."""
    parts = list(chunks(data))
    width, height, _, colour = struct.unpack(">IIBB", parts[0][1][:10])
    step = {2: 3, 6: 4}[colour]
    raw = zlib.decompress(b"".join(body for kind, body in parts if kind == b"IDAT"))
    rows, last = [], bytearray(width * step)
    for y in range(height):
        begin = y * (width * step + 1)
        method, line = raw[begin], bytearray(raw[begin + 1:begin + 1 + width * step])
        for x, value in enumerate(line):
            left, up, corner = (line[x - step], last[x], last[x - step]) if x >= step else (0, last[x], 0)
            p = left + up - corner
            near = min((abs(p - left), 0, left), (abs(p - up), 1, up), (abs(p - corner), 2, corner))[2]
            line[x] = value + (0, left, up, (left + up) // 2, near)[method] & 255
        rows.append([tuple(line[x:x + 3]) for x in range(0, width * step, step)])
        last = line
    return width, height, rows


def distance(a, b):
    return sum((x - y) ** 2 for x, y in zip(a, b))


def with_palette(data):
    """Frequent colours, then those that are far from all of them; the others become the nearest."""
    width, height, rows = pixels(data)
    counts = {}
    for row in rows:
        for colour in row:
            counts[colour] = counts.get(colour, 0) + 1
    palette = sorted(counts, key=counts.get, reverse=True)[:128]
    nearest = {c: min((distance(p, c), i) for i, p in enumerate(palette)) for c in counts}
    while len(palette) < 256:
        new = max(counts, key=lambda c: nearest[c][0] * counts[c] ** 0.25)
        for c in counts:
            nearest[c] = min(nearest[c], (distance(new, c), len(palette)))
        palette.append(new)
    index = {c: i for c, (_, i) in nearest.items()}
    raw = b"".join(b"\0" + bytes(index[c] for c in row) for row in rows)

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)) +
            chunk(b"PLTE", b"".join(map(bytes, palette))) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b""))


def main():
    build, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as directory, browser.Browser(browser.find()) as page:
        page.size(WIDTH, HEIGHT)
        page.media()
        page.open(report(build, pathlib.Path(directory)))
        page.picture(out)
    out.write_bytes(with_palette(out.read_bytes()))


if __name__ == "__main__":
    main()
