#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How long a report with 1,000,000 refs takes to write and to check, in how much memory.
#
# Usage: report.sh BENCH_REPORT ARENACTL
set -eu
folder=$(mktemp -d -t arena-bench-XXXXXX)
trap 'rm -rf "$folder"' EXIT
"$1" "$folder/report.jsonl" 1000000
size=$(stat -c %s "$folder/report.jsonl")
begin=$(date +%s%N)
code=0
"$2" check -q "$folder/report.jsonl" >"$folder/out" || code=$?
end=$(date +%s%N)
[ $code = 1 ] || { cat "$folder/out"; echo "check returned $code, not 1"; exit 1; }
echo "$((size / 1000000)) MB checked in $(((end - begin) / 10000000)) hundredths of a second"
