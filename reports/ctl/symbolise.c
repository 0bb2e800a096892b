/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks a child process for names, and keeps what it answered.
 *
 * The child is forked at the first question, from a tool with one thread. It answers one question
 * at a time: struct question and its strings one way, struct reply and its strings the other. When
 * it dies, or takes too long, the module is not asked about again, and the next question gets a new
 * child. One thread.
 */
#include "symbolise.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "symbol_reader.h"
#include "term.h"

/* Reading the debug information of a large library takes seconds; a stall takes for ever. */
#define ANSWER_WAIT_MS 60000
/* Largest that the child may grow: the debug information of PyTorch has several GB, mapped. */
#define CHILD_BYTES (16ULL << 30)

struct question {
	uint64_t offset;
	uint32_t path_bytes, build_id_bytes; /* with their NUL; build_id 0: demangle the path */
};

/* Followed by the strings: why, then function and file of each frame, each with its NUL. */
struct reply {
	uint32_t text_bytes;
	uint8_t state, is_unverified, count, is_inlined[SYMBOL_FRAMES_MAX];
	uint32_t line[SYMBOL_FRAMES_MAX];
};

/* An answer that is kept, or a module that is not to be asked about. */
struct kept {
	struct kept *next;
	char *key; /* of symbols_key() */
	struct symbol_frames frames;
	char *text, *place; /* what the strings in frames point into */
};

/* Most modules that are spoken of. */
#define NOTES_MAX 64
#define BUCKETS	  4096
static struct kept *kept[BUCKETS];
static bool is_enabled;
static const char *search_folders;
static int channel = -1; /* to the child */
static pid_t child;

/* ---- both sides ---- */

static bool send_all(int fd, const void *from, size_t bytes)
{
	const char *at = from;

	while (bytes) {
		ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		bytes -= (size_t)n;
	}
	return true;
}

/* @param wait_ms for each piece; -1: for ever. */
static bool receive_all(int fd, void *to, size_t bytes, int wait_ms)
{
	char *at = to;

	while (bytes) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		int ready = poll(&p, 1, wait_ms);
		ssize_t n;

		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0)
			return false;
		n = recv(fd, at, bytes, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		bytes -= (size_t)n;
	}
	return true;
}

/* ---- the child ---- */

static void add_text(FILE *out, const char *s)
{
	fprintf(out, "%.*s", SYMBOL_TEXT_MAX - 1, s ? s : "");
	fputc('\0', out);
}

static bool send_answer(int fd, struct symbol_answer *a)
{
	struct reply r = { .state = (uint8_t)a->state,
			   .is_unverified = a->is_unverified,
			   .count = (uint8_t)a->count };
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		return false;
	add_text(out, a->why);
	for (size_t i = 0; i < a->count; i++) {
		r.line[i] = a->at[i].line;
		r.is_inlined[i] = a->at[i].is_inlined;
		add_text(out, a->at[i].function);
		add_text(out, a->at[i].file);
	}
	for (size_t i = 0; i < SYMBOL_FRAMES_MAX; i++) {
		free(a->at[i].function);
		free(a->at[i].file);
	}
	fclose(out);
	r.text_bytes = (uint32_t)bytes;
	return send_all(fd, &r, sizeof(r)) && send_all(fd, text, bytes) && (free(text), true);
}

static void answer_one(const struct question *q, char *path, char *build_id,
		       struct symbol_answer *a)
{
	struct symbol_ref ref = { path, build_id, q->offset };

	if (q->build_id_bytes) {
		symbol_reader_find(&ref, a);
		return;
	}
	a->count = 1;
	a->at[0].function = symbol_demangle(path);
}

/* A small file can ask for a lot of memory: then the child fails, and the machine does not. */
static void limit_memory(void)
{
	unsigned long long used = 0; /* pages; with those of the parent, which are shared */
	FILE *file = fopen("/proc/self/statm", "re");
	struct rlimit limit;

	if (file && fscanf(file, "%llu", &used) != 1)
		used = 0;
	if (file)
		fclose(file);
	used = used * (unsigned long long)sysconf(_SC_PAGESIZE) + CHILD_BYTES;
	if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur <= used)
		return;
	limit.rlim_cur = limit.rlim_max = used;
	setrlimit(RLIMIT_AS, &limit);
}

static _Noreturn void child_main(int fd)
{
	static struct symbol_answer a;
	struct question q;
	int null = open("/dev/null", O_RDWR);

	/* Neither the output nor a pager's pipe is the child's. */
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_DUMPABLE, 0);
	limit_memory();
	/* Reading a report asks no server. */
	unsetenv("DEBUGINFOD_URLS");
	symbol_reader_init(search_folders);
	while (receive_all(fd, &q, sizeof(q), -1)) {
		char *path = malloc((size_t)q.path_bytes + 1);
		char *build_id = calloc((size_t)q.build_id_bytes + 1, 1);

		if (!path || !build_id || !receive_all(fd, path, q.path_bytes, -1) ||
		    !receive_all(fd, build_id, q.build_id_bytes, -1))
			break;
		a = (struct symbol_answer){ .state = SYMBOL_FOUND };
		answer_one(&q, path, build_id, &a);
		free(path);
		free(build_id);
		if (!send_answer(fd, &a))
			break;
	}
	_exit(0);
}

/* ---- the parent's side of it ---- */

static void stop_child(void)
{
	if (channel < 0)
		return;
	close(channel);
	channel = -1;
	kill(child, SIGKILL);
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
}

static bool start_child(void)
{
	int ends[2];

	if (channel >= 0)
		return true;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		return false;
	child = fork();
	if (child == 0) {
		close(ends[0]);
		child_main(ends[1]);
	}
	close(ends[1]);
	if (child < 0) {
		close(ends[0]);
		return false;
	}
	channel = ends[0];
	return true;
}

static bool ask(const struct question *q, const char *path, const char *build_id)
{
	return start_child() && send_all(channel, q, sizeof(*q)) &&
	       send_all(channel, path, q->path_bytes) &&
	       send_all(channel, build_id, q->build_id_bytes);
}

/* Point the frames into the text, which has a NUL behind each of its strings. */
static void unpack(struct kept *k, const struct reply *r)
{
	char *at = k->text, *end = k->text + r->text_bytes;

	k->frames.state = (enum symbol_state)r->state;
	k->frames.is_unverified = r->is_unverified;
	k->frames.why = *at ? at : NULL;
	at += strlen(at) + 1;
	for (size_t i = 0; i < r->count && i < SYMBOL_FRAMES_MAX && at < end; i++) {
		struct symbol_frame *f = &k->frames.at[i];

		f->function = at;
		at += strlen(at) + 1;
		f->file = at < end && *at ? at : NULL;
		at += at < end ? strlen(at) + 1 : 0;
		f->line = r->line[i];
		f->is_inlined = r->is_inlined[i];
		k->frames.count++;
	}
}

static bool read_reply(struct kept *k)
{
	struct reply r;

	if (!receive_all(channel, &r, sizeof(r), ANSWER_WAIT_MS) || r.text_bytes == 0 ||
	    r.text_bytes > (2 * SYMBOL_FRAMES_MAX + 1) * SYMBOL_TEXT_MAX)
		return false;
	k->text = calloc((size_t)r.text_bytes + 1, 1);
	if (!k->text || !receive_all(channel, k->text, r.text_bytes, ANSWER_WAIT_MS))
		return false;
	unpack(k, &r);
	return true;
}

/* ---- what is kept ---- */

static unsigned bucket_of(const char *key)
{
	uint32_t hash = 2166136261u; /* FNV-1a */

	for (; *key; key++)
		hash = (hash ^ (unsigned char)*key) * 16777619u;
	return hash % BUCKETS;
}

/* @return what is kept under @key; a new entry has no place yet. */
static struct kept *keep(const char *key)
{
	struct kept **head = &kept[bucket_of(key)], *k;

	for (k = *head; k; k = k->next)
		if (strcmp(k->key, key) == 0)
			return k;
	k = calloc(1, sizeof(*k));
	if (!k || !(k->key = strdup(key))) {
		perror("arenactl: no memory");
		exit(3);
	}
	k->next = *head;
	*head = k;
	return k;
}

/* The child died over this module, or did not come back: its other frames are not tried. */
static struct kept *give_up(const char *path, const char *build_id)
{
	char *key;
	struct kept *k;

	stop_child();
	if (asprintf(&key, "m%s:%s", build_id, path) < 0)
		return NULL;
	k = keep(key);
	free(key);
	if (!k->text &&
	    asprintf(&k->text, "%s cannot be read: its debug information is damaged", path) < 0)
		k->text = NULL;
	k->frames.state = SYMBOL_UNREADABLE;
	k->frames.why = k->text;
	return k;
}

static bool is_given_up(const char *path, const char *build_id, struct symbol_frames *out)
{
	struct kept *k;
	char *key;

	if (asprintf(&key, "m%s:%s", build_id, path) < 0)
		return false;
	for (k = kept[bucket_of(key)]; k && strcmp(k->key, key) != 0; k = k->next)
		;
	free(key);
	if (k) {
		out->state = k->frames.state;
		out->why = k->frames.why;
	}
	return k != NULL;
}

static char *place_of(const struct symbol_ref *ref)
{
	const char *slash = ref->path ? strrchr(ref->path, '/') : NULL;
	const char *base = slash ? slash + 1 : ref->path ? ref->path : "";
	char *place;

	if (asprintf(&place, "%s%s0x%llx", base, *base ? "+" : "",
		     (unsigned long long)ref->offset) < 0)
		return NULL;
	return place;
}

/* ---- what others call ---- */

void symbolise_init(bool enabled, const char *folders)
{
	is_enabled = enabled;
	search_folders = folders;
}

static void resolve(struct kept *k, const struct symbol_ref *ref, const char *build_id)
{
	struct question q = { ref->offset, (uint32_t)strlen(ref->path) + 1,
			      (uint32_t)strlen(build_id) + 1 };
	const struct kept *lost;

	if (is_given_up(ref->path, build_id, &k->frames))
		return;
	if (ask(&q, ref->path, build_id) && read_reply(k))
		return;
	lost = give_up(ref->path, build_id);
	k->frames.state = SYMBOL_UNREADABLE;
	k->frames.why = lost ? lost->frames.why : "no memory";
}

void symbolise(const struct symbol_ref *ref, struct symbol_frames *out)
{
	const char *build_id = ref->build_id ? ref->build_id : "";
	const char *path = ref->path ? ref->path : "";
	struct kept *k;
	char *key;

	if (asprintf(&key, "f%s:%s+%llx", build_id, path, (unsigned long long)ref->offset) < 0) {
		perror("arenactl: no memory");
		exit(3);
	}
	k = keep(key);
	free(key);
	if (!k->place) {
		k->place = place_of(ref);
		k->frames.place = k->place ? k->place : "";
		k->frames.state = *path ? SYMBOL_OFF : SYMBOL_NO_NAME;
		if (is_enabled && *path)
			resolve(k, ref, build_id);
	}
	*out = k->frames;
}

const char *symbolise_name(const char *name)
{
	struct question q = { 0, (uint32_t)strlen(name) + 1, 0 };
	struct kept *k;
	char *key;

	if (strncmp(name, "_Z", 2) != 0 || asprintf(&key, "n%s", name) < 0)
		return name;
	k = keep(key);
	free(key);
	/* A name that kills the child is not asked for again. */
	if (!k->place) {
		k->place = strdup("");
		if (!ask(&q, name, "") || !read_reply(k))
			stop_child();
	}
	return k->frames.count && *k->frames.at[0].function ? k->frames.at[0].function : name;
}

/* Is there something to say that nobody has said? Marks it as said. */
static bool is_news(const struct kept *k, const char **said, size_t *count)
{
	const struct symbol_frames *f = &k->frames;

	if (!f->why || (f->state != SYMBOL_OTHER_BUILD && f->state != SYMBOL_UNREADABLE &&
			!(f->state == SYMBOL_FOUND && f->is_unverified)))
		return false;
	for (size_t i = 0; i < *count; i++)
		if (strcmp(said[i], f->why) == 0)
			return false;
	if (*count == NOTES_MAX)
		return false;
	said[(*count)++] = f->why;
	return true;
}

void symbolise_notes(const char *command)
{
	const char *said[NOTES_MAX];
	char clean[SYMBOL_TEXT_MAX];
	size_t count = 0;

	for (size_t i = 0; i < BUCKETS; i++) {
		for (const struct kept *k = kept[i]; k; k = k->next) {
			if (!is_news(k, said, &count))
				continue;
			term_clean(clean, sizeof(clean), k->frames.why);
			fprintf(stderr, "arenactl %s: note: %s\n", command, clean);
		}
	}
}

void symbolise_end(void)
{
	stop_child();
	for (size_t i = 0; i < BUCKETS; i++) {
		while (kept[i]) {
			struct kept *k = kept[i];

			kept[i] = k->next;
			free(k->key);
			free(k->text);
			free(k->place);
			free(k);
		}
	}
	is_enabled = false;
}
