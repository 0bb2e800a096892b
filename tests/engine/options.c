/* SPDX-License-Identifier: Apache-2.0 */
/* Job: the command line, by one table. One thread. */
#include "tests/engine/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/family.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

static const struct family *const families[] = {
	&family_dense, &family_gptq_marlin, &family_gpt_oss, &family_nvfp4_moe,
	&family_mla,   &family_fp8_moe,	    &family_b12x,    &family_rdna3,
};

static const struct {
	const char *name, *value, *doc;
} rows[] = {
	{ "--family", "F", "which model; --list names them" },
	{ "--storage", "naive|copied|arena", "how storage is kept over reloads (naive)" },
	{ "--reloads", "N", "after the cold load: B, A, B, ... (0)" },
	{ "--tokens", "N", "of each sequence, up to 64 (6)" },
	{ "--seed", "N", "of checkpoint A; that of B is the next (1)" },
	{ "--config", "NAME=N,...", "sizes of checkpoints by seed; the names are below" },
	{ "--checkpoint-a", "FILE", "read A from this safetensors file, not by seed" },
	{ "--checkpoint-b", "FILE", "the same for B" },
	{ "--write-a", "FILE", "write checkpoint A to this file, and end" },
	{ "--write-b", "FILE", "the same for B" },
	{ "--fail-at", "LAYER",
	  "the first reload fails in it, before its commit; last: embedding" },
	{ "--omit", "SOURCE", "reloads do not get this tensor of the checkpoint" },
	{ "--keep", "TENSOR", "with copied: reloads leave this one of each layer alone" },
	{ "--partial", NULL, "reloads bring layer 0 only, and say so; a cold load: layer 0 of B" },
	{ "--mistakes", NULL,
	  "with arena: post-load processing errs in values as the naive one does" },
	{ "--lazy", NULL, "scratch and objects are made at the first forward" },
	{ "--pressure", NULL, "after a reload something else takes the freed memory" },
	{ "--careless", NULL, "go on serving whatever a reload's end said" },
	{ "--silent", NULL, "do not use the library's interface: nothing is bound or committed" },
	{ "--derived", NULL, "print what post-load processing makes, and end" },
	{ "--list", NULL, "print the families" },
	{ "--help", NULL, "print this" },
};

static void help(void)
{
	printf("usage: engine --family=F [OPTION...]\n");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		printf("  %s%s%-*s %s\n", rows[i].name, rows[i].value ? "=" : " ",
		       (int)(27 - strlen(rows[i].name)), rows[i].value ? rows[i].value : "",
		       rows[i].doc);
	printf("Sizes, which a file says in its metadata:\n");
	for (int i = 0; i < SIZES; i++)
		printf("  %-29s a multiple of %u from %u to %u (%u)\n", sizes[i].name,
		       sizes[i].step, sizes[i].least, sizes[i].most, sizes[i].usual);
	exit(0);
}

static void list(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(families); i++)
		printf("%-12s %s\n", families[i]->name, families[i]->summary);
	exit(0);
}

static const struct family *family_of(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(families); i++)
		if (!strcmp(families[i]->name, name))
			return families[i];
	engine_die(2, "there is no family '%s': --list names them", name);
}

/* copied: the repair without an arena, each value is copied into its old storage. */
static void set_storage(struct options *o, const char *value)
{
	o->arena = !strcmp(value, "arena");
	o->copied = !strcmp(value, "copied");
	if (!o->arena && !o->copied && strcmp(value, "naive"))
		engine_die(2, "--storage=%s: it is naive, copied or arena", value);
}

static long number(const char *name, const char *value, long least, long most)
{
	char *rest;
	long n;

	errno = 0;
	n = strtol(value, &rest, 10);
	if (errno || rest == value || *rest || n < least || n > most)
		engine_die(2, "%s=%s: it is a number from %ld to %ld", name, value, least, most);
	return n;
}

/* @return whether it is an option that takes a text as it is. */
static bool set_text(struct options *o, const char *name, const char *value)
{
	const struct {
		const char *name, **to;
	} texts[] = {
		{ "--checkpoint-a", &o->read[0] },
		{ "--checkpoint-b", &o->read[1] },
		{ "--config", &o->config },
		{ "--keep", &o->keep },
		{ "--omit", &o->omit },
		{ "--write-a", &o->write[0] },
		{ "--write-b", &o->write[1] },
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (!strcmp(name, texts[i].name)) {
			*texts[i].to = value;
			return true;
		}
	return false;
}

static void set(struct options *o, const char *name, const char *value)
{
	if (set_text(o, name, value))
		return;
	if (!strcmp(name, "--family"))
		o->family = family_of(value);
	else if (!strcmp(name, "--storage"))
		set_storage(o, value);
	else if (!strcmp(name, "--reloads"))
		o->reloads = (int)number(name, value, 0, 100000);
	else if (!strcmp(name, "--tokens"))
		o->tokens = (int)number(name, value, 1, POSITIONS);
	else if (!strcmp(name, "--seed"))
		o->seed = (uint64_t)number(name, value, 0, 1 << 30);
	else if (!strcmp(name, "--fail-at"))
		o->fail_at = (int)number(name, value, 0, LAYERS_MAX);
	else if (!strcmp(name, "--partial"))
		o->partial = true;
	else if (!strcmp(name, "--mistakes"))
		o->mistakes = true;
	else if (!strcmp(name, "--lazy"))
		o->lazy = true;
	else if (!strcmp(name, "--pressure"))
		o->pressure = true;
	else if (!strcmp(name, "--careless"))
		o->careless = true;
	else if (!strcmp(name, "--silent"))
		o->silent = true;
	else if (!strcmp(name, "--derived"))
		o->derived = true;
	else if (!strcmp(name, "--list"))
		list();
	else
		help();
}

/* "--name=value" or "--name value"; @return how many arguments it took. */
static int option(struct options *o, char **argv)
{
	size_t length = strcspn(argv[0], "=");
	const char *value = argv[0][length] ? argv[0] + length + 1 : NULL;
	size_t i;

	if (!strcmp(argv[0], "-h"))
		help();
	for (i = 0; i < ARRAY_SIZE(rows); i++)
		if (strlen(rows[i].name) == length && !strncmp(rows[i].name, argv[0], length))
			break;
	if (i == ARRAY_SIZE(rows))
		engine_die(2, "unknown argument '%s': --help lists them", argv[0]);
	if (!rows[i].value && value)
		engine_die(2, "%s takes no value", rows[i].name);
	if (!rows[i].value || (value && *value)) {
		set(o, rows[i].name, value);
		return 1;
	}
	if (value || !argv[1] || !*argv[1])
		engine_die(2, "%s needs a value: %s=%s", rows[i].name, rows[i].name, rows[i].value);
	set(o, rows[i].name, argv[1]);
	return 2;
}

/* What is said of a reload, and there is none. */
static void check_reloads(const struct options *o)
{
	if (o->reloads > 0)
		return;
	if (o->fail_at >= 0)
		engine_die(2, "--fail-at=%d needs --reloads: a reload fails, not the cold load",
			   o->fail_at);
	if (o->omit || o->keep)
		engine_die(2, "%s=%s needs --reloads: the cold load is whole",
			   o->omit ? "--omit" : "--keep", o->omit ? o->omit : o->keep);
}

void options_read(int argc, char **argv, struct options *out)
{
	*out = (struct options){ .tokens = 6, .seed = 1, .fail_at = -1 };
	for (int i = 1; i < argc;)
		i += option(out, argv + i);
	if (!out->family)
		engine_die(2, "--family is missing: --list names them");
	if (out->silent && out->arena)
		engine_die(2, "--silent with --storage=arena: an arena is the library's interface");
	if (out->mistakes && !out->arena)
		engine_die(2,
			   "--mistakes is for --storage=arena: without one they are made anyway");
	if (out->keep && !out->copied)
		engine_die(2, "--keep=%s is for --storage=copied", out->keep);
	if (out->partial && out->fail_at > 0)
		engine_die(2, "--fail-at=%d with --partial: only layer 0 is reloaded",
			   out->fail_at);
	if (out->config && (out->read[0] || out->read[1]))
		engine_die(2, "--config=%s with a file: it says its sizes itself", out->config);
	check_reloads(out);
}
