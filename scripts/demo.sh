#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Show what the library is for, in one minute: a small engine reloads its weights under a captured
# CUDA graph, once alone, once watched, once guarded. Uses the GPU if there is one, else the
# simulated driver of the tests.
#
# Usage: scripts/demo.sh
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n\033[1m%s\033[0m\n' "$*" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9]*m//g'; fi; }

build=build/demo
mkdir -p build
scripts/setup.sh --build-only
if ! { [ -f $build/build.ninja ] || meson setup $build; } >$build.log 2>&1 ||
	! ninja -C $build shim/libarena_shim.so tests/victims/v_demo tests/sim/full/libcuda.so.1 \
		>>$build.log 2>&1; then
	tail -n 20 $build.log >&2
	echo "demo: the build failed, see $build.log" >&2
	exit 1
fi

shim=$PWD/$build/shim/libarena_shim.so
engine=$PWD/$build/tests/victims/v_demo
if [ -e /dev/nvidia0 ] && ldconfig -p | grep -q 'libcuda\.so\.1'; then
	echo "Driver: the real one ($(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null || echo GPU))"
else
	echo "Driver: simulated (no GPU here); the library and the engine are the real ones"
	export LD_LIBRARY_PATH=$PWD/$build/tests/sim/full
fi
reports=$(mktemp -d -t arena-demo-XXXX)
trap 'rm -rf "$reports"' EXIT

say "1. Alone. The engine reloads; its graph goes on reading the old address, which is other memory by now."
code=0
"$engine" 2>&1 || code=$?
echo "exit code $code"

say "2. Watched: LD_PRELOAD=libarena_shim.so, nothing else changes. The report is written before the launch."
code=0
LD_PRELOAD=$shim ARENA_REPORT=$reports/watched.jsonl "$engine" 2>&1 || code=$?
echo "exit code $code"
echo
python3 scripts/show-report.py "$reports/watched.jsonl"

say "3. Guarded: ARENA_GATE=strict. The same launch is refused; the engine sees an ordinary driver error."
code=0
LD_PRELOAD=$shim ARENA_GATE=strict ARENA_REPORT=$reports/guarded.jsonl "$engine" 2>&1 || code=$?
echo "exit code $code"

say "What happened"
cat <<'TEXT'
A CUDA graph keeps the addresses that its kernels were captured with. The reload freed the old
weights, so the graph's address became the cache's. Alone, the engine served a wrong token and
nobody noticed. The library saw the free ("freed-while-referenced", a warning at the free itself)
and judged the launch before the driver got it ("stale-launch"): which graph, kernel and
parameter, the old and the new owner of the address, and who allocated each. Under
ARENA_GATE=strict the launch returns CUDA_ERROR_ILLEGAL_STATE instead; the engine can capture
again and go on.
TEXT
