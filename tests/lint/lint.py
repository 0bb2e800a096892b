#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules of the house that a compiler does not check.

    lint.py RULE --root DIR [--shim LIB] [--stub LIBCUDA]

Exit status 0: kept, 1: broken (each place on a line of its own), 77: cannot be checked here.
"""

import argparse
import pathlib
import re
import subprocess
import sys

SKIP = 77
LINE = 64                       # bytes of the cache
LINES_MAX = 600
COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 40
PARAMETERS_MAX = 5
PUBLIC_COMMENTS_MIN = 0.4

# The headers that are installed.
PUBLIC = ('arena/arena.h', 'arena/derive.h', 'arena/client.h')

# Besides the rows of hooks.def and the public API: the look-ups, what NVTX asks and calls, and what
# PyTorch calls.
GATES = {'dlsym', 'dlvsym', 'dlopen', 'dlmopen', 'getenv', 'InitializeInjectionNvtx2',
         'arena_torch_malloc', 'arena_torch_free'}
# What PyTorch's allocator reports to (shim/torch.c).
TORCH = {f'_ZN3c1027reportMemoryUsageToProfilerEPv{t}NS_6DeviceE' for t in ('lmm', 'lll')}
# A layer may include its own headers, these folders, and no system header that is named here.
LAYERS = {
    'arena': (set(), {'cuda.h', 'cudaTypedefs.h', 'dlfcn.h', 'jansson.h', 'link.h'}),
    'kernels': (set(), {'cuda.h', 'cudaTypedefs.h', 'dlfcn.h', 'jansson.h', 'link.h'}),
    'reports': ({'arena'}, {'cuda.h', 'cudaTypedefs.h', 'dlfcn.h', 'link.h'}),
    'shim': ({'arena', 'kernels', 'reports', 'cupti'}, {'jansson.h'}),
    'cupti': ({'arena'}, {'jansson.h'}),
}
OURS = tuple(LAYERS)
# A program of its own: it prints and exits, and takes nothing of the library but lists of data.
TOOL = 'reports/ctl'
CODE = ('.c', '.h')
TEXT = CODE + ('.def', '.cu', '.py', '.sh', '.in')


def files(root, folders, suffixes):
    for folder in folders:
        for path in sorted((root / folder).rglob('*')):
            if path.is_file() and path.suffix in suffixes and 'corpus' not in path.parts:
                yield path


def is_tool(root, path):
    return path.is_relative_to(root / TOOL)


def rows(path, macro):
    """Fields of each MACRO(...) line, the first few, as text."""
    for line in path.read_text().splitlines():
        m = re.match(macro + r'\((.*)', line)
        if m:
            yield [field.strip() for field in m.group(1).split(',')]


def hooked(root):
    return [r[0] + r[1] + r[3] for r in rows(root / 'shim/hooks.def', 'HOOK')]


def unhooked(root):
    return [r[0] for r in rows(root / 'shim/unhooked.def', 'UNHOOKED')]


def guests(root):
    """Functions of CUPTI whose use by others the library has to know of."""
    return [r[0] for r in rows(root / 'shim/guests.def', 'GUEST')]


def declared(header):
    """(name, where it starts) of each declaration of a public header."""
    for m in re.finditer(r'^ARENA_FN(?:_OR\((?:[^,]*,){2}|\()\s*(\w+),', header.read_text(), re.M):
        yield m.group(1), m.start()


def public(root):
    """Names of the public API, in all headers that are installed."""
    return [name for header in PUBLIC for name, _ in declared(root / header)]


def exports(library):
    out = subprocess.run(['nm', '-D', '--defined-only', library], check=True,
                         capture_output=True, text=True).stdout
    found = [line.split() for line in out.splitlines()]
    return {f[-1].split('@')[0] for f in found if f[-2] in 'TWVDBR'}


def rule_exports(args):
    """The library exports the rows, its public API, the gates and the guests; nothing else."""
    expected = set(hooked(args.root)) | GATES | TORCH | set(public(args.root)) | \
        set(guests(args.root))
    found = exports(args.shim)

    for header in PUBLIC:
        if not list(declared(args.root / header)):
            yield f'{header}: no declaration was recognised'
    for name in sorted(found - expected):
        yield f'{args.shim}: exports {name}'
    for name in sorted(expected - found):
        yield f'{args.shim}: does not export {name}'


def rule_needed(args):
    """The library needs libc only, and nothing private of it."""
    out = subprocess.run(['readelf', '-dW', args.shim], check=True, capture_output=True,
                         text=True).stdout
    needed = re.findall(r'\(NEEDED\).*\[(.*)\]', out)

    if any('asan' in n or 'tsan' in n or 'ubsan' in n for n in needed):
        sys.exit(SKIP)
    for name in needed:
        if not name.startswith('libc.so'):
            yield f'{args.shim}: needs {name}'
    if '(FLAGS_1)' not in out or 'NODELETE' not in out or 'NOW' not in out:
        yield f'{args.shim}: not linked with -z nodelete -z now'
    out = subprocess.run(['nm', '-D', '--undefined-only', args.shim], check=True,
                         capture_output=True, text=True).stdout
    for line in out.splitlines():
        if 'GLIBC_PRIVATE' in line:
            yield f'{args.shim}: uses {line.split()[-1]}'


def rule_quick(args):
    """What the quick paths read lies in one cache line (QUICK_WORD in arena/atomics.h)."""
    out = subprocess.run(['readelf', '-SW', args.shim], check=True, capture_output=True,
                         text=True).stdout
    found = re.search(r' quick_words +\w+ +(\w+) \w+ (\w+)', out)
    if not found:
        yield f'{args.shim}: no section quick_words'
        return
    start, size = (int(word, 16) for word in found.groups())

    if start // LINE != (start + size - 1) // LINE:
        yield f'{args.shim}: {size} bytes of quick words from {start:#x} on are not in one line'


def rule_entries(args):
    """hooks.def and unhooked.def together name every export of the toolkit's driver, once."""
    if not args.stub.is_file():
        print(f'no driver stub at {args.stub}')
        sys.exit(SKIP)
    known, found = hooked(args.root) + unhooked(args.root), exports(args.stub)

    for name in sorted({n for n in known if known.count(n) > 1}):
        yield f'{name} is listed twice'
    for name in sorted(found - set(known)):
        yield f'{name} is exported by the driver: add it to hooks.def or unhooked.def'
    for name in sorted(set(known) - found):
        yield f'{name} is listed, but the driver does not export it'
    for line in (args.root / 'shim/unhooked.def').read_text().splitlines():
        if line.startswith('UNHOOKED') and not re.match(r'UNHOOKED\(\w+, "[^"]{8,}"\)$', line):
            yield f'no reason: {line}'


def rule_sorted(args):
    """Lists are sorted by name, so that a row has one place."""
    lists = {
        'shim/hooks.def': [r[0] for r in rows(args.root / 'shim/hooks.def', 'HOOK')],
        'shim/unhooked.def': unhooked(args.root),
        'shim/guests.def': guests(args.root),
        'shim/uses.def': [r[0] for r in rows(args.root / 'shim/uses.def', 'USE')],
        'shim/options.def': [r[0] for r in rows(args.root / 'shim/options.def', r'OPTION_\w+')],
        'shim/coverage.def': [r[1] for r in rows(args.root / 'shim/coverage.def', 'COVERAGE')],
        'kernels/decode/decode.def': [r[0] for r in rows(args.root / 'kernels/decode/decode.def',
                                                           'DECODE')],
        'kernels/kernels.def': [r[0] for r in rows(args.root / 'kernels/kernels.def',
                                                     '(?:KERNEL|DERIVE)')],
        'arena/findings.def': [r[1] for r in rows(args.root / 'arena/findings.def', 'FINDING')],
    }

    for path, names in lists.items():
        if not names:
            yield f'{path}: no rows'
        for a, b in zip(names, names[1:]):
            if a.lower() > b.lower():
                yield f'{path}: {b} comes after {a}'


def rule_layers(args):
    """A lower layer does not include a higher one, or what only a higher one may use."""
    for layer, (below, banned) in LAYERS.items():
        for path in files(args.root, [layer], CODE):
            if is_tool(args.root, path):
                continue
            for n, line in enumerate(path.read_text().splitlines(), 1):
                m = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
                if not m:
                    continue
                folder = m.group(2).split('/')[0]
                higher = m.group(1) == '"' and '/' in m.group(2) and folder not in below | {layer}
                if higher or m.group(2) in banned:
                    yield f'{path}:{n}: {layer}/ includes {m.group(2)}'
    for path in files(args.root, [TOOL], CODE):
        for n, line in enumerate(path.read_text().splitlines(), 1):
            m = re.match(r'\s*#\s*include\s*"(.*/.*)"', line)
            if m and not m.group(1).endswith('.def') and not m.group(1).startswith(TOOL):
                yield f'{path}:{n}: {TOOL}/ includes {m.group(1)}'


def rule_atomics(args):
    """Atomics only by the helpers whose names carry the memory order."""
    raw = re.compile(r'stdatomic\.h|\batomic_\w+\s*\(|__atomic_\w+|__sync_\w+')
    for path in files(args.root, OURS, CODE):
        if path.name == 'atomics.h':
            continue
        for n, line in enumerate(path.read_text().splitlines(), 1):
            if raw.search(line):
                yield f'{path}:{n}: raw atomics: {line.strip()}'


def rule_stdout(args):
    """The library prints nothing to stdout, and does not end its host."""
    banned = re.compile(r'(?<![\w>.])(printf|puts|putchar|vprintf|exit|abort|system|popen)\s*\(|\bstdout\b')
    for path in files(args.root, OURS, CODE):
        if is_tool(args.root, path):
            continue
        for n, line in enumerate(path.read_text().splitlines(), 1):
            code = re.sub(r'"(\\.|[^"\\])*"|/\*.*?\*/', '', line)
            if banned.search(code) and not re.match(r'\s*(/?\*|//)', line) and \
               'format(printf' not in code:
                yield f'{path}:{n}: {line.strip()}'


def rule_licence(args):
    """The SPDX line comes first, or right after the interpreter."""
    for path in files(args.root, OURS + ('tests', 'scripts'), TEXT):
        lines = path.read_text().splitlines()[:2]
        if lines and lines[0].startswith('#!'):
            del lines[0]
        if not lines or 'SPDX-License-Identifier: Apache-2.0' not in lines[0]:
            yield f'{path}:1: no SPDX line'
    builds = [args.root / 'meson.build', args.root / 'meson_options.txt']
    for folder in OURS + ('tests',):
        builds += sorted((args.root / folder).rglob('meson.build'))
    for path in builds:
        if 'SPDX' not in path.read_text().splitlines()[0]:
            yield f'{path}:1: no SPDX line'


def functions(path):
    """(line, number of parameters, lines of the body) of each function definition."""
    lines = path.read_text().splitlines()
    start = None
    for n, line in enumerate(lines):
        if line == '{':
            start = n
        elif line == '}' and start is not None:
            head = n_head = start - 1
            while head > 0 and lines[head] and not lines[head].endswith((';', '}', '*/', '{')):
                head -= 1
            text = ' '.join(lines[head + 1:n_head + 1])
            m = re.search(r'\w+\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)\s*$', text)
            depth, count = 0, 1
            for c in m.group(1) if m else '':
                depth += (c == '(') - (c == ')')
                count += c == ',' and depth == 0
            yield start + 1, text, count, n - start - 1
            start = None


def rule_size(args):
    """Files, functions, parameter lists and lines stay short. ABIs have the parameters they have."""
    api = set(public(args.root))
    for path in files(args.root, OURS, CODE):
        lines = path.read_text().splitlines()
        if len(lines) > LINES_MAX:
            yield f'{path}: {len(lines)} lines, at most {LINES_MAX}'
        for n, line in enumerate(lines, 1):
            if len(line.expandtabs(8)) > COLUMNS_MAX:
                yield f'{path}:{n}: {len(line.expandtabs(8))} columns, at most {COLUMNS_MAX}'
        for n, head, parameters, length in functions(path):
            if length > FUNCTION_LINES_MAX:
                yield f'{path}:{n}: function of {length} lines, at most {FUNCTION_LINES_MAX}'
            name = re.search(r'(\w+)\s*\(', head)
            abi = name and name.group(1) in api or re.search(r'\bcu[A-Z]\w*\s*\(', head)
            if parameters > PARAMETERS_MAX and not abi:
                yield f'{path}:{n}: {parameters} parameters, at most {PARAMETERS_MAX}'


def speaks_of_threads(path, opening):
    """The source, or the header of its module, which is then the contract."""
    header = path.with_suffix('.h')
    if header.is_file():
        opening += header.read_text().split('*/\n#ifndef')[0]
    return re.search(r'thread|constant|serialise', opening, re.I)


def rule_comments(args):
    """Each source opens with its job and with which threads may call it; no notes to oneself."""
    for path in files(args.root, OURS, CODE):
        text = path.read_text()
        opening = re.match(r'/\* SPDX[^\n]*\n(/\*.*?\*/)', text, re.S)
        if not opening:
            yield f'{path}: does not open with a comment'
        elif path.suffix == '.c' and not speaks_of_threads(path, opening.group(1)):
            yield f'{path}: does not say which threads may call it'
        for n, line in enumerate(text.splitlines(), 1):
            if re.search(r'\b(TODO|FIXME|XXX|HACK|for now)\b', line):
                yield f'{path}:{n}: {line.strip()}'


def rule_public(args):
    """Each public declaration says what it does, what it returns, and who may call it."""
    for path in (args.root / header for header in PUBLIC):
        text = path.read_text()
        lines = sum(c.count('\n') + 1 for c in re.findall(r'/\*.*?\*/', text, re.S))

        if lines < PUBLIC_COMMENTS_MIN * text.count('\n'):
            yield f'{path}: {lines} of {text.count(chr(10))} lines are comments'
        for name, start in declared(path):
            before = text[:start].rstrip()
            doc = before[before.rfind('/**'):] if before.endswith('*/') else ''
            for word in ('@brief', '@return', 'thread'):
                if word not in doc:
                    yield f'{path}: {name}: no {word} in its comment'


def rule_manual(args):
    """Options, finding kinds and coverage keys are in the manual."""
    pages = sorted((args.root / 'reports/man').glob('*.scd'))
    text = '\n'.join(p.read_text() for p in pages).replace('\\', '')

    if not pages:
        yield f'{args.root}/reports/man: no pages'
    for r in rows(args.root / 'shim/options.def', r'OPTION_\w+'):
        if f'ARENA_{r[0]}' not in text:
            yield f'ARENA_{r[0]} is not in the manual'
    for r in rows(args.root / 'arena/findings.def', 'FINDING'):
        if r[1].strip('"') not in text:
            yield f'{r[1]} of arena/findings.def is not in the manual'
    # Where the format is, and where users of engines learn what stays invisible.
    for page in ('arena-report.5.scd', 'arena-engines.7.scd'):
        text = (args.root / 'reports/man' / page).read_text().replace('\\', '')
        for r in rows(args.root / 'shim/coverage.def', 'COVERAGE'):
            blind = page != 'arena-engines.7.scd' or r[1] != '"cupti-agreed"'
            if blind and r[1].strip('"') not in text:
                yield f'{r[1]} of shim/coverage.def is not in {page}'


def rule_derivations(args):
    """Each derivation is in the manual, with its parameters in their order."""
    text = (args.root / 'kernels/kernels.def').read_text()
    manual = ' '.join((args.root / 'reports/man/arena.3.scd').read_text().split())
    found = re.findall(r'^DERIVE\((\w+), "[^"]*",(.*?)\)\n(?=DERIVE|KERNEL|#undef)', text,
                       re.M | re.S)

    if not found:
        yield 'kernels/kernels.def: no derivations'
    for name, rest in found:
        parameters = ', '.join(re.findall(r'\bP\([^,]*, ([^)]*)\)', rest))
        line = f'*{name}*({parameters})'
        if line not in manual:
            yield f'reports/man/arena.3.scd: no {line}'


def tool_options(root):
    """{command: its options}, of options.def; what every command takes is under None."""
    by_command = {}
    for line in (root / TOOL / 'options.def').read_text().splitlines():
        m = re.match(r'OPTION\(\w+,\s*"([a-z-]+)",[^,]*,\s*(?:NULL|"[^"]*"),\s*([A-Z_ |]+),', line)
        if not m and line.startswith('OPTION('):
            raise ValueError(f'a row that is not understood: {line}')
        for mask in m.group(2).split('|') if m else []:
            commands = [None] if mask.strip() == 'CMD_ALL' else \
                ['check', 'diff', 'explain', 'merge', 'report'] if mask.strip() == 'CMD_READERS' else \
                [mask.strip().removeprefix('CMD_').lower()]
            for command in commands:
                by_command.setdefault(command, set()).add(m.group(1))
    return by_command


def rule_tool(args):
    """The options of each command of arenactl are those of its manual page."""
    options = tool_options(args.root)
    common = options.pop(None)
    pages = args.root / 'reports/man'

    for command, taken in sorted(options.items()):
        page = pages / f'arenactl-{command}.1.scd'
        if not page.exists():
            yield f'{page}: there is no page'
            continue
        # Names of options begin a line or follow a comma there; examples are left out.
        section = page.read_text().split('# OPTIONS')[-1].split('\n# ')[0]
        told = set(re.findall(r'\*--([a-z-]+)\*', section))
        for name in sorted(taken - told):
            yield f'{page}: --{name} is missing'
        for name in sorted(told - taken - common):
            yield f'{page}: --{name} is no option of it'
    told = set(re.findall(r'\*--([a-z-]+)\*', (pages / 'arenactl.1.scd').read_text()))
    for name in sorted(common - told):
        yield f'arenactl.1.scd: --{name} is missing'


RULES = {name[5:]: f for name, f in list(globals().items()) if name.startswith('rule_')}


def main():
    p = argparse.ArgumentParser()
    p.add_argument('rule', choices=sorted(RULES))
    p.add_argument('--root', type=pathlib.Path, required=True)
    p.add_argument('--shim')
    p.add_argument('--stub', type=pathlib.Path)
    args = p.parse_args()
    broken = list(RULES[args.rule](args))
    for text in broken:
        print(text.replace(f'{args.root}/', ''))
    return 1 if broken else 0


if __name__ == '__main__':
    sys.exit(main())
