# SPDX-License-Identifier: Apache-2.0
"""Validate the lines of reports that tests write, where python3-jsonschema is there."""
import functools
import json
import pathlib

LINES_MAX = 1000    # of one report: the types of line come early, and validating is slow
PROBLEMS_MAX = 5


@functools.lru_cache
def validator():
    try:
        import jsonschema
    except ImportError:
        return None
    path = pathlib.Path(__file__).resolve().parents[1] / "reports" / "schema.json"
    return jsonschema.Draft202012Validator(json.loads(path.read_text(encoding="utf-8")))


def problems(lines):
    """What is wrong with the first lines, in words."""
    found = 0
    for number, line in enumerate(lines[:LINES_MAX] if validator() else [], 1):
        for error in validator().iter_errors(line):
            where = "/".join(str(part) for part in error.absolute_path)
            yield f"line {number} ({line.get('type')}) against schema.json: {where}: {error.message}"
            found += 1
            if found == PROBLEMS_MAX:
                return
