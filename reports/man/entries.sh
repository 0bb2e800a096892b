#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The page arena-entries(7) with its lists: entries.sh ARENACTL PAGE.scd SCDOC >PAGE
set -e

fill() {
	while IFS= read -r line; do
		case $line in
		@HOOKED@) "$1" entries --hooked --format=scd ;;
		@UNHOOKED@) "$1" entries --unhooked --format=scd ;;
		*) printf '%s\n' "$line" ;;
		esac
	done <"$2"
}

fill "$1" "$2" | "$3"
