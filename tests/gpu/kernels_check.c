/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Job: each derivation (kernels/kernels.def) as a kernel against its C twin, then what it takes.
 *
 *	kernels_check [small|large] [SEED]
 *
 * Random shapes and contents, launched as on devices with less shared memory or none to spare,
 * with grids of 1, 7 and many blocks, addresses with no more alignment than needed. Results have
 * to be the twin's bit for bit, with what the kernel leaves alone, and so do the bytes on both
 * sides of them. small: for the simulated driver, where the twin is what runs and only the way
 * there is tested, and for compute-sanitizer. One line a kernel. Exit: 0 all equal, 1 not, 77 no
 * machine code for this device. Threads: one.
 */
#include "kernels_check.h"

#include <string.h>

#include "tests/unit/seed.h"

#define MARGIN	     256 /* bytes on both sides of a range, checked with it */
#define ROUNDS_SMALL 12
#define ROUNDS_LARGE 40

static CUmodule module;
static struct derive_chip chip;

CUfunction kernel_function(const char *name)
{
	CUfunction f;

	CK(cuModuleGetFunction(&f, module, name));
	return f;
}

const struct derive_chip *kernel_chip(void)
{
	return &chip;
}

/* No more clusters than run at a time, as the shim launches them. */
static void launch_clusters(CUfunction f, const struct derive_launch *l, void **params)
{
	CUlaunchAttribute cluster = {
		.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
		.value.clusterDim = { l->cluster, 1, 1 },
	};
	CUlaunchConfig config = {
		.gridDimX = l->blocks,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = l->threads,
		.blockDimY = 1,
		.blockDimZ = 1,
		.sharedMemBytes = l->shared,
		.attrs = &cluster,
		.numAttrs = 1,
	};
	int n;

	CK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
	CK(cuOccupancyMaxActiveClusters(&n, f, &config));
	if (config.gridDimX > (uint32_t)n * l->cluster)
		config.gridDimX = (uint32_t)n * l->cluster;
	CK(cuLaunchKernelEx(&config, f, params, NULL));
}

void kernel_launch(const struct derive *d, void *args, const struct derive_launch *l)
{
	CUfunction f = kernel_function(l->kernel);
	void *params[DERIVE_PARAMS_MAX];

	for (uint32_t i = 0; i < d->params_count; i++)
		params[i] = (char *)args + d->params[i].offset;
	if (l->shared != 0)
		CK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
				      (int)chip.shared));
	if (l->cluster > 1)
		return launch_clusters(f, l, params);
	CK(cuLaunchKernel(f, l->blocks, 1, 1, l->threads, 1, 1, l->shared, NULL, params, NULL));
}

/* As the quickest launch is on some device with less than this one, with any grid. */
static void launch_some(const struct derive *d, void *args, uint64_t *seed)
{
	const uint32_t grids[3] = { 1, 7, 8 * chip.multiprocessors };
	struct derive_chip some = chip;
	struct derive_launch l;

	some.shared >>= seed_below(seed, 10);
	derive_launch(d, args, &some, &l);
	if (seed_below(seed, 2) != 0)
		l.blocks = grids[seed_below(seed, 3)] * l.cluster;
	kernel_launch(d, args, &l);
}

/* A range on both sides, with its margins. */
struct buffer {
	uint64_t bytes, shift;
	uint8_t *host, *back; /* the twin's, the kernel's */
	CUdeviceptr device;
};

static void buffer_make(struct buffer *b, const struct derive_range *r, uint64_t shift)
{
	b->bytes = r->bytes + 2 * MARGIN + shift;
	b->shift = MARGIN + shift;
	b->host = aligned_alloc(256, DERIVE_UP(b->bytes, 256));
	b->back = malloc(b->bytes);
	CK(cuMemAlloc(&b->device, b->bytes));
}

static void buffer_free(struct buffer *b)
{
	if (b->bytes == 0)
		return;
	CK(cuMemFree(b->device));
	free(b->host);
	free(b->back);
}

static void set_address(void *args, const struct derive_range *r, uint64_t address)
{
	memcpy((char *)args + r->offset, &address, sizeof(address));
}

/* The call with its parameters, so that it can be made again by hand. */
static void print_call(const struct derive *d, const void *args)
{
	fprintf(stderr, "  %s(", d->name);
	for (uint32_t i = 0; i < d->params_count; i++) {
		uint64_t value = 0;

		memcpy(&value, (const char *)args + d->params[i].offset, d->params[i].size);
		fprintf(stderr, "%s%s = %llu", i ? ", " : "", d->params[i].name,
			(unsigned long long)value);
	}
	fprintf(stderr, ")\n");
}

/* The twin's bytes against the kernel's. */
static bool compare(const struct derive_range *r, struct buffer *b)
{
	CK(cuMemcpyDtoH(b->back, b->device, b->bytes));
	for (uint64_t i = 0; i < b->bytes; i++) {
		if (b->host[i] == b->back[i])
			continue;
		fprintf(stderr, "  %s differs at byte %lld of %llu: twin %02x, kernel %02x\n",
			r->name, (long long)(i - b->shift), (unsigned long long)r->bytes,
			b->host[i], b->back[i]);
		return false;
	}
	return true;
}

/* Fill what the drawn call uses, on both sides. */
static void prepare(const struct kernel_case *c, const struct derive_range *r, struct draw *d,
		    struct buffer *b)
{
	struct derive_range all = { .name = "", .bytes = 0, .result = true };
	uint32_t shift = c->shift != 0 || r->result ? c->shift : c->shift_sources;

	buffer_make(b, r, shift != 0 ? shift * seed_below(&d->seed, 2) : 0);
	all.bytes = b->bytes;
	content_fill(c, &all, d, b->host);
	content_fill(c, r, d, b->host + b->shift);
	CK(cuMemcpyHtoD(b->device, b->host, b->bytes));
	CK(cuStreamSynchronize(CU_STREAM_LEGACY));
}

static bool check_call(const struct kernel_case *c, struct draw *d)
{
	const struct derive *row = derive_find(c->name);
	struct buffer buffer[DERIVE_PARAMS_MAX] = { { .bytes = 0 } };
	struct derive_range range[DERIVE_PARAMS_MAX];
	char on_host[DERIVE_ARGS_MAX] = { 0 }, on_device[DERIVE_ARGS_MAX];
	uint32_t n;
	bool equal = true;

	c->draw(d, on_host);
	memcpy(on_device, on_host, sizeof(on_host));
	n = row->ranges(on_host, range);
	for (uint32_t i = 0; i < n; i++) {
		if (range[i].bytes == 0)
			continue;
		prepare(c, &range[i], d, &buffer[i]);
		set_address(on_host, &range[i], (uintptr_t)(buffer[i].host + buffer[i].shift));
		set_address(on_device, &range[i], buffer[i].device + buffer[i].shift);
	}
	launch_some(row, on_device, &d->seed);
	derive_twin(c->name)(on_host);
	CK(cuStreamSynchronize(CU_STREAM_LEGACY));
	for (uint32_t i = 0; i < n; i++)
		if (buffer[i].bytes != 0)
			equal = compare(&range[i], &buffer[i]) && equal;
	if (!equal)
		print_call(row, on_device);
	for (uint32_t i = 0; i < n; i++)
		buffer_free(&buffer[i]);
	return equal;
}

static bool check_kernel(const struct kernel_case *c, uint64_t seed, bool large)
{
	int rounds = large ? ROUNDS_LARGE : ROUNDS_SMALL, failed = 0;

	for (int i = 0; i < rounds; i++) {
		struct draw d = { .seed = seed + (uint64_t)i, .limit = 1000, .experts = 8 };

		/* Of the large run, the first rounds are small: odd shapes, and quick to look at.
		 */
		d.large = large && i >= ROUNDS_SMALL;
		if (!check_call(c, &d) && failed++ == 0)
			fprintf(stderr, "  seed %llu, round %d\n", (unsigned long long)seed, i);
	}
	printf("%-4s %s %d calls, %d differ\n", failed ? "FAIL" : "ok", c->name, rounds, failed);
	return failed == 0;
}

/* Every row has a case, and the other way round. */
static bool complete(void)
{
	bool all = true;
	size_t i = 0;

	for (; derive_at(i) != NULL; i++) {
		const struct kernel_case *c = kernel_cases;

		while (c->name != NULL && strcmp(c->name, derive_at(i)->name))
			c++;
		if (c->name == NULL) {
			printf("FAIL %s has no case\n", derive_at(i)->name);
			all = false;
		}
	}
	return all;
}

static uint32_t attribute(CUdevice_attribute which, CUdevice device)
{
	int value;

	CK(cuDeviceGetAttribute(&value, which, device));
	return (uint32_t)value;
}

static bool start(void)
{
	/* Any bytes do for the simulated driver. */
	static const char no_image[64];
	const void *image = kernel_image != NULL ? kernel_image : no_image;
	CUdevice device;
	CUcontext context;

	CK(cuInit(0));
	CK(cuDeviceGet(&device, 0));
	CK(cuDevicePrimaryCtxRetain(&context, device));
	CK(cuCtxSetCurrent(context));
	chip.multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
	chip.shared = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device);
	if (attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, device))
		chip.cluster = DERIVE_CLUSTER_MAX;
	return cuModuleLoadData(&module, image) == CUDA_SUCCESS;
}

int main(int argc, char **argv)
{
	bool large = argc < 2 || strcmp(argv[1], "small"), good;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 20251129;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!start()) {
		printf("skip: no machine code of the kernels for this device\n");
		return 77;
	}
	printf("seed %llu\n", (unsigned long long)seed);
	good = complete();
	for (const struct kernel_case *c = kernel_cases; c->name != NULL; c++)
		good = check_kernel(c, seed, large) && good;
	speed_run(large);
	return good ? 0 : 1;
}
