#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Show what the library is for, in a minute or two: a decode engine with latent attention reloads its
# weights under captured CUDA graphs, once alone, once watched, once guarded, once over arenas; then
# every other model family does. Uses the GPU if there is one, else the simulated driver of the
# tests.
#
# Usage: scripts/demo.sh
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n\033[1m%s\033[0m\n' "$*" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9]*m//g'; fi; }

build=build/demo
mkdir -p build
echo "Setting up and building; some minutes the first time (log: $build.log)"
scripts/setup.sh --build-only
if ! { [ -f $build/build.ninja ] || meson setup $build; } >$build.log 2>&1 ||
	! ninja -C $build shim/libarena_shim.so reports/ctl/arenactl tests/engine/engine \
		tests/sim/full/libcuda.so.1 >>$build.log 2>&1; then
	tail -n 20 $build.log >&2
	echo "demo: the build failed, see $build.log" >&2
	exit 1
fi

shim=$PWD/$build/shim/libarena_shim.so
program=$PWD/$build/tests/engine/engine
families=(--shim "$shim" --engine "$program")
if [ -e /dev/nvidia0 ] && ldconfig -p | grep -q 'libcuda\.so\.1'; then
	echo "Driver: the real one ($(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null || echo GPU))"
else
	echo "Driver: simulated (no GPU here); the library and the engine are the real ones"
	export LD_LIBRARY_PATH=$PWD/$build/tests/sim/full
	families+=(--sim "$LD_LIBRARY_PATH")
fi
reports=$build/what-was-reported # stays, to look at
rm -rf "$reports"
mkdir "$reports"

# Run the engine with further options; what it serves one sequence is compared with a cold load.
right=$("$program" --family=mla --seed=2 | sed -n 's/^serve 0 batch 1 //p')
engine() {
	local code=0
	env "$@" "$program" --family=mla --reloads=1 --pressure "${options[@]}" >"$reports/out" 2>&1 || code=$?
	grep -Ev '^slots |batch [24]' "$reports/out"
	if grep -q '^serve 1 batch' "$reports/out"; then
		if grep -qF "serve 1 batch 1 $right" "$reports/out"; then
			echo "=> after the reload: to the bit what a cold load of B serves"
		else
			echo "=> after the reload: WRONG, a cold load of B serves ${right#*tokens }"
		fi
	fi
	echo "exit code $code"
}

say "1. Alone. The reload derives W_UK_T and W_UV anew; the graphs go on reading the old ones, which are other memory by now."
options=()
engine

say "2. Watched: LD_PRELOAD=libarena_shim.so, nothing else changes. The report is written before the launch."
engine LD_PRELOAD="$shim" ARENA_REPORT="$reports/watched.jsonl"
echo
"$build/reports/ctl/arenactl" report --no-pager "$reports/watched.jsonl"

say "3. Guarded: ARENA_GATE=strict. The reload is refused by name at its end; nothing wrong is served."
engine LD_PRELOAD="$shim" ARENA_GATE=strict ARENA_REPORT=

say "4. Guarded, and the engine makes no call of the library: the launch itself is refused, an ordinary driver error."
options=(--silent)
engine LD_PRELOAD="$shim" ARENA_GATE=strict ARENA_REPORT=

say "5. Over arenas: slots keep their addresses, values are verified and published by layer."
options=(--storage=arena)
engine LD_PRELOAD="$shim" ARENA_GATE=strict ARENA_REPORT=

say "6. Every model family, three reloads"
python3 tests/engine/run_families.py "${families[@]}"

say "What happened"
cat <<'TEXT'
A CUDA graph keeps the addresses that its kernels were captured with. The reload freed the derived
weights that the graphs read, so their addresses became somebody else's. Alone, the engine served
wrong tokens and nobody noticed. The library saw the free ("freed-while-referenced"), the slot that
was bound elsewhere ("moved"), and judged the launch before the driver got it ("stale-launch"):
which graph, kernel and parameter, the old and the new owner of the address. Under
ARENA_GATE=strict nothing wrong is served; over arenas nothing goes wrong.
TEXT
