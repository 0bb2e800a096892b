#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Run everything that needs a real GPU; a table of results comes last.
#
# Usage: scripts/gpu-test.sh [BUILD_DIR [SECTION...]]
#
# BUILD_DIR (default build/gpu) is built here if it is missing; one that was built elsewhere and
# carried here is used as it is. Sections: victims slots a20 stock faulty measure cupti cupti_times client python
# blocks blocks_times kernels engine two (default: all).
# With $OUT set, the log, the figures and the reports are left there.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

build=${1:-build/gpu}
[ $# -eq 0 ] || shift
toolkit=${CUDA_HOME:-/usr/local/cuda}
PATH=$PATH:$toolkit/bin

if [ ! -e /dev/nvidia0 ] && ! command -v nvidia-smi >/dev/null; then
	echo "gpu-test: no GPU here: run scripts/test.sh, which needs none"
	exit 77
fi
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null

if [ ! -e "$build/shim/libarena_shim.so" ]; then
	scripts/setup.sh --build-only && meson setup "$build" && ninja -C "$build" || exit 1
fi

# The runtime builds of case A20 are left out of a build that was made without nvcc.
for kind in static shared; do
	story=$build/tests/victims/a20_story_$kind
	[ -x "$story" ] || ! command -v nvcc >/dev/null ||
		nvcc -cudart $kind -arch=native -o "$story" tests/victims/a20_story.cu
done

exec python3 tests/gpu/run.py "$build" "$@"
