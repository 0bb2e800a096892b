/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 5,000 seeded mutations of entry-point names, looked up by dlsym and cuGetProcAddress, against an
 * oracle that compares strings one by one and asks the driver past the shim.
 *
 *	mutations [seed]
 */
#include "check.h"

#include <stdint.h>

#define MUTATIONS	5000

static uint64_t state;

static uint32_t draw(uint32_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 33) % below;
}

/* One small change; about a tenth of the names stay what they were. */
static void mutate(char *name, size_t room)
{
	static const char *const tails[] = { "", "_v2", "_v3", "_ptsz", "_ptds", "_v2_ptsz", " " };
	size_t length = strlen(name), at = draw((uint32_t)length);

	switch (draw(6)) {
	case 0:
		name[at] ^= (char)(1u << draw(5));
		break;
	case 1:
		memmove(name + at, name + at + 1, length - at);
		break;
	case 2:
		memmove(name + at + 1, name + at, length - at + 1);
		break;
	case 3:
		name[at] = '\0';
		break;
	default:
		strncat(name, tails[draw(sizeof(tails) / sizeof(tails[0]))], room - length - 1);
	}
}

static void compare(void *driver, const char *name)
{
	gpa_v2_fn gpa = (gpa_v2_fn)dlsym(driver, "cuGetProcAddress_v2");
	gpa_v2_fn raw_gpa = (gpa_v2_fn)raw_symbol(driver, "cuGetProcAddress_v2");
	void *raw = raw_symbol(driver, name), *answer = dlsym(driver, name), *p = NULL, *raw_p = NULL;
	int rc, raw_rc, status = -1, raw_status = -1;

	CHECK(answer == (raw && row_of_symbol(name) ? wrapper_of(name) : raw),
	      "dlsym(\"%s\") answers %s", name, object_of(answer));
	rc = gpa(name, &p, 13000, FLAGS_DEFAULT, &status);
	raw_rc = raw_gpa(name, &raw_p, 13000, FLAGS_DEFAULT, &raw_status);
	CHECK(rc == raw_rc && status == raw_status, "cuGetProcAddress(\"%s\"): %d/%d %d/%d", name,
	      rc, raw_rc, status, raw_status);
	CHECK(p == expected_for(driver, name, raw_p), "cuGetProcAddress(\"%s\") answers %s", name,
	      object_of(p));
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 20240611;
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	unsigned hits = 0;
	char name[128];

	printf("seed %llu\n", (unsigned long long)seed);
	state = seed * 2654435761u + 1;
	if (!driver) {
		fprintf(stderr, "no driver: %s\n", dlerror());
		return EXIT_FAILURE;
	}
	for (int i = 0; i < MUTATIONS; i++) {
		snprintf(name, sizeof(name), "%s", rows[draw(ROWS)].symbol);
		mutate(name, sizeof(name));
		hits += row_of_symbol(name) != NULL;
		compare(driver, name);
	}
	CHECK(hits > MUTATIONS / 100 && hits < MUTATIONS / 2, "%u of the names exist", hits);
	return check_result();
}
