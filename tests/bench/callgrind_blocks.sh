#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Instructions per block event, counted by callgrind. Each kind runs twice with different numbers of
# events, so that everything but the events cancels out.
#
#	callgrind_blocks.sh BENCH SHIM DIRECTORY_OF_DRIVER
set -eu

bench=$1 shim=$2 driver=$3
few=1000 many=11000

command -v valgrind >/dev/null || { echo "callgrind_blocks.sh: no valgrind" >&2; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# instructions KIND LIVE PAIRS
instructions()
{
	LD_PRELOAD=$preload LD_LIBRARY_PATH=$driver ARENA_REPORT=$dir/report \
		valgrind --tool=callgrind --callgrind-out-file="$dir/out" \
		"$bench" count "$1" "$2" "$3" 2>"$dir/log" >/dev/null || { cat "$dir/log" >&2; exit 1; }
	sed -n 's/.*Collected : *\([0-9]*\).*/\1/p' "$dir/log"
}

for preload in '' "$shim"; do
	printf '%-28s%9s%9s%9s\n' "instructions per event${preload:+, shim}" 1 1000 100000
	for kind in same stack random grow decode; do
		printf '%-28s' "$kind"
		for live in 1 1000 100000; do
			a=$(instructions $kind $live $few)
			b=$(instructions $kind $live $many)
			printf '%9s' $(((b - a) / (many - few) / 2))
		done
		printf '\n'
	done
done
