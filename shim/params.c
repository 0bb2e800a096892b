/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts of kernel parameters, cached by handle, and the scanner that turns bytes into words.
 *
 * The cache: open addressing over a fixed table. A slot's key never changes once set; a slot is
 * good while its epoch is the current one, so forgetting everything is one increment. Layouts are
 * immutable and never freed; when a handle comes back after an unload and means the same, its old
 * layout is taken again. A full table only costs speed: the layout is then asked for each time.
 *
 * Any thread. Readers take no lock; fill_lock serialises those who fill a slot.
 */
#include <string.h>

#include "arena/intern.h"
#include "arena/slab.h"
#include "shim/hooks.h"
#include "shim/params.h"
#include "shim/tensormap.h"

/* Distinct kernels of a large serving process: a few thousand. Power of two. */
#define CACHE_SLOTS  16384
#define CACHE_PROBES 32
#define CHUNK_BYTES  65536

/* A user-space address of a host with five-level paging is below 2^57; none is in the first
 * 64 KiB (vm.mmap_min_addr), where small integers live. */
#define ADDRESS_LEAST 0x10000u
#define ADDRESS_BITS  57

struct slot {
	_Atomic uint64_t handle; /* 0: never used */
	_Atomic uint64_t epoch;
	const struct layout *_Atomic layout;
};

/* A layout on its way from the driver, with room for the longest. */
union draft {
	struct layout layout;
	char room[sizeof(struct layout) + PARAMS_COUNT_MAX * sizeof(struct param)];
};

static struct slot cache[CACHE_SLOTS];
static _Atomic uint64_t cache_epoch = 1;
static struct spinlock fill_lock = SPINLOCK_INIT;
static char *chunk, *chunk_end; /* guarded by fill_lock */

/* ---- scanner ---- */

static bool could_be_address(uint64_t value)
{
	return value >= ADDRESS_LEAST && value >> ADDRESS_BITS == 0;
}

static void add_word(struct params *out, uint64_t value, uint16_t index, size_t offset,
		     enum confidence confidence)
{
	if (!could_be_address(value) || out->count == PARAMS_WORDS_MAX)
		return;
	out->words[out->count++] = (struct word){
		.value = value,
		.param = index,
		.offset = (uint16_t)offset,
		.confidence = (uint8_t)confidence,
	};
}

static uint64_t load_word(const void *bytes)
{
	uint64_t value;

	memcpy(&value, bytes, sizeof(value));
	return value;
}

void params_reset(struct params *out, uint32_t name)
{
	out->name = name;
	out->count = 0;
	out->hash = 0;
	out->blind = 0;
	out->forgotten = out->cut = false;
}

void params_mix(struct params *out, uint64_t value)
{
	/* Never 0 again: that would say "not hashed". */
	out->hash = ((out->hash ^ value) * 0x9E3779B97F4A7C15u) | 1;
	out->hash ^= out->hash >> 29;
}

/* A descriptor can only be read out of the bytes as long as it is remembered. */
static void hash_bytes(struct params *out, const char *p, size_t size_bytes)
{
	uint64_t tail = 0;

	for (; size_bytes >= 8; p += 8, size_bytes -= 8)
		params_mix(out, load_word(p));
	memcpy(&tail, p, size_bytes);
	params_mix(out, tail);
}

/* The struct of an aligned member is aligned as a whole, and its size is a multiple of that. */
static bool has_room_for_tensormap(struct param at)
{
	return at.offset % TENSORMAP_ALIGN == 0 && at.size_bytes % TENSORMAP_ALIGN == 0 &&
	       at.size_bytes >= TENSORMAP_BYTES;
}

void params_scan_one(struct params *out, uint16_t index, const void *bytes, struct param at)
{
	const char *p = bytes;
	bool is_known = false;
	uint64_t address;

	if (tensormap_any())
		hash_bytes(out, p, at.size_bytes);
	if (at.size_bytes == 8) {
		add_word(out, load_word(p), index, 0, CONFIDENCE_EXACT);
		return;
	}
	/* A struct that is less aligned holds no member of 8 bytes. */
	if (at.offset % 8 != 0)
		return;
	for (size_t i = 0; i + 8 <= at.size_bytes; i += 8) {
		if ((at.offset + i) % TENSORMAP_ALIGN == 0 &&
		    i + TENSORMAP_BYTES <= at.size_bytes && tensormap_find(p + i, &address)) {
			add_word(out, address, index, i,
				 at.size_bytes == TENSORMAP_BYTES ? CONFIDENCE_EXACT
								  : CONFIDENCE_STRUCT);
			i += TENSORMAP_BYTES - 8;
			is_known = true;
			continue;
		}
		add_word(out, load_word(p + i), index, i, CONFIDENCE_STRUCT);
	}
	if (!is_known && has_room_for_tensormap(at) && tensormap_forgot())
		out->forgotten = true;
}

void params_scan_packed(struct params *out, const struct layout *layout, const void *buffer,
			size_t size_bytes)
{
	for (uint16_t i = 0; i < layout->count; i++) {
		struct param at = layout->params[i];

		if ((size_t)at.offset + at.size_bytes <= size_bytes)
			params_scan_one(out, i, (const char *)buffer + at.offset, at);
	}
}

void params_scan_raw(struct params *out, const void *buffer, size_t size_bytes)
{
	if (size_bytes > PARAMS_BYTES_MAX)
		size_bytes = PARAMS_BYTES_MAX;
	for (size_t i = 0; i + 8 <= size_bytes; i += 8)
		add_word(out, load_word((const char *)buffer + i), 0, i, CONFIDENCE_SUSPECT);
}

/* ---- layouts ---- */

/*
 * @brief How many parameters? A driver that does not tell (before 13.2) must be asked for each,
 * until it refuses one: compute-sanitizer reports that refusal, once a kernel.
 */
static CUresult ask_count(uint64_t function, bool kernel, size_t *out)
{
	return kernel ? REAL(cuKernelGetParamCount)((CUkernel)function, out)
		      : REAL(cuFuncGetParamCount)((CUfunction)function, out);
}

/* @return CUDA_ERROR_INVALID_VALUE behind the last parameter. */
static CUresult ask_param(uint64_t function, bool kernel, size_t i, struct param *out)
{
	size_t offset = 0, size_bytes = 0;
	CUresult rc;

	if (kernel)
		rc = REAL(cuKernelGetParamInfo)((CUkernel)function, i, &offset, &size_bytes);
	else
		rc = REAL(cuFuncGetParamInfo)((CUfunction)function, i, &offset, &size_bytes);
	if (rc == CUDA_SUCCESS && (offset > PARAMS_BYTES_MAX || size_bytes > PARAMS_BYTES_MAX))
		return CUDA_ERROR_NOT_SUPPORTED;
	*out = (struct param){ (uint16_t)offset, (uint16_t)size_bytes };
	return rc;
}

/* @return whether the driver knows the parameters of @function under this kind of handle. */
static bool ask_params(uint64_t function, bool kernel, union draft *d)
{
	size_t count = SIZE_MAX, i;
	CUresult rc = ask_count(function, kernel, &count);

	if (rc == CUDA_ERROR_INVALID_HANDLE)
		return false;
	if (rc != CUDA_SUCCESS)
		count = SIZE_MAX;
	for (i = 0; i < PARAMS_COUNT_MAX && i < count; i++) {
		rc = ask_param(function, kernel, i, &d->layout.params[i]);
		if (rc != CUDA_SUCCESS)
			break;
	}
	d->layout.count = (uint16_t)i;
	return i == count || (i < PARAMS_COUNT_MAX && rc == CUDA_ERROR_INVALID_VALUE);
}

/* @return whether the driver knows @function under this kind of handle. */
static bool ask_layout(uint64_t function, bool kernel, union draft *d)
{
	const char *name = NULL;
	CUresult rc;

	d->layout.sized = ask_params(function, kernel, d);
	if (!d->layout.sized)
		d->layout.count = 0;
	rc = kernel ? REAL(cuKernelGetName)(&name, (CUkernel)function)
		    : REAL(cuFuncGetName)(&name, (CUfunction)function);
	d->layout.name = rc == CUDA_SUCCESS ? intern(name) : 0;
	return d->layout.sized;
}

/* The runtime passes a CUkernel as CUfunction; the function form then says "invalid handle". */
static void ask_driver(uint64_t function, union draft *d)
{
	uint32_t name;

	if (ask_layout(function, false, d))
		return;
	name = d->layout.name;
	if (!ask_layout(function, true, d) && d->layout.name == 0)
		d->layout.name = name;
}

static bool same_layout(const struct layout *a, const struct layout *b)
{
	return a->name == b->name && a->count == b->count && a->sized == b->sized &&
	       memcmp(a->params, b->params, a->count * sizeof(struct param)) == 0;
}

/* fill_lock held. @return NULL when the system has no memory. */
static const struct layout *keep_layout(const struct layout *draft)
{
	size_t bytes = sizeof(*draft) + draft->count * sizeof(struct param);
	char *kept = chunk;

	bytes = (bytes + 7) & ~(size_t)7;
	if (chunk == NULL || bytes > (size_t)(chunk_end - chunk)) {
		kept = pages_get(CHUNK_BYTES);
		if (kept == NULL)
			return NULL;
		chunk_end = kept + CHUNK_BYTES;
	}
	chunk = kept + bytes;
	memcpy(kept, draft, sizeof(*draft) + draft->count * sizeof(struct param));
	return (const struct layout *)kept;
}

static size_t slot_of(uint64_t function)
{
	return (function * 0x9E3779B97F4A7C15u) >> 50 & (CACHE_SLOTS - 1);
}

/* @return the slot of @function, or the free one where it belongs, or NULL when it has none. */
static struct slot *find_slot(uint64_t function)
{
	size_t at = slot_of(function);

	for (size_t i = 0; i < CACHE_PROBES; i++) {
		struct slot *s = &cache[(at + i) % CACHE_SLOTS];
		/* Pairs with the release in fill_slot(). */
		uint64_t handle = load_acquire(&s->handle);

		if (handle == function || handle == 0)
			return s;
	}
	return NULL;
}

static void fill_slot(uint64_t function, uint64_t epoch, const struct layout *draft)
{
	const struct layout *old;
	struct slot *s;

	spin_lock(&fill_lock);
	s = find_slot(function);
	old = s ? load_relaxed(&s->layout) : NULL;
	if (old == NULL || !same_layout(old, draft))
		old = s ? keep_layout(draft) : NULL;
	if (old) {
		/* All pair with the loads in find_layout(): who sees the epoch sees the layout. */
		store_release(&s->layout, old);
		store_release(&s->epoch, epoch);
		store_release(&s->handle, function);
	}
	spin_unlock(&fill_lock);
}

/* @return the layout, in the cache or in @d. */
static const struct layout *find_layout(uint64_t function, union draft *d)
{
	/* Pairs with params_forget_all(): read before the driver is asked, so that a layout asked
	 * for before an unload is never good after it. */
	uint64_t epoch = load_acquire(&cache_epoch);
	struct slot *s = find_slot(function);

	/* Pair with the releases in fill_slot(). */
	if (s && load_relaxed(&s->handle) == function && load_acquire(&s->epoch) == epoch)
		return load_acquire(&s->layout);
	ask_driver(function, d);
	fill_slot(function, epoch, &d->layout);
	return &d->layout;
}

void params_forget_all(void)
{
	/* Pairs with the acquire in find_layout(). */
	add_acq_rel(&cache_epoch, 1);
}

/* ---- reading a call ---- */

/* @return false when @extra has no buffer, or is not what cuLaunchKernel takes: two settings exist,
 * and a list that has not ended after eight is none. */
static bool packed_buffer(void *const *extra, const void **buffer, size_t *size_bytes)
{
	*buffer = NULL;
	*size_bytes = 0;
	for (int i = 0; i < 8; i++, extra += 2) {
		if (extra[0] == CU_LAUNCH_PARAM_END)
			return *buffer != NULL;
		if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			*buffer = extra[1];
		else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[1])
			*size_bytes = *(const size_t *)extra[1];
		else
			return false;
	}
	return false;
}

static enum params_status read_packed(struct params *out, const struct layout *layout,
				      void *const *extra)
{
	const void *buffer;
	size_t size_bytes;

	if (!packed_buffer(extra, &buffer, &size_bytes))
		return PARAMS_READ;
	if (layout->sized) {
		params_scan_packed(out, layout, buffer, size_bytes);
		return PARAMS_READ;
	}
	params_scan_raw(out, buffer, size_bytes);
	return PARAMS_RAW;
}

enum params_status params_read(struct params *out, uint64_t function, void *const *kernel_params,
			       void *const *extra)
{
	const struct layout *layout;
	union draft d;

	params_reset(out, 0);
	if (function == 0)
		return PARAMS_UNSIZED;
	layout = find_layout(function, &d);
	out->name = layout->name;
	if (kernel_params == NULL)
		return extra ? read_packed(out, layout, extra) : PARAMS_READ;
	if (!layout->sized)
		return PARAMS_UNSIZED;
	for (uint16_t i = 0; i < layout->count; i++)
		if (kernel_params[i])
			params_scan_one(out, i, kernel_params[i], layout->params[i]);
	return PARAMS_READ;
}
