#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A report of more than 200 MB is checked in less than 200 MB of address space: memory does not
# grow with the file.
#
# Usage: large.sh BENCH_REPORT ARENACTL
set -eu
case ${ASAN_OPTIONS-}${TSAN_OPTIONS-} in
?*) exit 77 ;; # a sanitizer needs terabytes of address space
esac
folder=$(mktemp -d -t arena-large-XXXXXX)
trap 'rm -rf "$folder"' EXIT
"$1" "$folder/report.jsonl" 550000
size=$(stat -c %s "$folder/report.jsonl")
[ "$size" -gt 200000000 ] || { echo "the report has $size bytes only"; exit 1; }
code=0
(
	ulimit -v 200000
	exec "$2" check -q "$folder/report.jsonl"
) >"$folder/out" 2>&1 || code=$?
[ $code = 1 ] && grep -q 'fail: .* findings at or above error' "$folder/out" && exit 0
echo "check returned $code, not 1:"
cut -c1-300 "$folder/out" | head
exit 1
