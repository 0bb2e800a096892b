#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the page of `arenactl report --format=html` a C file: embed.py OUT.c embed.py PAGE.html STYLE.css SCRIPT.js...

The page goes into two strings: what comes before the report's data, and what comes after. The policy
in its head names the digests of the one style and the one script, so that a browser runs nothing else,
and nothing may be fetched.
"""
import base64
import hashlib
import sys

# String literals of C may be limited to 4095 characters; short ones keep the file readable, too.
PIECE = 100


def literal(text):
    escaped = {ord("\\"): "\\\\", ord('"'): '\\"', ord("\n"): "\\n", ord("\t"): "\\t",
               ord("\r"): "\\r", ord("?"): "\\?"}
    lines = []
    data = text.encode()
    for at in range(0, len(data), PIECE):
        lines.append('\t"' + "".join(
            escaped.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}")
            for b in data[at:at + PIECE]) + '"')
    return "\n".join(lines)


def digest(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def main():
    out, _, page, style, *scripts = sys.argv[1:]
    page, style = read(page), read(style)
    # One scope, so that nothing of it hangs on the window.
    script = '"use strict";\n(() => {\n' + "\n".join(map(read, scripts)) + "})();\n"
    for text in (style, script):
        if "</s" in text.lower() or "<!--" in text:
            sys.exit("embed.py: a style or script must not contain '</s' or '<!--'")
    policy = (f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; "
              "base-uri 'none'; form-action 'none'")
    page = page.replace("@POLICY@", policy).replace("@STYLE@", style).replace("@SCRIPT@", script)
    before, found, after = page.partition("@DATA@")
    if not found:
        sys.exit("embed.py: the page has no @DATA@")
    with open(out, "w", encoding="utf-8") as file:
        file.write("/* Made by embed.py. */\n#include \"reports/ctl/out_html.h\"\n\n"
                   f"const char html_before[] =\n{literal(before)};\n\n"
                   f"const char html_after[] =\n{literal(after)};\n")


if __name__ == "__main__":
    main()
