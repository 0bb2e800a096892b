/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings as CSV (RFC 4180, but lines end with LF): numbers in base units.
 *
 * Threads: one.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "out.h"
#include "term.h"

#define DEFAULT_FIELDS                                                                      \
	"file,line,pid,rank,origin,severity,kind,id,layer,subject,old,new,size,execs,refs," \
	"times,kernels,allocated,text"
#define TEXT_MAX 4096

static int print(const struct report_set *set, const struct selection *chosen, const struct args *a,
		 FILE *to)
{
	char text[TEXT_MAX];
	size_t count;
	const struct field **columns = fields_parse(a, ARG_FIELDS, DEFAULT_FIELDS, &count);

	if (!columns)
		return STATUS_USAGE;
	for (size_t k = 0; k < count; k++)
		fprintf(to, "%s%s", k ? "," : "", columns[k]->name);
	fputc('\n', to);
	for (size_t i = 0; i < chosen->count; i++)
		for (size_t k = 0; k < count; k++) {
			const struct field *f = columns[k];

			if (k)
				fputc(',', to);
			if (f->number)
				fprintf(to, "%" PRIu64, f->value(&chosen->v[i]));
			else
				term_csv(to, f->text(&chosen->v[i], text, sizeof(text)));
			if (k + 1 == count)
				fputc('\n', to);
		}
	free(columns);
	return 0;
}

const struct output output_csv = { .name = "csv", .print = print };
