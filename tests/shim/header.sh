#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compile the public header's test in one way, then run it without and with the library.
#
#	header.sh SHIM ROOT SOURCE COMPILER [FLAG...]
set -eu
shim=$(realpath "$1") root=$2 source=$3
shift 3
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$@" -Wall -Wextra -Wpedantic -Wshadow -Wundef -Werror "-I$root" "$source" -o "$out/header"

expect() {
	[ "$2" = "$1" ] || { echo "said '$2', not '$1'" >&2; exit 1; }
}
expect '0 1 -1' "$("$out/header")"
case $(readelf -d "$shim") in
*asan* | *tsan*) exit 0 ;;
esac
expect '1 1 -2' "$(LD_PRELOAD=$shim "$out/header")"
