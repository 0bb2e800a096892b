/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A report with many refs, written as the library writes it: bench_report FILE [REFS].
 * Budget: 1,000,000 refs in 2 s (design.md section 6).
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "arena/intern.h"
#include "reports/write.h"

#define REFS_PER_FINDING 4096 /* as many as one finding lists */

static struct finding_ref refs[REFS_PER_FINDING];

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void make_refs(void)
{
	static const char kernel[] =
		"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEEEEviT0_";
	uint32_t name = intern(kernel);

	for (uint32_t i = 0; i < REFS_PER_FINDING; i++) {
		uint64_t base = 0x7f0000000000 + (uint64_t)i * 0x10000;

		refs[i] = (struct finding_ref){
			.exec_serial = i % 16 + 1,
			.node = i,
			.name = name,
			.param = (uint16_t)(i % 8),
			.confidence = CONFIDENCE_EXACT,
			.reason = STALE_GENERATION,
			.value = base + 64,
			.old = { base, 0x10000, i + 1, RANGE_DEVICE, 0, 0 },
			.now = { base, 0x8000, i + 9000, RANGE_DEVICE, 0, 0 },
		};
	}
}

int main(int argc, char **argv)
{
	uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000, written = 0;
	struct report_source source = { .version = "bench",
					.library = "none",
					.unwinder = "libunwind" };
	struct finding f = {
		.kind = FINDING_STALE_LAUNCH,
		.time_ns = 1,
		.refs_total = REFS_PER_FINDING,
		.refs_count = REFS_PER_FINDING,
		.refs = refs,
	};
	double begin;

	if (argc < 2) {
		fprintf(stderr, "usage: bench_report FILE [REFS]\n");
		return 2;
	}
	source.path = argv[1];
	source.quiet = true;
	make_refs();
	report_init(&source);
	begin = now_s();
	for (uint64_t n = 1; written < count; n++) {
		f.id = f.key = n;
		f.exec_serial = n;
		report_finding(&f);
		written += REFS_PER_FINDING;
	}
	report_exit();
	printf("%llu refs written in %.2f s\n", (unsigned long long)written, now_s() - begin);
	return 0;
}
