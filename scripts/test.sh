#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Set up and run every test that needs no GPU; the last line is "N passed, N failed, N skipped".
#
# Usage: scripts/test.sh [--quick]     --quick: the plain build only, no sanitizers
set -uo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
'' | --quick) ;;
*)
	echo "test: unknown argument '$1': use --quick or nothing" >&2
	exit 2
	;;
esac

scripts/setup.sh || exit 1

# name, then what Meson gets: one question a build, the quick ones first. Device code is compiled
# once. AddressSanitizer at -Og: compiled in half the time, and fewer accesses are gone before it
# sees them; gcc warns of what cannot happen there, so warnings are errors in the other builds.
images=-Dimages=build/ci-plain
builds=("plain|--werror")
[ "${1:-}" = --quick ] || builds+=(
	"asan|$images -Doptimization=g -Db_sanitize=address,undefined -Db_lundef=false"
	"tsan|--werror $images -Db_sanitize=thread -Db_lundef=false"
	"clang|--werror $images -Dfuzz=true"
	"ndebug|--werror $images -Dbuildtype=release -Db_lto=true -Db_ndebug=true"
)

mkdir -p build
logs=()
broken=0
for build in "${builds[@]}"; do
	name=${build%%|*}
	dir=build/ci-$name
	compiler=gcc
	[ "$name" != clang ] || compiler=clang
	echo "== $name =="
	options=${build#*|}
	# Without nvcc, or when the plain build is broken, there are none.
	for image in kernels/arena_kernels.fatbin kernels/decode/decode_kernels.fatbin; do
		[ -f "build/ci-plain/$image" ] || options=${options/"$images"/}
	done
	# shellcheck disable=SC2086 # the options are words
	if [ ! -f "$dir/build.ninja" ] && ! CC=$compiler meson setup "$dir" $options >"$dir.log" 2>&1; then
		tail -n 20 "$dir.log"
		broken=$((broken + 1))
		continue
	fi
	if ! ninja -C "$dir" >"$dir.log" 2>&1; then
		grep -E 'error|warning|FAILED' "$dir.log" | head -n 40
		echo "test: the $name build failed, see $dir.log" >&2
		broken=$((broken + 1))
		continue
	fi
	once=()
	[ "$name" = plain ] || once=(--no-suite once)
	# An older log is of other tests.
	rm -f "$dir/meson-logs/testlog.json"
	meson test -C "$dir" --no-rebuild --print-errorlogs --num-processes "$(nproc)" "${once[@]}" \
		>"$dir.test.log" 2>&1
	if ! grep -q '^Ok: ' "$dir.test.log"; then
		tail -n 5 "$dir.test.log"
		echo "test: the $name tests broke off, see $dir.test.log" >&2
		broken=$((broken + 1))
	fi
	logs+=("$dir/meson-logs/testlog.json")
done

python3 scripts/count-tests.py "$broken" "${logs[@]}"
