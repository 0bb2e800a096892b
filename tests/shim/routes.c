/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every row of hooks.def by every route: ELF binding, dlsym and dlvsym on the driver's handle,
 * both generations of cuGetProcAddress at its own, earlier and later versions with all flags.
 *
 * The oracle for versions is the driver itself, asked past the shim: the same result and status,
 * and its pointer translated to the wrapper of exactly that export, or untouched.
 *
 *	routes [rows]	rows: least number of rows that the driver must export (default: all)
 */
#include "check.h"

/* Addresses as the dynamic linker binds them for a program that is linked against libcuda. */
#define HOOK(base, suffix, since, stream, family, kind, doc, params, args)                    \
	void base##suffix##stream(void);
#include "shim/hooks.def"
#undef HOOK
static void *const linked[] = {
#define HOOK(base, suffix, since, stream, family, kind, doc, params, args)                    \
	(void *)base##suffix##stream,
#include "shim/hooks.def"
#undef HOOK
};

static void *driver;
static char untouched;	/* what an answer holds if the driver leaves it alone */

static void route_elf(const struct row *row)
{
	void *wrapper = wrapper_of(row->symbol);

	CHECK(in_shim(wrapper), "%s: lies in %s", row->symbol, object_of(wrapper));
	CHECK(linked[row - rows] == wrapper, "%s: linked to %s", row->symbol,
	      object_of(linked[row - rows]));
	CHECK(dlsym(RTLD_DEFAULT, row->symbol) == wrapper, "%s: RTLD_DEFAULT", row->symbol);
}

static void route_dlsym(const struct row *row)
{
	void *raw = raw_symbol(driver, row->symbol);
	void *expected = raw ? wrapper_of(row->symbol) : NULL;
	void *answer = dlsym(driver, row->symbol);

	CHECK(answer == expected, "%s: dlsym answers %s", row->symbol, object_of(answer));
	CHECK(answer || dlerror(), "%s: absent, but no error", row->symbol);
	CHECK(dlvsym(driver, row->symbol, "LIBCUDA_NONE") == expected ||
		      !dlvsym(driver, row->symbol, "LIBCUDA_NONE"),
	      "%s: dlvsym", row->symbol);
}

/* At the version where the ABI was introduced, exactly its wrapper. */
static void route_since(const struct row *row)
{
	gpa_v2_fn gpa = (gpa_v2_fn)dlsym(driver, "cuGetProcAddress_v2");
	void *p = NULL, *wrapper = wrapper_of(row->symbol);
	int rc, status = -1;

	if (!gpa || !raw_symbol(driver, row->symbol))
		return;
	rc = gpa(row->base, &p, (int)row->since,
		 row->per_thread ? FLAGS_PER_THREAD : FLAGS_LEGACY, &status);
	CHECK(rc == 0 && status == 0 && p == wrapper, "%s at %u: rc %d status %d %s", row->symbol,
	      row->since, rc, status, object_of(p));
	p = NULL;
	rc = gpa(row->base, &p, (int)row->since,
		 row->per_thread ? FLAGS_PER_THREAD : FLAGS_DEFAULT, NULL);
	CHECK(rc == 0 && p == wrapper, "%s at %u without status: rc %d %s", row->symbol,
	      row->since, rc, object_of(p));
}

static void same_v2(const char *base, int version, unsigned long flags)
{
	gpa_v2_fn gpa = (gpa_v2_fn)dlsym(driver, "cuGetProcAddress_v2");
	gpa_v2_fn raw_gpa = (gpa_v2_fn)raw_symbol(driver, "cuGetProcAddress_v2");
	void *p = &untouched, *raw = &untouched;
	int status = -1, raw_status = -1, rc, raw_rc;

	if (!raw_gpa)
		return;
	rc = gpa(base, &p, version, flags, &status);
	raw_rc = raw_gpa(base, &raw, version, flags, &raw_status);
	CHECK(!in_shim(raw), "%s %d %lu: the oracle is no driver", base, version, flags);
	CHECK(rc == raw_rc && status == raw_status, "%s %d %lu: rc %d/%d status %d/%d", base,
	      version, flags, rc, raw_rc, status, raw_status);
	CHECK(p == expected_for(driver, base, raw),
	      "%s %d %lu: answers %s", base, version, flags, object_of(p));
}

static void same_v1(const char *base, int version, unsigned long flags)
{
	gpa_v1_fn gpa = (gpa_v1_fn)dlsym(driver, "cuGetProcAddress");
	gpa_v1_fn raw_gpa = (gpa_v1_fn)raw_symbol(driver, "cuGetProcAddress");
	void *p = &untouched, *raw = &untouched;
	int rc, raw_rc;

	if (!raw_gpa)
		return;
	rc = gpa(base, &p, version, flags);
	raw_rc = raw_gpa(base, &raw, version, flags);
	CHECK(rc == raw_rc, "%s %d %lu: rc %d/%d", base, version, flags, rc, raw_rc);
	CHECK(p == expected_for(driver, base, raw),
	      "%s %d %lu: v1 answers %s", base, version, flags, object_of(p));
}

static void all_versions(const char *base, unsigned since)
{
	const int versions[] = { 0,    1000,  (int)since - 1, (int)since, (int)since + 1, 3020,
				 7000, 11030, 11080,	      12000,	  13000,	  14000,
				 99999 };

	for (size_t v = 0; v < sizeof(versions) / sizeof(versions[0]); v++) {
		for (unsigned long flags = FLAGS_DEFAULT; flags <= FLAGS_PER_THREAD; flags++) {
			same_v2(base, versions[v], flags);
			same_v1(base, versions[v], flags);
		}
	}
}

/* cuGetProcAddress, asked for through itself, is the shim's own at both generations. */
static void asked_for_itself(void)
{
	gpa_v2_fn gpa = (gpa_v2_fn)dlsym(driver, "cuGetProcAddress_v2");
	void *v1 = NULL, *v2 = NULL;

	if (!gpa)
		return;
	gpa("cuGetProcAddress", &v1, 11030, FLAGS_DEFAULT, NULL);
	gpa("cuGetProcAddress", &v2, 12000, FLAGS_DEFAULT, NULL);
	CHECK(v1 == wrapper_of("cuGetProcAddress"), "at 11030: %s", object_of(v1));
	CHECK(v2 == wrapper_of("cuGetProcAddress_v2"), "at 12000: %s", object_of(v2));
}

int main(int argc, char **argv)
{
	size_t least = argc > 1 ? strtoul(argv[1], NULL, 10) : ROWS, present = 0;
	static const char *const strangers[] = { "", "cu", "cuNoSuchThing", "cuMemAlloc_v2",
						 "cuGraphLaunch_ptsz", "cuDeviceGetCount",
						 "cuGetExportTable", "memcpy" };

	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver) {
		fprintf(stderr, "no driver: %s\n", dlerror());
		return EXIT_FAILURE;
	}
	for (const struct row *row = rows; row < rows + ROWS; row++) {
		present += raw_symbol(driver, row->symbol) != NULL;
		route_elf(row);
		route_dlsym(row);
		route_since(row);
		all_versions(row->base, row->since);
	}
	for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++)
		all_versions(strangers[i], 2000);
	asked_for_itself();
	/* From here on there is a report; the runner reads in it what was not translated. */
	CHECK(((int (*)(unsigned))wrapper_of("cuInit"))(0) == 0, "cuInit");
	CHECK(present >= least, "the driver exports %zu of %zu rows", present, ROWS);
	printf("%zu rows, %zu in this driver\n", ROWS, present);
	return check_result();
}
