#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print the program of a manual page: example.py PAGE.scd > example.c

The program is the code block of the section EXAMPLE; scdoc wants its backslashes twice.
"""
import pathlib
import re
import sys

page = pathlib.Path(sys.argv[1]).read_text()
section = re.search(r'^# EXAMPLE\n(.*?)^# ', page, re.M | re.S).group(1)
print(re.search(r'^```\n(.*?)^```$', section, re.M | re.S).group(1).replace('\\\\', '\\'), end='')
