/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: the C twins of maintain.cu, which are its specification (maintain.h). Threads: any; blocks
 * of one grid one after another.
 */
#include <string.h>

#include "kernels/maintain.h"

static uint8_t *at(uint64_t address)
{
	return (uint8_t *)(uintptr_t)address;
}

void zero_twin(const struct publish_grid *g, uint32_t block, uint32_t blocks)
{
	struct publish_run r = publish_run(g->tiles, block, blocks);

	for (uint32_t i = publish_find(g->ops, g->count, r.begin); r.begin < r.end; i++) {
		struct publish_piece p = publish_piece(&g->ops[i], &r);

		memset(at(p.dst), 0, p.bytes);
	}
}

/* The words of @p, which begins at word @position. */
static uint64_t sum_words(const struct publish_piece *p, uint64_t position)
{
	uint64_t sum = 0;

	for (uint64_t done = 0; done < p->bytes; done += 8) {
		uint64_t left = p->bytes - done, word = 0;

		memcpy(&word, at(p->src + done), left < 8 ? left : 8);
		sum += fingerprint_word(word, position++);
	}
	return sum;
}

void fingerprint_twin(const struct publish_grid *g, uint32_t block, uint32_t blocks, uint64_t *out)
{
	struct publish_run r = publish_run(g->tiles, block, blocks);

	for (uint32_t i = publish_find(g->ops, g->count, r.begin); r.begin < r.end; i++) {
		struct publish_piece p = publish_piece(&g->ops[i], &r);

		out[i] += sum_words(&p, (p.src - g->ops[i].src) / 8);
	}
}

void compare_twin(const struct publish_grid *g, uint32_t block, uint32_t blocks, uint64_t *out)
{
	struct publish_run r = publish_run(g->tiles, block, blocks);

	for (uint32_t i = publish_find(g->ops, g->count, r.begin); r.begin < r.end; i++) {
		struct publish_piece p = publish_piece(&g->ops[i], &r);
		uint64_t from = p.src - g->ops[i].src, n = 0;

		while (n < p.bytes && *at(p.dst + n) == *at(p.src + n))
			n++;
		if (n < p.bytes && from + n < out[i])
			out[i] = from + n;
	}
}

static void scan_word(struct scan_job *job, uint64_t address, uint64_t word)
{
	const struct scan_range *ranges = (const void *)at(job->ranges);
	struct scan_hit *hits = (void *)at(job->hits);

	if (word - job->lowest >= job->highest - job->lowest ||
	    !scan_points(ranges, job->ranges_count, word))
		return;
	if (job->found++ < job->cap)
		hits[job->found - 1] = (struct scan_hit){ address, word };
}

void scan_twin(const struct publish_grid *g, uint32_t block, uint32_t blocks, struct scan_job *job,
	       const uint64_t *far)
{
	struct publish_run r = publish_run(g->tiles, block, blocks);

	for (uint32_t i = publish_find(g->ops, g->count, r.begin); r.begin < r.end; i++) {
		struct publish_piece p = publish_piece(&g->ops[i], &r);

		for (uint64_t n = 0; n + 8 <= p.bytes; n += 8) {
			uint64_t word;

			memcpy(&word, at(p.src + n), 8);
			scan_word(job, p.src + n + (far != NULL ? far[i] : 0), word);
		}
	}
}
