/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds libcupti: the one that the process has loaded, because two of them in one process get in
 * each other's way; else the system's by its soname; else the toolkit's. What is found stays
 * loaded, as CUPTI does not bear being unloaded. One thread at a time.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cupti/recorder_lib.h"

#define LIBRARY "libcupti.so"
/* Of CUDA 12.6: earlier ones crash with graphs. */
#define VERSION_MIN 24

static const char *const sonames[] = { LIBRARY ".13", LIBRARY ".12" };
static const char *const folders[] = { "lib64", "extras/CUPTI/lib64" };

struct finder {
	const struct recorder_host *host;
	struct recorder_status *out;
	void *handle;
};

static void *open_file(struct finder *f, const char *file, int mode)
{
	f->handle = f->host->dlopen ? f->host->dlopen(file, mode) : dlopen(file, mode);
	if (f->handle)
		snprintf(f->out->library, sizeof(f->out->library), "%s", file);
	return f->handle;
}

static int note_loaded(struct dl_phdr_info *info, size_t size, void *to)
{
	const char *slash = strrchr(info->dlpi_name, '/');
	const char *name = slash ? slash + 1 : info->dlpi_name;

	if (strncmp(name, LIBRARY, sizeof(LIBRARY) - 1) != 0)
		return 0;
	snprintf(to, RECORDER_TEXT_BYTES, "%s", info->dlpi_name);
	return 1;
}

static bool find_loaded(struct finder *f)
{
	char path[RECORDER_TEXT_BYTES] = "";

	dl_iterate_phdr(note_loaded, path);
	return *path && open_file(f, path, RTLD_LAZY | RTLD_NOLOAD);
}

/* What the linker says of the first one that is there and no good is worth more than that the
 * last one is not there. */
static void note_failure(struct finder *f)
{
	const char *why = dlerror();

	if (why && (!*f->out->text || !strstr(why, "No such file")))
		snprintf(f->out->text, sizeof(f->out->text), "%s", why);
}

static bool find_toolkit(struct finder *f)
{
	const char *home = getenv("CUDA_HOME");
	char path[RECORDER_TEXT_BYTES];

	for (unsigned i = 0; i < sizeof(sonames) / sizeof(sonames[0]); i++) {
		if (open_file(f, sonames[i], RTLD_LAZY))
			return true;
		note_failure(f);
	}
	for (unsigned i = 0; home && i < sizeof(folders) / sizeof(folders[0]); i++)
		for (unsigned k = 0; k < sizeof(sonames) / sizeof(sonames[0]); k++) {
			snprintf(path, sizeof(path), "%s/%s/%s", home, folders[i], sonames[k]);
			if (open_file(f, path, RTLD_LAZY))
				return true;
			note_failure(f);
		}
	return false;
}

static const char *look_up(struct finder *f, struct cupti *cupti)
{
	const char *missing = NULL;
	void *p;

#define X(name, needed)                                                                  \
	p = f->host->dlsym ? f->host->dlsym(f->handle, #name) : dlsym(f->handle, #name); \
	cupti->name = (__typeof__(cupti->name))p;                                        \
	if (!p && needed)                                                                \
		missing = #name;
	CUPTI_FUNCTIONS(X)
#undef X
	dlerror(); /* not for the application to find */
	return missing;
}

enum recorder_result library_find(const struct recorder_host *host, struct cupti *cupti,
				  struct recorder_status *out)
{
	struct finder f = { .host = host, .out = out };
	const char *missing;
	CUptiResult rc;

	if (!find_loaded(&f) && !find_toolkit(&f))
		return RECORDER_NO_LIBRARY;
	*out->text = '\0';
	missing = look_up(&f, cupti);
	if (missing) {
		snprintf(out->text, sizeof(out->text), "it has no %s", missing);
		return RECORDER_TOO_OLD;
	}
	rc = cupti->cuptiGetVersion(&out->version);
	if (rc != CUPTI_SUCCESS) {
		out->version = 0;
		out->error = (uint32_t)rc;
		snprintf(out->text, sizeof(out->text), "cuptiGetVersion failed (%u)", out->error);
		return RECORDER_REFUSED;
	}
	if (out->version >= VERSION_MIN)
		return RECORDER_DONE;
	snprintf(out->text, sizeof(out->text), "version %u, at least %u is needed", out->version,
		 VERSION_MIN);
	return RECORDER_TOO_OLD;
}
