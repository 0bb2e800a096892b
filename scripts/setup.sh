#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Install what building and testing need (Debian, Ubuntu). The CUDA toolkit is not installed here.
#
# Usage: scripts/setup.sh [--build-only]
set -euo pipefail

packages=(gcc meson ninja-build pkg-config libdw-dev libjansson-dev python3 scdoc zlib1g-dev)
optional=()	# what tests are skipped without, where the distribution does not have it
case "${1:-}" in
'') packages+=(clang clang-format libclang-rt-dev libcriterion-dev libunwind-dev
	python3-jsonschema valgrind binutils)
	optional+=(chromium python3-torch) ;;
--build-only) ;;
*)
	echo "setup: unknown argument '$1': use --build-only or nothing" >&2
	exit 2
	;;
esac

toolkit=${CUDA_HOME:-/usr/local/cuda}
if [ ! -f "$toolkit/include/cuda.h" ]; then
	echo "setup: no CUDA toolkit at $toolkit: install CUDA 13 or set CUDA_HOME" >&2
	exit 1
fi

installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

missing=()
for p in "${packages[@]}"; do
	installed "$p" || missing+=("$p")
done
wanted=()
for p in "${optional[@]}"; do
	installed "$p" || wanted+=("$p")
done
[ ${#missing[@]} -gt 0 ] || [ ${#wanted[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
	[ ${#missing[@]} -gt 0 ] || exit 0
	echo "setup: no apt-get here: install ${missing[*]} by hand" >&2
	exit 1
fi
root=()
[ "$(id -u)" = 0 ] || root=(sudo)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"${root[@]}" apt-get update -qq >"$log" 2>&1 || true
for p in "${wanted[@]}"; do
	! apt-cache show "$p" >/dev/null 2>&1 || missing+=("$p")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if ! DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq "${missing[@]}" >>"$log" 2>&1; then
	echo "setup: apt-get could not install ${missing[*]}; the end of its log:" >&2
	tail -n 5 "$log" >&2
	exit 1
fi
