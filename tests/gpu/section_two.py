# SPDX-License-Identifier: Apache-2.0
"""Section two of run.py: programs on two GPUs; skipped where there is one."""
import re

SECTION = "two"


def run(suite):
    for mode in ("devices", "ranks"):
        for gate in ("strict", "warn") if mode == "ranks" else ("strict",):
            result = suite.run(suite.python("torch_two.py", mode), gate, timeout=280)
            title = f"torch, {mode}, {gate}"
            rows = re.findall(r"^(ok|WRONG) (.*)$", result.out, re.M)
            problems = [text for word, text in rows if word == "WRONG"]
            if result.code == 77 or "ModuleNotFoundError" in result.err:
                problems = None
            elif result.code and not problems:
                problems = [f"exit {result.code} {result.err.strip().splitlines()[-1:]}"]
            suite.add(SECTION, title, problems, "; ".join(text for _, text in rows)[:300])
    suite.add(SECTION, *suite.stock_program(
        "jax command buffers", suite.python("jax_two.py"),
        {"XLA_FLAGS": suite.xla_flags, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}))
