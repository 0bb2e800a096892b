#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copy what scripts/gpu-test.sh needs of a build into a small folder, for a GPU machine that lacks
# what building needs (jansson, Criterion): about 10 MB, without debug information.
#
# Usage: scripts/gpu-pack.sh BUILD_DIR OUT_DIR     then there: scripts/gpu-test.sh OUT_DIR
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -ne 2 ]; then
	echo "gpu-pack: two folders are needed: scripts/gpu-pack.sh BUILD_DIR OUT_DIR" >&2
	exit 2
fi
build=$1 out=$2
if [ ! -e "$build/shim/libarena_shim.so" ]; then
	echo "gpu-pack: $build: no libarena_shim.so in it: build it first, or name another folder" >&2
	exit 1
fi
if [ -e "$out" ] && [ ! -e "$out/shim/libarena_shim.so" ]; then
	echo "gpu-pack: $out: it is there, and not of this script: name another folder" >&2
	exit 1
fi
rm -rf "$out"

put() { # FOLDER FILE...
	local folder=$out/$1
	shift
	mkdir -p "$folder"
	cp "$@" "$folder/"
}
programs() { find "$build/$1" -maxdepth 1 -type f -executable ! -name '*.a' ! -name '*.so*'; }

put shim "$build"/shim/*.so
# In a folder of its own, as in a build, and beside the library, as it is installed.
for folder in cupti shim; do
	[ ! -e "$build/cupti/libarena_cupti.so" ] || put $folder "$build/cupti/libarena_cupti.so"
done
for folder in tests/victims tests/bench tests/gpu tests/engine; do
	mapfile -t found < <(programs "$folder")
	put "$folder" "${found[@]}"
done
! compgen -G "$build/tests/victims/*.fatbin" >/dev/null || put tests/victims "$build"/tests/victims/*.fatbin
put tests/shim "$build"/tests/shim/shim_{route_tags,contexts}
# Never the fake libcupti that lies beside them.
for program in scenes guest replays; do
	[ ! -x "$build/tests/cupti/$program" ] || put tests/cupti "$build/tests/cupti/$program"
done
find "$out" -type f -executable -exec strip -S {} +
du -sh "$out"
