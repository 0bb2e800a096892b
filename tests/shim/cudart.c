/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real CUDA runtime, linked statically or shared, resolves the driver: every name of a hooked
 * family that it asks for is answered with the wrapper of exactly the ABI that it asked for. (What
 * the runtime does with a simulated driver after that is not looked at.)
 */
#include "check.h"
#include "lib_spy.h"

#define CALLS_LEAST	400	/* 440 in CUDA 13.0 */
#define HITS_LEAST	150

int cudaFree(void *p);

static void *driver;

/* @return 1 if the answer is a wrapper. */
static unsigned check_call(const struct spy_call *c)
{
	gpa_v2_fn raw_gpa = (gpa_v2_fn)raw_symbol(driver, "cuGetProcAddress_v2");
	void *raw = NULL;
	int rc = raw_gpa(c->symbol, &raw, c->version, c->flags, NULL);

	CHECK(rc == c->rc, "%s %d %lu: rc %d, the driver says %d", c->symbol, c->version, c->flags,
	      c->rc, rc);
	if (rc != 0 || !raw)
		return 0;
	/* (The spy would answer for the wrapper of cuGetProcAddress itself.) */
	CHECK(c->answer == expected_for(driver, c->symbol, raw) ||
		      strcmp(c->symbol, "cuGetProcAddress") == 0,
	      "%s %d %lu: answered %s", c->symbol, c->version, c->flags, object_of(c->answer));
	CHECK(!is_base(c->symbol) || in_shim(c->answer), "%s %d %lu: is in %s", c->symbol,
	      c->version, c->flags, object_of(c->answer));
	return in_shim(c->answer);
}

int main(void)
{
	const struct spy_call *calls = dlsym(RTLD_DEFAULT, "spy_calls");
	const unsigned *count = dlsym(RTLD_DEFAULT, "spy_count");
	unsigned hits = 0;

	driver = dlopen("libcuda.so.1", RTLD_LAZY);
	if (!driver || !calls || !count) {
		fprintf(stderr, "no driver, or no spy\n");
		return EXIT_FAILURE;
	}
	cudaFree(NULL);
	for (unsigned i = 0; i < *count; i++)
		hits += check_call(&calls[i]);
	printf("the runtime asked %u times, %u answers are wrappers\n", *count, hits);
	CHECK(*count >= CALLS_LEAST, "%u calls", *count);
	CHECK(hits >= HITS_LEAST, "%u hits", hits);
	return check_result();
}
