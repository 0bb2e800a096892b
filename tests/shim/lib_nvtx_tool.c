/* SPDX-License-Identifier: Apache-2.0 */
/* Another tool's injection of NVTX: counts ranges, and leaves out what it does not care for. */
#include <nvtx3/nvToolsExt.h>

__attribute__((visibility("default"))) int tool_pushed, tool_popped, tool_domains;
__attribute__((visibility("default"))) uint64_t tool_started, tool_ended;

static int NVTX_API push(const char *text)
{
	return 100 + tool_pushed++;
}

static int NVTX_API pop(void)
{
	return 200 + tool_popped++;
}

static nvtxRangeId_t NVTX_API start(const char *text)
{
	return 0x700 + tool_started++;
}

static void NVTX_API end(nvtxRangeId_t id)
{
	tool_ended += id;
}

static nvtxDomainHandle_t NVTX_API create(const char *name)
{
	tool_domains++;
	return (nvtxDomainHandle_t)&tool_domains;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
	const NvtxExportTableCallbacks *c = get(NVTX_ETID_CALLBACKS);
	NvtxFunctionTable core, core2;
	unsigned size;

	c->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &size);
	c->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &core2, &size);
	*core[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
	*core[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
	*core[NVTX_CBID_CORE_RangeStartA] = (NvtxFunctionPointer)start;
	*core[NVTX_CBID_CORE_RangeEnd] = (NvtxFunctionPointer)end;
	*core2[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
	return 1;
}
