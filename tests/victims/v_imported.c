/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that came from somewhere else: a shareable handle mapped here, and an allocation opened
 * by its IPC handle - which a real driver gives to another process only, so that the program
 * starts itself once more as the owner.
 */
#include "victim.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static CUdeviceptr out;

static CUgraphExec reader(CUdeviceptr w)
{
	CUgraphExec e;

	out = dev_alloc("out", BIG);
	poke(out, 0);
	CAPTURE_EXEC(e, run_acc(out, w));
	replay("E", e);
	return e;
}

static void shared_handle(void)
{
	CUmemGenericAllocationHandle mine = vmm_create(BIG, true), theirs;
	CUdeviceptr w = vmm_reserve("w", BIG, 0);
	CUgraphExec e;
	int fd = -1;

	if (cuMemExportToShareableHandle(&fd, mine, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))
		victim_skip("this machine shares no handles");
	CK(cuMemImportFromShareableHandle(&theirs, (void *)(intptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	vmm_map(w, theirs, BIG);
	poke(w, 1);
	e = reader(w);
	vmm_unmap(w, BIG);
	victim_only_harmless(false);
	replay("E", e);
	MUST(peek(out) == 1);
}

/* The owner: gives the handle away on stdout and lives until its stdin ends. */
static void owner(void)
{
	CUipcMemHandle handle;
	CUdeviceptr p;
	char end;

	CK(cuMemAlloc(&p, BIG));
	poke(p, 1);
	CK(cuIpcGetMemHandle(&handle, p));
	MUST(write(STDOUT_FILENO, &handle, sizeof(handle)) == (ssize_t)sizeof(handle));
	MUST(read(STDIN_FILENO, &end, 1) == 0);
}

/* @return the write end that keeps the owner alive. */
static int start_owner(CUipcMemHandle *handle)
{
	char self[4096] = "";
	int to[2], from[2];

	MUST(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	MUST(!pipe(to) && !pipe(from));
	if (fork() == 0) {
		dup2(to[0], STDIN_FILENO);
		dup2(from[1], STDOUT_FILENO);
		for (int fd = 3; fd < 256; fd++)
			close(fd);
		execl(self, self, "owner", NULL);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	if (read(from[0], handle, sizeof(*handle)) != (ssize_t)sizeof(*handle))
		victim_skip("no second process with this driver");
	return to[1];
}

static void ipc(void)
{
	CUipcMemHandle handle;
	CUdeviceptr mine, w;
	CUgraphExec e;
	int alive = -1;

	CK(cuMemAlloc(&mine, BIG));
	poke(mine, 1);
	if (cuIpcGetMemHandle(&handle, mine))
		victim_skip("this machine has no IPC");
	if (cuIpcOpenMemHandle(&w, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) {
		alive = start_owner(&handle);
		if (cuIpcOpenMemHandle(&w, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
			victim_skip("this machine opens no IPC handles");
	}
	name_range("w", w, BIG);
	e = reader(w);
	CK(cuIpcCloseMemHandle(w));
	if (alive >= 0)
		close(alive);
	victim_only_harmless(false);
	replay("E", e);
	MUST(peek(out) == 1);
}

VICTIM({ "shared-handle", shared_handle }, { "ipc", ipc }, { "owner", owner });
