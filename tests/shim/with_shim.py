#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run a program under the shim in an empty folder, and check what became of it.

    with_shim.py --shim SHIM [options] -- PROGRAM ARG...

The preload list is "@" (the shim) unless --preload says otherwise; "@copy" is a second copy of it
under another name. A test that cannot run here exits with 77, as the program does.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import schema  # noqa: E402


def parse(argv):
    p = argparse.ArgumentParser()
    p.add_argument('--shim', required=True)
    p.add_argument('--preload', default='@', help='colon-separated; @ is the shim, @copy a copy')
    p.add_argument('--sim', help='folder with the libcuda.so.1 to use; none: no driver')
    p.add_argument('--chdir-shim', action='store_true',
                   help='put the shim into a folder with spaces, start there, preload by ./')
    p.add_argument('--status', type=int, default=0, help='expected exit status, -N: signal N')
    p.add_argument('--reports', type=int, help='how many processes write a report')
    p.add_argument('--exits', type=int, help='how many of them reach their exit line')
    p.add_argument('--says', action='append', default=[], metavar='KEY=VALUE',
                   help='an exit line has VALUE at the dotted KEY; VALUE is JSON or "any"')
    p.add_argument('--noted', action='append', default=[], help='KEY=TEXT in "noted" of an exit line')
    p.add_argument('--env', action='append', default=[], metavar='NAME=VALUE')
    p.add_argument('command', nargs='+')
    return p.parse_args(argv)


def preload_list(args, shim, folder):
    copy = folder / 'libarena_shim_copy.so'
    names = []
    for name in args.preload.split(':'):
        if name == '@copy':
            shutil.copy(args.shim, copy)
            name = str(copy)
        names.append(shim if name == '@' else name)
    first = os.environ.get('ARENA_TEST_PRELOAD')
    return ':'.join(([first] if first else []) + names)


def environment(args, shim, folder, reports):
    env = dict(os.environ, LC_ALL='C')
    env['LD_PRELOAD'] = preload_list(args, shim, folder)
    env['ARENA_REPORT'] = str(reports / '%p.jsonl')
    env.pop('LD_LIBRARY_PATH', None)
    if args.sim:
        env['LD_LIBRARY_PATH'] = args.sim
    env.update(pair.split('=', 1) for pair in args.env)
    return env


def at(line, key):
    for part in key.split('.'):
        line = line.get(part) if isinstance(line, dict) else None
    return line


def failures(args, status, folder, reports):
    files = sorted(reports.glob('*.jsonl'))
    lines = [json.loads(line) for f in files for line in f.read_text().splitlines()]
    exits = [line for line in lines if line.get('type') == 'exit']
    strays = sorted(p.name for p in folder.iterdir())

    yield from schema.problems(lines)
    if status != args.status:
        yield f'exit status {status}, expected {args.status}'
    if args.reports is not None and len(files) != args.reports:
        yield f'{len(files)} reports, expected {args.reports}'
    if args.exits is not None and len(exits) != args.exits:
        yield f'{len(exits)} exit lines, expected {args.exits}'
    for pair in args.says:
        key, value = pair.split('=', 1)
        if not any(at(line, key) == json.loads(value) for line in exits):
            yield f'no exit line says {pair}: {[at(line, key) for line in exits]}'
    for pair in args.noted:
        key, text = pair.split('=', 1)
        if not any(text in (at(line, 'noted.' + key) or []) for line in exits):
            yield f'no exit line notes {pair}: {[line.get("noted") for line in exits]}'
    if strays:
        yield f'files left behind: {strays}'


def main(argv):
    args = parse(argv)
    with tempfile.TemporaryDirectory() as top:
        top = pathlib.Path(top)
        folder, reports, libs = top / 'work', top / 'reports', top / 'a folder with spaces'
        for d in (folder, reports, libs):
            d.mkdir()
        shim = os.path.abspath(args.shim)
        cwd = folder
        if args.chdir_shim:
            shutil.copy(shim, libs)
            cwd, shim = libs, './' + os.path.basename(shim)
        command = [os.path.abspath(args.command[0])] + args.command[1:]
        done = subprocess.run(command, cwd=cwd, env=environment(args, shim, top, reports),
                              timeout=120)
        if done.returncode == 77:
            return 77
        wrong = list(failures(args, done.returncode, folder, reports))
    for text in wrong:
        print(text, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
