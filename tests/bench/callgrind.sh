#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Instructions per call, counted by callgrind: the figure that repeats. Each operation runs twice
# with different numbers of calls, so that everything but the calls cancels out.
#
#	callgrind.sh BENCH NOP_LIBRARY SHIM_LIBRARY
set -eu

bench=$1 nop=$2 shim=$3
few=100 many=1100

command -v valgrind >/dev/null || { echo "callgrind.sh: no valgrind" >&2; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# instructions LIBRARY GATE OPERATION CALLS
instructions()
{
	env LD_PRELOAD="$1" ARENA_GATE="$2" ARENA_REPORT= valgrind --tool=callgrind \
		--callgrind-out-file="$dir/out" "$bench" count "$3" "$4" 2>"$dir/log" >/dev/null ||
		{ cat "$dir/log" >&2; exit 1; }
	sed -n 's/.*Collected : *\([0-9]*\).*/\1/p' "$dir/log"
}

# per_call LIBRARY GATE OPERATION
per_call()
{
	a=$(instructions "$1" "$2" "$3" $few)
	b=$(instructions "$1" "$2" "$3" $many)
	echo $(((b - a) / (many - few)))
}

printf '%-28s%9s%9s%9s%9s\n' 'instructions per call' direct nop off on
for operation in cuLaunchKernel cuGraphLaunch-1 cuGraphLaunch-10000 cuMemAlloc+Free \
	cuMemAllocAsync+FreeAsync cuMemcpyAsync cuStreamSynchronize; do
	printf '%-28s' "$operation"
	printf '%9s' "$(per_call '' warn "$operation")"
	printf '%9s' "$(per_call "$nop" warn "$operation")"
	printf '%9s' "$(per_call "$shim" off "$operation")"
	printf '%9s\n' "$(per_call "$shim" warn "$operation")"
done
