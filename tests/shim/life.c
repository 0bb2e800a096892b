/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of a process under the shim: forks, spawns, exit while threads run. The
 * runner counts the reports: children that do not initialise CUDA themselves write none.
 *
 *	life fork | fork-early | fork-again | vfork | spawn | threads
 */
#include <cuda.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS	4

extern char **environ;

#define MUST(call)                                                                            \
	do {                                                                                  \
		CUresult rc_ = (call);                                                        \
                                                                                              \
		if (rc_ != CUDA_SUCCESS) {                                                    \
			fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, rc_);   \
			_exit(EXIT_FAILURE);                                                  \
		}                                                                             \
	} while (0)

static void start_cuda(void)
{
	CUcontext ctx;
	CUdevice dev;

	MUST(cuInit(0));
	MUST(cuDeviceGet(&dev, 0));
	MUST(cuDevicePrimaryCtxRetain(&ctx, dev));
	MUST(cuCtxSetCurrent(ctx));
}

static void use_cuda(void)
{
	CUdeviceptr p;

	MUST(cuMemAlloc(&p, 4096));
	MUST(cuMemFree(p));
}

static int wait_for(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return EXIT_FAILURE;
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}

/* The child calls what it should not; whatever the driver says, nothing breaks. */
static int life_fork(void)
{
	CUdeviceptr p;
	pid_t pid;
	int rc;

	start_cuda();
	use_cuda();
	pid = fork();
	if (pid == 0) {
		cuMemAlloc(&p, 4096);
		exit(EXIT_SUCCESS);
	}
	rc = wait_for(pid);
	use_cuda();
	return rc;
}

/* Forked before CUDA was used, both are processes of their own. */
static int life_fork_early(void)
{
	pid_t pid = fork();

	start_cuda();
	use_cuda();
	return pid == 0 ? EXIT_SUCCESS : wait_for(pid);
}

/* No real driver lets a child of a process that used CUDA start anew; if one did, so would we. */
static int life_fork_again(void)
{
	CUdeviceptr p;
	pid_t pid;

	MUST(cuInit(0));
	pid = fork();
	if (pid == 0) {
		cuMemAlloc(&p, 4096);
		MUST(cuInit(0));
		MUST(cuMemAlloc(&p, 4096));
		return EXIT_SUCCESS;
	}
	return wait_for(pid);
}

static int life_vfork(void)
{
	pid_t pid;

	start_cuda();
	pid = vfork();
	if (pid == 0) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(EXIT_FAILURE);
	}
	use_cuda();
	return wait_for(pid);
}

static int life_spawn(void)
{
	char *argv[] = { "sh", "-c", "exit 0", NULL };
	pid_t pid;

	start_cuda();
	if (posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ) != 0)
		return EXIT_FAILURE;
	use_cuda();
	return wait_for(pid);
}

static void *churn(void *context)
{
	CUdeviceptr p;

	cuCtxSetCurrent(context);
	/* At exit the driver may refuse; the process is on its way out. */
	while (cuMemAlloc(&p, 4096) == CUDA_SUCCESS)
		cuMemFree(p);
	return NULL;
}

/* main returns while the others are in the middle of things. */
static int life_threads(void)
{
	pthread_t thread;
	CUcontext ctx;

	start_cuda();
	MUST(cuCtxGetCurrent(&ctx));
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&thread, NULL, churn, ctx) != 0)
			return EXIT_FAILURE;
	for (int i = 0; i < 1000; i++)
		use_cuda();
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	static const struct { const char *name; int (*run)(void); } lives[] = {
		{ "fork", life_fork },	 { "fork-early", life_fork_early }, { "vfork", life_vfork },
		{ "fork-again", life_fork_again }, { "spawn", life_spawn }, { "threads", life_threads },
	};

	for (size_t i = 0; argc > 1 && i < sizeof(lives) / sizeof(lives[0]); i++)
		if (strcmp(argv[1], lives[i].name) == 0)
			return lives[i].run();
	return EXIT_FAILURE;
}
