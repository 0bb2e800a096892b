/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The link between the shim and libarena_cupti.so: what the one hands to the other, and nothing
 * else. Plain C types, so that neither cuda.h nor cupti.h is needed to use it.
 *
 *   shim				libarena_cupti.so
 *   arena_cupti_recorder(ABI)	->	struct recorder, constant, for the life of the process
 *   recorder.open(host, ...)	->	subscribes; from here on host.event() is called
 *   recorder.close(...)		->	cuptiFinalize; nothing of it remains in the process
 *
 * Threads: open, close and forget are called by one thread at a time (without a lock that a
 * constructor may wait for: they ask the dynamic linker), never from host.event(). host.event()
 * comes on any thread that is inside a call of the driver, with locks of the driver held: it must
 * not wait for such a thread, take the GIL, or call open, close or forget. After close returned,
 * no event is under way.
 */
#ifndef CUPTI_RECORDER_H
#define CUPTI_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

/* Changes with any change of this file that an older partner would not understand. */
#define RECORDER_ABI	3
#define RECORDER_SYMBOL "arena_cupti_recorder"

/* What happened; the fields of struct recorder_event that are set. Order of what CUPTI tells: an
 * object is created after it can be asked for, and destroyed before it goes away. */
enum recorder_kind {
	RECORDER_GRAPH_CREATED,	   /* graph */
	RECORDER_GRAPH_CLONED,	   /* graph, original_graph */
	RECORDER_GRAPH_DESTROYING, /* graph */
	RECORDER_NODE_CREATED,	   /* graph, node, node_type */
	RECORDER_NODE_CLONED,	   /* graph, node, node_type, original_graph, original_node */
	RECORDER_NODE_DESTROYING,  /* graph, node */
	RECORDER_NODE_UPDATED,	   /* exec, graph, node: of execs alone, as CUPTI's documents say */
	RECORDER_NODE_PARAMS_SET,  /* the same */
	RECORDER_DEPENDENCY_CREATED,	/* graph, node, dependency */
	RECORDER_DEPENDENCY_DESTROYING, /* graph, node, dependency */
	RECORDER_EXEC_CREATING,	  /* graph; the clones up to EXEC_CREATED are the exec's own */
	RECORDER_EXEC_CREATED,	  /* exec, graph */
	RECORDER_EXEC_DESTROYING, /* exec */
	RECORDER_LAUNCH,	  /* cbid, launch: a call that launches or copies, if asked for */
	RECORDER_KIND_COUNT
};

/* One call that came back. Strings are good until the event's function returns. */
struct recorder_launch {
	const char *call;	      /* the driver's function */
	const char *kernel;	      /* NULL: it launches none, or its name is not told */
	uint64_t stream;	      /* CUstream, 0: the default one, or the call takes none */
	uint32_t correlation, result; /* CUPTI's number of the call; CUresult */
};

/* Handles as the driver has them; 0: not told. */
struct recorder_event {
	enum recorder_kind kind;
	uint32_t node_type; /* CUgraphNodeType */
	uint32_t cbid;	    /* CUPTI's callback id in its domain */
	uint64_t graph, original_graph;
	uint64_t node, original_node, dependency;
	uint64_t exec;
	struct recorder_launch launch;
};

/* What the recorder needs from its host. All but event may be NULL. */
struct recorder_host {
	uint32_t abi;
	/* Any thread, inside the driver. @e is good until it returns. */
	void (*event)(const struct recorder_event *e);
	/* Is this thread inside a driver call of the host's own? Its events are not told. */
	bool (*inside)(void);
	/* By the thread that opens, when only the subscribing is left: may it still be done? */
	bool (*may_attach)(void);
	/* The C library's own, past whatever is preloaded. NULL: as linked. */
	void *(*dlopen)(const char *file, int mode);
	void *(*dlsym)(void *handle, const char *name);
};

enum recorder_result {
	RECORDER_DONE,
	RECORDER_NO_LIBRARY, /* no libcupti in the process, nor to be loaded */
	RECORDER_TOO_OLD,    /* it lacks a function that is needed, or does not know graphs */
	RECORDER_REFUSED,    /* CUPTI said no: does not fit the driver, no privileges, disabled */
	RECORDER_BUSY,	     /* another subscriber is there, or host.may_attach() says no */
	RECORDER_BAD_CALL,   /* open while open, another ABI, no event function */
};

#define RECORDER_TEXT_BYTES 256

/* Filled by open and close, whatever they return. Strings end in NUL, "" when there is none. */
struct recorder_status {
	char library[RECORDER_TEXT_BYTES]; /* path or soname of the libcupti in use */
	char text[RECORDER_TEXT_BYTES];	   /* why not: one line, no newline */
	char other[RECORDER_TEXT_BYTES];   /* name of the other subscriber, where CUPTI tells */
	uint32_t version;		   /* CUPTI_API_VERSION of the library, 0: not known */
	uint32_t error;			   /* CUptiResult of what failed, 0: none */
	uint64_t elapsed_ns;		   /* that CUPTI took */
};

/* Record kernel launches and copies outside graphs, too. Dear: for audits. */
#define RECORDER_LAUNCHES 1u

struct recorder {
	uint32_t abi;
	/* @brief Find CUPTI, subscribe, enable the callbacks. @param host must stay. On any result
	 * but RECORDER_DONE nothing of it remains in the process but the library. */
	enum recorder_result (*open)(const struct recorder_host *host, unsigned flags,
				     struct recorder_status *out);
	/* @brief cuptiFinalize. RECORDER_BAD_CALL: not open. Else it is closed afterwards. */
	enum recorder_result (*close)(struct recorder_status *out);
	/* @brief Someone else finalised CUPTI, or this is a forked child: closed, nothing called.
	 */
	void (*forget)(void);
};

/* @brief The only export of libarena_cupti.so. @return NULL: it does not speak @abi. */
typedef const struct recorder *(*recorder_entry)(uint32_t abi);

#endif
