#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Run a program several times, with reloads A, B, A in each run, and fail on findings, and on drift:
# what differs from run to run by identities that do not depend on addresses.
#
# Usage: scripts/audit.sh [options] -- program args...
#   --runs N         how many runs (default 3)
#   --out DIR        new or empty folder (default ./audit): run-N/*.jsonl, report.html, report.txt,
#                    junit/*.xml, run-N.log
#   --reload CMD     the program is a server: CMD is run with A, B, A as its last argument, and the
#                    server gets SIGTERM; one that does not exit from there leaves its report without
#                    an end, which is unproven. Without it, the program reloads by itself, and ends
#   --weights A B    what CMD gets (default: A B)
#   --ready CMD      tried until it succeeds, before the reloads
#   --wait SECONDS   longest time until ready, and until the server has stopped (default 600)
#   --fail-on SEV    least severity that fails: info, warn, error (default error)
#   --allow FILE     known findings, as 'arenactl check' takes them
#   --library FILE   the libarena_shim.so (default: that of arenactl)
#   --arenactl PROG  the arenactl to use (default: that of PATH)
#
# The program and CMD get AUDIT_RUN=1, 2, ... in their environment. ARENA_* of the caller is kept.
# Exit: 0 pass, 1 findings, drift, or a program that failed, 2 usage, 3 a report is missing or
# unreadable, 4 unproven.
set -uo pipefail

usage() {
	echo "audit: $1" >&2
	exit 2
}
need() { [ "$1" -ge "$2" ] || usage "$3 needs $4: 'audit.sh --help' lists the options"; }

runs=3 out=audit reload='' ready='' wait=600 fail_on=error allow='' library='' arenactl=arenactl
weights=(A B A)
while [ $# -gt 0 ]; do
	[[ $1 != --?*=* ]] || set -- "${1%%=*}" "${1#*=}" "${@:2}"
	case "$1" in
	--runs | --out | --reload | --ready | --wait | --fail-on | --allow | --library | --arenactl)
		need $# 2 "$1" "a value"
		name=${1#--}
		printf -v "${name//-/_}" %s "$2"
		shift
		;;
	--weights)
		need $# 3 "$1" "two values"
		weights=("$2" "$3" "$2")
		shift 2
		;;
	--help | -h)
		sed -n '3,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
		exit 0
		;;
	--)
		shift
		break
		;;
	-*) usage "unknown option '$1': 'audit.sh --help' lists them" ;;
	*) break ;;
	esac
	shift
done
[ $# -gt 0 ] || usage "no program: audit.sh [options] -- program args..."
[[ $runs =~ ^[1-9][0-9]{0,3}$ ]] || usage "--runs=$runs: give a number from 1 to 9999"
[[ $wait =~ ^[1-9][0-9]{0,5}$ ]] || usage "--wait=$wait: give seconds"
[[ $fail_on =~ ^(info|warn|error)$ ]] || usage "--fail-on=$fail_on: info, warn or error"
[ -z "$allow" ] || [ -e "$allow" ] || usage "--allow=$allow: there is no such file"
[ -n "$reload" ] || [ -z "$ready" ] || usage "--ready is for servers: give --reload as well"
command -v "$arenactl" >/dev/null || usage "no '$arenactl': install it, or give --arenactl=PROG"
command -v "$1" >/dev/null || usage "no program '$1'"
# The list is read before hours of runs; that there is nothing to check is another status.
[ -z "$allow" ] || text=$("$arenactl" check -q "--allow=$allow" /dev/null 2>&1) || [ $? != 2 ] ||
	usage "${text#arenactl check: }"
[[ $out != -* ]] || out=./$out
[ ! -e "$out" ] || [ -z "$(ls -A "$out" 2>/dev/null || echo x)" ] ||
	usage "--out=$out is there, and is no empty folder: reports of two audits would be mixed"
mkdir -p "$out/junit" || usage "--out=$out cannot be made"

status=0
# What is worse stays: 3 a missing report, 1 findings, 4 unproven. Any other status is that of an
# arenactl that broke: what it had to say is missing as well.
worse() {
	local rank=([0]=0 [1]=2 [3]=3 [4]=1) code=$1
	[ -n "${rank[$code]:-}" ] || code=3
	[ "${rank[$code]}" -le "${rank[$status]}" ] || status=$code
}
say() { echo "audit: $1"; }

# ---- a run ----

start() {
	mkdir -p "$out/run-$1"
	exec env AUDIT_RUN="$1" "$arenactl" run ${library:+"--library=$library"} \
		"--report=$out/run-$1/%h-%r-%p.jsonl" -- "${@:2}"
}

# The program as a session of its own: a server's workers are stopped with it.
stop() {
	local left=$wait
	kill -TERM -- "-$1" 2>/dev/null
	while kill -0 -- "-$1" 2>/dev/null; do
		if [ $((left--)) -le 0 ]; then
			say "run $2: the server does not stop within $wait seconds: killed"
			kill -KILL -- "-$1"
			worse 1
			break
		fi
		sleep 1
	done
	wait "$1"
}

until_ready() {
	local left=$wait
	[ -n "$ready" ] || return 0
	until bash -c "$ready" >>"$out/run-$2.log" 2>&1; do
		kill -0 "$1" 2>/dev/null || return 1
		[ $((left--)) -gt 0 ] || return 1
		sleep 1
	done
}

serve() {
	local run=$1 server
	set -m
	(start "$@") >"$out/run-$run.log" 2>&1 &
	server=$!
	set +m
	if until_ready "$server" "$run"; then
		for which in "${weights[@]}"; do
			AUDIT_RUN=$run bash -c "$reload \"\$1\"" reload "$which" >>"$out/run-$run.log" 2>&1 && continue
			say "run $run: the reload of $which failed, see $out/run-$run.log"
			worse 1
			break
		done
	else
		say "run $run: the server was not ready, see $out/run-$run.log"
		worse 1
	fi
	stop "$server" "$run"
}

play() {
	local code
	(start "$@") >"$out/run-$1.log" 2>&1
	code=$?
	[ $code = 0 ] && return
	say "run $1: the program ended with status $code, see $out/run-$1.log"
	worse 1
}

# ---- what came of it ----

xml() { sed 's/&/\&amp;/g;s/</\&lt;/g;s/>/\&gt;/g;s/"/\&quot;/g'; }

check() {
	local code
	"$arenactl" check --format=junit "--fail-on=$fail_on" ${allow:+"--allow=$allow"} \
		"$out/run-$1/"*.jsonl >"$out/junit/check-$1.xml" 2>>"$out/run-$1.log"
	code=$?
	worse $code
	[ $code = 0 ] || say "run $1: findings, or not proven (status $code)"
}

drift() {
	local code text what="run $1 differs from run 1" tag=failure
	text=$("$arenactl" diff --drift --color=no "$out/run-1" "$out/run-$1" 2>&1)
	code=$?
	worse $code
	[ $code -le 1 ] || tag=error what="run $1 cannot be compared with run 1 (status $code)"
	{
		echo '<?xml version="1.0" encoding="UTF-8"?>'
		echo "<testsuite name=\"drift\" tests=\"1\" failures=\"$((code == 1))\"" \
			"errors=\"$((code > 1))\">"
		echo "<testcase classname=\"drift\" name=\"run $1 is as run 1\">"
		[ $code = 0 ] || echo "<$tag message=\"$what\">$(xml <<<"$text")</$tag>"
		echo '</testcase></testsuite>'
	} >"$out/junit/drift-$1.xml"
	[ $code = 0 ] && return
	say "$what:"
	echo "$text"
}

# A page that is not there is missed by somebody: it counts as a report that cannot be read.
tell() {
	local code
	"$arenactl" report "--format=$1" --color=no "${reports[@]}" >"$out/report.$2" \
		2>"$out/report.$2.log"
	code=$?
	if [ $code != 0 ]; then
		worse 3
		say "report.$2 is not whole (status $code): $(head -n 1 "$out/report.$2.log")"
	fi
	[ -s "$out/report.$2.log" ] || rm -f "$out/report.$2.log"
}

for ((run = 1; run <= runs; run++)); do
	if [ -n "$reload" ]; then serve $run "$@"; else play $run "$@"; fi
done
shopt -s nullglob
reports=("$out"/run-*/*.jsonl)
for ((run = 1; run <= runs; run++)); do
	if ! compgen -G "$out/run-$run/*.jsonl" >/dev/null; then
		say "run $run wrote no report: 'arenactl doctor -- $1' says why"
		worse 3
		continue
	fi
	check $run
	[ $run = 1 ] || [ ! -d "$out/run-1" ] || drift $run
done
if [ ${#reports[@]} -gt 0 ]; then
	tell html html
	tell text txt
	grep -qs '"type":"reload"' "${reports[@]}" ||
		say "no reload was told: what moved is found only where a graph was launched after it"
fi
words=([0]=pass [1]=fail [3]="no proof: a report is missing or unreadable" [4]=unproven)
see=''
for file in "$out"/report.txt "$out"/report.html; do
	[ ! -s "$file" ] || see+="${see:+, }$file"
done
say "${words[$status]}: runs $runs, reports ${#reports[@]}${see:+; see $see}"
exit "$status"
