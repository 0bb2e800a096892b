/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules and libraries: any image offers the twins and two globals. Functions and kernels. Under
 * sim_lock.
 *
 * A kernel passed where a function is expected (as the runtime does) can be launched; the cuFunc
 * queries answer CUDA_ERROR_INVALID_HANDLE, as measured on an H200.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *name;
	uint64_t size;
} globals[] = { { "g_counter", 4 }, { "g_table", 4096 } };

static struct module *module_get(const void *h, bool library)
{
	struct module *m = obj_get(h, OBJ_MODULE);

	return m && m->library == library ? m : NULL;
}

static struct module *module_new(bool library)
{
	struct module *m = obj_new(OBJ_MODULE, sizeof(*m));

	m->library = library;
	m->ctx = library ? NULL : context_current();
	return m;
}

static void module_delete(struct module *m)
{
	struct function *next;

	for (struct function *f = m->function; f; f = next) {
		next = f->chain;
		obj_drop(f);
	}
	for (size_t i = 0; i < ARRAY_SIZE(m->global); i++)
		if (m->global[i])
			device_free(m->global[i]);
	if (m->part)
		module_delete(m->part);
	obj_drop(m);
}

void module_forget_context(struct context *ctx)
{
	struct module *m, *next;

	for (m = (struct module *)obj_first(OBJ_MODULE); m; m = next) {
		next = (struct module *)m->obj.next;
		if (m->library || m->ctx != ctx)
			continue;
		/* A library outlives the context; its part for this context does not. */
		for (struct module *l = (struct module *)obj_first(OBJ_MODULE); l;
		     l = (struct module *)l->obj.next)
			if (l->part == m)
				l->part = NULL;
		module_delete(m);
	}
}

/* ---- loading ---- */

CUresult do_cuModuleLoadData(CUmodule *out, const void *image)
{
	if (!out || !image)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUmodule)module_new(false);
	return CUDA_SUCCESS;
}
SAME_ABI(do_cuModuleLoadFatBinary, do_cuModuleLoadData);

CUresult do_cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int n,
			       CUjit_option *options, void **values)
{
	return do_cuModuleLoadData(out, image);
}

CUresult do_cuModuleLoad(CUmodule *out, const char *path)
{
	if (!path || access(path, R_OK))
		return CUDA_ERROR_FILE_NOT_FOUND;
	return do_cuModuleLoadData(out, path);
}

CUresult do_cuModuleUnload(CUmodule h)
{
	struct module *m = module_get(h, false);

	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	stream_finish_all();
	module_delete(m);
	return CUDA_SUCCESS;
}

CUresult do_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	*mode = CU_MODULE_LAZY_LOADING;
	return CUDA_SUCCESS;
}

CUresult do_cuLibraryLoadData(CUlibrary *out, const void *code, CUjit_option *jit,
			      void **jit_values, unsigned int n_jit, CUlibraryOption *options,
			      void **values, unsigned int n)
{
	if (!out || !code)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUlibrary)module_new(true);
	return CUDA_SUCCESS;
}

CUresult do_cuLibraryLoadFromFile(CUlibrary *out, const char *path, CUjit_option *jit,
				  void **jit_values, unsigned int n_jit, CUlibraryOption *options,
				  void **values, unsigned int n)
{
	if (!path || access(path, R_OK))
		return CUDA_ERROR_FILE_NOT_FOUND;
	return do_cuLibraryLoadData(out, path, jit, jit_values, n_jit, options, values, n);
}

CUresult do_cuLibraryUnload(CUlibrary h)
{
	struct module *m = module_get(h, true);

	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	stream_finish_all();
	module_delete(m);
	return CUDA_SUCCESS;
}

CUresult do_cuLibraryGetModule(CUmodule *out, CUlibrary h)
{
	struct module *m = module_get(h, true);

	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!context_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!m->part)
		m->part = module_new(false);
	*out = (CUmodule)m->part;
	return CUDA_SUCCESS;
}

/* ---- globals ---- */

static CUresult global_of(struct module *m, const char *name, CUdeviceptr *ptr, size_t *size)
{
	CUresult rc;

	for (size_t i = 0; i < ARRAY_SIZE(globals); i++) {
		if (strcmp(globals[i].name, name))
			continue;
		if (!m->global[i]) {
			rc = device_new(globals[i].size, RANGE_GLOBAL, &m->global[i]);
			if (rc)
				return rc;
			m->global[i]->ctx = m->ctx;
			memset(m->global[i]->host, 0, globals[i].size);
		}
		if (ptr)
			*ptr = m->global[i]->base;
		if (size)
			*size = globals[i].size;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NOT_FOUND;
}

CUresult do_cuModuleGetGlobal_v2(CUdeviceptr *ptr, size_t *size, CUmodule h, const char *name)
{
	struct module *m = module_get(h, false);

	if (!m || !name)
		return m ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	return global_of(m, name, ptr, size);
}

CUresult do_cuLibraryGetGlobal(CUdeviceptr *ptr, size_t *size, CUlibrary h, const char *name)
{
	struct module *m = module_get(h, true);

	if (!m || !name)
		return m ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	return global_of(m, name, ptr, size);
}

CUresult do_cuLibraryGetManaged(CUdeviceptr *ptr, size_t *size, CUlibrary h, const char *name)
{
	return module_get(h, true) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- functions and kernels ---- */

static struct function *function_of(struct module *m, const struct twin *twin, enum obj_type type)
{
	struct function *f;

	for (f = m->function; f; f = f->chain)
		if (f->twin == twin && f->obj.type == type)
			return f;
	f = obj_new(type, sizeof(*f));
	f->twin = twin;
	f->module = m;
	f->chain = m->function;
	m->function = f;
	return f;
}

static CUresult find(struct module *m, const char *name, enum obj_type type, void **out)
{
	const struct twin *twin;

	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!name || !out)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; (twin = twin_at(i)); i++) {
		if (strcmp(twin->name, name))
			continue;
		*out = function_of(m, twin, type);
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NOT_FOUND;
}

CUresult do_cuModuleGetFunction(CUfunction *out, CUmodule h, const char *name)
{
	return find(module_get(h, false), name, OBJ_FUNCTION, (void **)out);
}

CUresult do_cuLibraryGetKernel(CUkernel *out, CUlibrary h, const char *name)
{
	return find(module_get(h, true), name, OBJ_KERNEL, (void **)out);
}

static CUresult count(struct module *m, unsigned *n)
{
	for (*n = 0; m && twin_at(*n); ++*n)
		;
	return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuModuleGetFunctionCount(unsigned int *n, CUmodule h)
{
	return count(module_get(h, false), n);
}

CUresult do_cuLibraryGetKernelCount(unsigned int *n, CUlibrary h)
{
	return count(module_get(h, true), n);
}

CUresult do_cuModuleEnumerateFunctions(CUfunction *out, unsigned int n, CUmodule h)
{
	struct module *m = module_get(h, false);

	for (unsigned i = 0; m && i < n && twin_at(i); i++)
		out[i] = (CUfunction)function_of(m, twin_at(i), OBJ_FUNCTION);
	return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuLibraryEnumerateKernels(CUkernel *out, unsigned int n, CUlibrary h)
{
	struct module *m = module_get(h, true);

	for (unsigned i = 0; m && i < n && twin_at(i); i++)
		out[i] = (CUkernel)function_of(m, twin_at(i), OBJ_KERNEL);
	return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

struct function *function_any(const void *h)
{
	struct function *f = obj_get(h, OBJ_FUNCTION);

	return f ? f : obj_get(h, OBJ_KERNEL);
}

CUresult do_cuKernelGetFunction(CUfunction *out, CUkernel h)
{
	struct function *k = obj_get(h, OBJ_KERNEL);
	CUmodule part;
	CUresult rc;

	if (!k)
		return CUDA_ERROR_INVALID_HANDLE;
	rc = do_cuLibraryGetModule(&part, (CUlibrary)k->module);
	if (!rc)
		*out = (CUfunction)function_of((struct module *)part, k->twin, OBJ_FUNCTION);
	return rc;
}

CUresult do_cuKernelGetLibrary(CUlibrary *out, CUkernel h)
{
	struct function *k = obj_get(h, OBJ_KERNEL);

	if (!k)
		return CUDA_ERROR_INVALID_HANDLE;
	*out = (CUlibrary)k->module;
	return CUDA_SUCCESS;
}

CUresult do_cuFuncGetModule(CUmodule *out, CUfunction h)
{
	struct function *f = obj_get(h, OBJ_FUNCTION);

	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	*out = (CUmodule)f->module;
	return CUDA_SUCCESS;
}

static CUresult name_of(const struct function *f, const char **name)
{
	if (!f || !name)
		return f ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	*name = f->twin->name;
	return CUDA_SUCCESS;
}

CUresult do_cuFuncGetName(const char **name, CUfunction h)
{
	return name_of(obj_get(h, OBJ_FUNCTION), name);
}

CUresult do_cuKernelGetName(const char **name, CUkernel h)
{
	return name_of(obj_get(h, OBJ_KERNEL), name);
}

/* There is no query for the number of parameters before CUDA 13.2. */
static CUresult count_of(const struct function *f, size_t *count)
{
	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	*count = f->twin->n_params;
	return CUDA_SUCCESS;
}

CUresult do_cuFuncGetParamCount(CUfunction h, size_t *count)
{
	return count_of(obj_get(h, OBJ_FUNCTION), count);
}

CUresult do_cuKernelGetParamCount(CUkernel h, size_t *count)
{
	return count_of(obj_get(h, OBJ_KERNEL), count);
}

/* Past the last parameter: CUDA_ERROR_INVALID_VALUE. */
static CUresult param_of(const struct function *f, size_t i, size_t *offset, size_t *size)
{
	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	if (i >= f->twin->n_params || !offset)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = f->twin->param[i].offset;
	if (size)
		*size = f->twin->param[i].size;
	return CUDA_SUCCESS;
}

CUresult do_cuFuncGetParamInfo(CUfunction h, size_t i, size_t *offset, size_t *size)
{
	return param_of(obj_get(h, OBJ_FUNCTION), i, offset, size);
}

CUresult do_cuKernelGetParamInfo(CUkernel h, size_t i, size_t *offset, size_t *size)
{
	return param_of(obj_get(h, OBJ_KERNEL), i, offset, size);
}

/* ---- attributes: plausible, without effect ---- */

static CUresult attribute_of(const struct function *f, CUfunction_attribute attribute, int *value)
{
	*value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
		 : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS	      ? 32
		 : attribute == CU_FUNC_ATTRIBUTE_PTX_VERSION ||
			 attribute == CU_FUNC_ATTRIBUTE_BINARY_VERSION ? 90
								       : 0;
	return f ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction h)
{
	return attribute_of(obj_get(h, OBJ_FUNCTION), attribute, value);
}

CUresult do_cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel h,
				 CUdevice dev)
{
	return attribute_of(obj_get(h, OBJ_KERNEL), attribute, value);
}

CUresult do_cuFuncSetAttribute(CUfunction h, CUfunction_attribute attribute, int value)
{
	return function_any(h) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel h,
				 CUdevice dev)
{
	return obj_get(h, OBJ_KERNEL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuFuncSetCacheConfig(CUfunction h, CUfunc_cache config)
{
	return function_any(h) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction h)
{
	*state = CU_FUNCTION_LOADING_STATE_LOADED;
	return obj_get(h, OBJ_FUNCTION) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuFuncLoad(CUfunction h)
{
	return obj_get(h, OBJ_FUNCTION) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction h,
								 int size, size_t shared,
								 unsigned int flags)
{
	*blocks = size > 0 ? MAX(1, 2048 / size) : 0;
	return function_any(h) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction h, int size,
							size_t shared)
{
	return do_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, h, size, shared, 0);
}

/* Those that an H200 has room for: its groups of 16 or 18 multiprocessors leave some over. */
CUresult do_cuOccupancyMaxActiveClusters(int *clusters, CUfunction h, const CUlaunchConfig *c)
{
	unsigned int size = 1, each;

	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	each = 2 * (c->sharedMemBytes + 1024) > 228 * 1024 ? 1 : 2;
	for (unsigned int i = 0; i < c->numAttrs; i++)
		if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			size = c->attrs[i].value.clusterDim.x;
	*clusters = size == 0 || size > 16 ? 0 : (int)((size > 2 ? 120 : 132) * each / size);
	return function_any(h) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
