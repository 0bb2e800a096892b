/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What symbolise() makes of frames: symbols [--folders=LIST] PATH BUILD-ID OFFSET...
 * A line for each frame: state, place; then one for each function. A BUILD-ID of - is not known.
 * Notes go to stderr.
 * symbols --name NAME: a name, demangled.
 * symbols --memory NAME: the same, and how large the child that reads may grow. One thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/ctl/command.h"
#include "reports/ctl/symbolise.h"

/* For the help, which comes with the terminal. */
const struct command *const commands[] = { NULL };

static const char *const states[] = {
	[SYMBOL_FOUND] = "found",	    [SYMBOL_OFF] = "off",
	[SYMBOL_NO_FILE] = "no-file",	    [SYMBOL_OTHER_BUILD] = "other-build",
	[SYMBOL_UNREADABLE] = "unreadable", [SYMBOL_NO_NAME] = "no-name",
};

static void print_frames(const struct symbol_frames *f)
{
	printf("%s%s %s\n", states[f->state], f->is_unverified ? " unverified" : "", f->place);
	if (f->why)
		printf("  why: %s\n", f->why);
	for (size_t i = 0; i < f->count; i++) {
		const char *slash = f->at[i].file ? strrchr(f->at[i].file, '/') : NULL;

		printf("  %s%s", f->at[i].function, f->at[i].is_inlined ? " [inlined]" : "");
		if (f->at[i].file)
			printf(" %s:%u", slash ? slash + 1 : f->at[i].file, f->at[i].line);
		putchar('\n');
	}
}

static void print_memory_limit(void)
{
	char line[256] = "";
	FILE *file =
		popen("cat /proc/$(cut -d' ' -f1 /proc/$PPID/task/$PPID/children)/limits", "r");

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, "Max address space", 17) == 0)
			fputs(line, stdout);
	if (file)
		pclose(file);
}

int main(int argc, char **argv)
{
	const char *folders = NULL;

	if (argc > 1 && strncmp(argv[1], "--folders=", 10) == 0) {
		folders = argv[1] + 10;
		argv++;
		argc--;
	}
	symbolise_init(true, folders);
	if (argc == 3)
		printf("%s\n", symbolise_name(argv[2]));
	if (argc == 3 && strcmp(argv[1], "--memory") == 0)
		print_memory_limit();
	for (int i = 3; i < argc; i++) {
		struct symbol_ref ref = { argv[1], argv[2], strtoull(argv[i], NULL, 16) };
		struct symbol_frames frames;

		if (strcmp(argv[2], "-") == 0)
			ref.build_id = NULL;
		symbolise(&ref, &frames);
		print_frames(&frames);
	}
	symbolise_notes("test");
	symbolise_end();
	return 0;
}
