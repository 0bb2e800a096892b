#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Programs that never touch CUDA: with the shim preloaded they end with the same status and print
# the same, and no file appears.
#
#	matrix.sh SHIM [CACHE] GCC
set -u
shim=$(realpath "$1")
shift
# A cache of compilations keeps files of its own.
case ${1##*/} in ccache | sccache) shift ;; esac
cc=$1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/work" && cd "$dir/work" || exit 1
echo 'int main(void) { return 3; }' >"$dir/three.c"
"$cc" -static -o "$dir/static" "$dir/three.c" 2>/dev/null || "$cc" -o "$dir/static" "$dir/three.c"
failed=0 ran=0

# @param name, then the command
same()
{
	name=$1
	shift
	command -v "$1" >/dev/null || { echo "$name: not here, left out"; return; }
	ran=$((ran + 1))
	"$@" >"$dir/out.0" 2>"$dir/err.0" </dev/null
	status=$?
	LD_PRELOAD="${ARENA_TEST_PRELOAD:+$ARENA_TEST_PRELOAD:}$shim" \
		"$@" >"$dir/out.1" 2>"$dir/err.1" </dev/null
	shimmed=$?
	if [ $status -ne $shimmed ]; then
		echo "$name: status $shimmed, $status without the shim"
	elif ! cmp -s "$dir/out.0" "$dir/out.1" || ! cmp -s "$dir/err.0" "$dir/err.1"; then
		echo "$name: prints something else:"
		diff "$dir/out.0" "$dir/out.1"
		diff "$dir/err.0" "$dir/err.1"
	elif [ -n "$(ls -A)" ]; then
		echo "$name: leaves $(ls -A) behind"
	else
		return
	fi
	failed=$((failed + 1))
}

same true true
same false false
same sh sh -c 'exit 7'
same 'sh killed' sh -c 'kill -9 $$'
same 'sh with children' sh -c 'echo a | cat | wc -c; (exit 4)'
same bash bash -c 'exit 9'
same 'python -S' python3 -S -c 'import sys; print(1); sys.exit(5)'
same python python3 -c 'import ctypes, subprocess; print(subprocess.call(["sh", "-c", "exit 6"]))'
same 'python fork' python3 -c 'import os; p = os.fork() or os._exit(3); print(os.waitpid(p, 0)[1])'
same 'compiler' "$cc" -o "$dir/three" "$dir/three.c"
same 'compiler, error' "$cc" -o "$dir/three" "$dir/none.c"
same ptxas ptxas --version
same cuobjdump cuobjdump --version
same nvcc nvcc --version
same ldconfig /sbin/ldconfig -N -X -p
same env sh -c 'env | grep -v ^LD_PRELOAD='
same 'static program' "$dir/static"
same 'missing program' sh -c "$dir/none"

echo "$ran programs, $failed differ"
[ $ran -gt 8 ] && [ $failed -eq 0 ]
