//go:build ignore

// The line above keeps the Go tool from compiling this file: agree runs gcc on it.
//
// A load generator for hitline that shares no code with hitbench. It is made after
// docs/protocol.md only, so that an error in how hitbench sends, counts or measures does
// not repeat here. Linux, C11:
//
//	gcc -O2 -Wall -Wextra -Werror -pthread -o generator generator.c
//
// It stores chains of random hashes, then looks up whole chains in random order, all hit,
// and checks every answer. The pool must be one full-attention group whose hits are one
// number (no vllm of 0.29.0 or newer).
//
// Closed loop: each connection sends a lookup, reads the answer, and so on. There are as
// many threads as connections, and at most as many as cores. A thread that has one
// connection makes blocking calls; one that has several waits for them by epoll. Latency
// counts from before the send. What is in flight at the end is waited for and its latency
// counts, but it is no request of the measured time.
//
// Open loop (--rate): each connection has a thread that sends and a thread that reads. The
// sender sleeps until a lookup is due by an absolute clock; it waits for no answer. Latency
// counts from when the lookup was due. So it includes what the kernel takes to wake the two
// threads. With --spin a connection has one thread that never sleeps: it needs a core, and
// its latency is that of the server and the network.
//
// Percentiles are exact: of all latencies, sorted, by nearest rank.

#define _GNU_SOURCE

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_LOST = 3 };

enum {
	HASH_LEN = 32,          // bytes
	LEAST_CHAINS = 10,      // so that not one chain is asked for alone
	FIRST_SAMPLES = 1 << 17 // memory for so many latencies is touched before the measuring
};

static const int64_t SECOND = 1000000000; // in ns

// The flags of a frame.
enum { MORE = 1, LONG = 2 };

// The options, read-only after main has parsed them.
static struct {
	const char *host, *port;
	int connections;
	int64_t hashes, entries;
	uint32_t block_tokens;
	double warmup, seconds, rate; // rate 0: closed loop
	bool spin;
	uint64_t seed;
	int timeout; // s
	bool reset;
	const char *samples;
} options = {
	.connections = 1,
	.hashes = 64,
	.entries = 1000000,
	.block_tokens = 16,
	.warmup = 1,
	.seconds = 10,
	.timeout = 10,
};

// The lookups of all chains, one after the other, read-only while threads run.
static struct {
	uint8_t *requests;
	size_t size;  // bytes of a lookup
	size_t head;  // of them in front of the hashes
	int64_t count;
	uint32_t hit; // tokens that each is to hit
} chains;

// When the threads start, and the measured time: ns of CLOCK_MONOTONIC.
static int64_t start, begin, end;

static int closed_threads; // that serve the connections in a closed loop

static volatile sig_atomic_t stopped; // by a signal

struct sample {
	int64_t from;    // when it was sent, in an open loop when it was due
	int64_t latency; // both ns
};

// A connection and what was measured on it. The threads that serve it own it until they
// are joined.
struct conn {
	int fd, number;
	uint64_t random;

	uint8_t in[4096]; // received, and not yet taken
	size_t in_len;

	int64_t sent;                // when the lookup in flight was sent, in a closed loop
	int64_t num_sent, num_taken; // lookups and answers, in an open loop

	struct sample *samples;
	size_t samples_len, samples_cap;
	int64_t requests; // answered in the measured time
	int64_t wrong;
};

static _Noreturn void fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

// fail ends the process, from any thread.
static _Noreturn void fail(int code, const char *format, ...) {
	va_list arguments;
	fputs("generator: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	_exit(code);
}

static void *allocate(size_t n) {
	void *p = malloc(n);
	if (p == NULL)
		fail(EXIT_LOST, "no memory for %zu bytes", n);
	return p;
}

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

static void sleep_until(int64_t when) {
	struct timespec t = {.tv_sec = when / SECOND, .tv_nsec = when % SECOND};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR && !stopped)
		;
}

// next_random is SplitMix64.
static uint64_t next_random(uint64_t *state) {
	uint64_t z = *state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

// ---- The protocol.

static uint8_t *put_integer(uint8_t *p, uint64_t x, int bytes) {
	for (int i = bytes - 1; i >= 0; i--)
		*p++ = (uint8_t)(x >> 8 * i);
	return p;
}

// put_frame_head writes flags and length of a frame, at most 9 bytes.
static uint8_t *put_frame_head(uint8_t *p, int flags, uint64_t len) {
	if (len > 255) {
		*p++ = (uint8_t)(flags | LONG);
		return put_integer(p, len, 8);
	}
	*p++ = (uint8_t)flags;
	return put_integer(p, len, 1);
}

static uint8_t *put_frame(uint8_t *p, int flags, const void *body, size_t len) {
	p = put_frame_head(p, flags, len);
	memcpy(p, body, len);
	return p + len;
}

// put_lookup writes a lookup up to the hashes.
static uint8_t *put_lookup(uint8_t *p, uint32_t tokens, uint64_t blob) {
	p = put_frame(p, MORE, "lookup", 6);
	p = put_integer(put_frame_head(p, MORE, 4), tokens, 4);
	p = put_integer(put_frame_head(p, MORE, 2), HASH_LEN, 2);
	return put_frame_head(p, 0, blob);
}

// put_store writes a store of group 0 on rank 0, 0 up to the keys.
static uint8_t *put_store(uint8_t *p, uint64_t blob) {
	p = put_frame(p, MORE, "store", 5);
	p = put_frame(p, MORE, "\0\0\0\0\0\0", 6);
	p = put_integer(put_frame_head(p, MORE, 2), HASH_LEN, 2);
	return put_frame_head(p, 0, blob);
}

static void send_all(struct conn *c, const uint8_t *p, size_t len, int flags) {
	while (len > 0) {
		ssize_t n = send(c->fd, p, len, flags | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			fail(EXIT_LOST, "cannot send: %s", strerror(errno));
		p += n;
		len -= (size_t)n;
	}
}

// A reply: how many frames, and the first of them, which points into the connection's
// buffer and is valid until the next call.
struct reply {
	const uint8_t *first;
	size_t first_len;
	int frames;
	size_t size; // bytes of all
};

// parse_reply returns whether the buffer begins with a whole message.
static bool parse_reply(const struct conn *c, struct reply *r) {
	size_t at = 0;
	*r = (struct reply){0};
	for (uint8_t flags = MORE; flags & MORE;) {
		if (at == c->in_len)
			return false;
		flags = c->in[at++];
		if (flags & ~(MORE | LONG))
			fail(EXIT_LOST, "a frame has the flags %02x", flags);
		size_t bytes = flags & LONG ? 8 : 1;
		if (c->in_len - at < bytes)
			return false;
		uint64_t len = 0;
		for (; bytes > 0; bytes--)
			len = len << 8 | c->in[at++];
		if (len > sizeof c->in)
			fail(EXIT_LOST, "a frame of an answer has %" PRIu64 " bytes", len);
		if (c->in_len - at < len)
			return false;
		if (r->frames++ == 0) {
			r->first = c->in + at;
			r->first_len = len;
		}
		at += len;
	}
	r->size = at;
	return true;
}

// receive waits for bytes, at least one unless a signal comes.
static void receive(struct conn *c) {
	if (c->in_len == sizeof c->in)
		fail(EXIT_LOST, "an answer has more than %zu bytes", sizeof c->in);
	ssize_t n = recv(c->fd, c->in + c->in_len, sizeof c->in - c->in_len, 0);
	if (n < 0 && errno == EINTR)
		return;
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		fail(EXIT_LOST, "no answer for %d s", options.timeout);
	if (n < 0)
		fail(EXIT_LOST, "cannot receive: %s", strerror(errno));
	if (n == 0)
		fail(EXIT_LOST, "the server closed the connection");
	c->in_len += (size_t)n;
}

static struct reply read_reply(struct conn *c) {
	struct reply r;
	while (!parse_reply(c, &r))
		receive(c);
	return r;
}

// take_reply removes a reply from the buffer.
static void take_reply(struct conn *c, struct reply r) {
	c->in_len -= r.size;
	if (c->in_len > 0)
		memmove(c->in, c->in + r.size, c->in_len);
}

static bool is_done(struct reply r) { return r.first_len == 1 && r.first[0] == 1; }

static bool is_hit(struct reply r) {
	uint8_t want[4];
	put_integer(want, chains.hit, 4);
	return r.frames == 1 && r.first_len == 4 && memcmp(r.first, want, 4) == 0;
}

// expect_done reads the answer of a request other than a lookup.
static void expect_done(struct conn *c, const char *what) {
	struct reply r = read_reply(c);
	if (!is_done(r))
		fail(EXIT_LOST, "the server refused: %s", what);
	take_reply(c, r);
}

static void send_ping(struct conn *c) {
	static const uint8_t ping[] = {MORE, 4, 'p', 'i', 'n', 'g', 0, 3, 'e', 'n', 'd'};
	send_all(c, ping, sizeof ping, 0);
}

// is_pong tells the answer of a ping from all others: it has a second frame.
static bool is_pong(struct reply r) { return is_done(r) && r.frames == 2; }

// ---- Before the measuring.

static void connect_to_server(struct conn *c) {
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
	int error = getaddrinfo(options.host, options.port, &hints, &found);
	if (error != 0)
		fail(EXIT_LOST, "%s:%s: %s", options.host, options.port, gai_strerror(error));
	c->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0)
		fail(EXIT_LOST, "cannot make a socket: %s", strerror(errno));
	if (connect(c->fd, found->ai_addr, found->ai_addrlen) != 0)
		fail(EXIT_LOST, "cannot connect to %s:%s: %s", options.host, options.port, strerror(errno));
	freeaddrinfo(found);
	int on = 1;
	struct timeval timeout = {.tv_sec = options.timeout};
	if (setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
	    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) != 0 ||
	    setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) != 0)
		fail(EXIT_LOST, "cannot set up a socket: %s", strerror(errno));
}

static void make_chains(void) {
	uint8_t head[64];
	size_t blob = (size_t)options.hashes * HASH_LEN;
	chains.hit = (uint32_t)options.hashes * options.block_tokens;
	chains.head = (size_t)(put_lookup(head, chains.hit, blob) - head);
	chains.size = chains.head + blob;
	chains.count = (options.entries + options.hashes - 1) / options.hashes;
	if (chains.count < LEAST_CHAINS)
		chains.count = LEAST_CHAINS;
	chains.requests = allocate((size_t)chains.count * chains.size);
	uint64_t random = options.seed;
	uint8_t *p = chains.requests;
	for (int64_t i = 0; i < chains.count; i++) {
		memcpy(p, head, chains.head);
		p += chains.head;
		for (size_t at = 0; at < blob; at += 8)
			p = put_integer(p, next_random(&random), 8);
	}
}

static void store_chains(struct conn *c) {
	uint8_t head[64];
	size_t blob = chains.size - chains.head;
	size_t head_len = (size_t)(put_store(head, blob) - head);
	for (int64_t i = 0; i < chains.count; i++) {
		send_all(c, head, head_len, MSG_MORE);
		send_all(c, chains.requests + (size_t)i * chains.size + chains.head, blob, 0);
		expect_done(c, "a store");
	}
}

// ---- The measuring.

static void add_sample(struct conn *c, int64_t from, int64_t latency) {
	if (c->samples_len == c->samples_cap) {
		c->samples_cap *= 2;
		c->samples = realloc(c->samples, c->samples_cap * sizeof *c->samples);
		if (c->samples == NULL)
			fail(EXIT_LOST, "no memory for %zu latencies", c->samples_cap);
	}
	c->samples[c->samples_len++] = (struct sample){from, latency};
}

// send_lookup sends the lookup of a random chain.
static void send_lookup(struct conn *c) {
	uint64_t chain = (next_random(&c->random) >> 32) * (uint64_t)chains.count >> 32;
	send_all(c, chains.requests + chain * chains.size, chains.size, 0);
}

static void start_lookup(struct conn *c) {
	c->sent = now();
	send_lookup(c);
}

// finish_lookup counts an answer of a closed loop.
static void finish_lookup(struct conn *c, struct reply r) {
	int64_t answered = now();
	c->wrong += !is_hit(r);
	take_reply(c, r);
	if (c->in_len > 0)
		fail(EXIT_LOST, "the server sent what was not asked for");
	if (c->sent >= begin)
		add_sample(c, c->sent, answered - c->sent);
	c->requests += answered >= begin && answered < end;
}

static bool at_end(void) { return stopped || now() >= end; }

// expect_nothing_else sends a ping, whose answer must be the next thing to come.
static void expect_nothing_else(struct conn *c) {
	send_ping(c);
	struct reply r = read_reply(c);
	if (!is_pong(r))
		fail(EXIT_LOST, "the server sent what was not asked for");
	take_reply(c, r);
}

// closed_loop is the thread of one connection.
static void *closed_loop(void *argument) {
	struct conn *c = argument;
	sleep_until(start);
	do {
		start_lookup(c);
		finish_lookup(c, read_reply(c));
	} while (!at_end());
	expect_nothing_else(c);
	return NULL;
}

// closed_loops is the thread of several connections: the given one and every one that is
// a multiple of the number of threads behind it.
static void *closed_loops(void *argument) {
	struct conn *first = argument;
	int poll = epoll_create1(EPOLL_CLOEXEC), open = 0;
	sleep_until(start);
	for (int i = 0; first->number + i < options.connections; i += closed_threads, open++) {
		struct epoll_event event = {.events = EPOLLIN, .data.ptr = first + i};
		if (poll < 0 || epoll_ctl(poll, EPOLL_CTL_ADD, first[i].fd, &event) != 0)
			fail(EXIT_LOST, "cannot wait for connections: %s", strerror(errno));
		start_lookup(first + i);
	}
	while (open > 0) {
		struct epoll_event events[64];
		int n = epoll_wait(poll, events, 64, options.timeout * 1000);
		if (n == 0)
			fail(EXIT_LOST, "no answer for %d s", options.timeout);
		for (int i = 0; i < n; i++) { // none after a signal
			struct conn *c = events[i].data.ptr;
			struct reply r;
			receive(c);
			if (!parse_reply(c, &r))
				continue;
			finish_lookup(c, r);
			if (!at_end()) {
				start_lookup(c);
				continue;
			}
			epoll_ctl(poll, EPOLL_CTL_DEL, c->fd, NULL);
			expect_nothing_else(c);
			open--;
		}
	}
	close(poll);
	return NULL;
}

// due returns when the i-th lookup of a connection is due.
static int64_t due(const struct conn *c, int64_t i) {
	double period = (double)SECOND / options.rate; // over all connections
	return start + (int64_t)(((double)i * options.connections + c->number) * period);
}

// send_when_due is the first thread of a connection in an open loop. It sends a ping at the end.
static void *send_when_due(void *argument) {
	struct conn *c = argument;
	prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); // else the kernel may wake it 50 µs late
	for (; due(c, c->num_sent) < end; c->num_sent++) {
		sleep_until(due(c, c->num_sent));
		if (stopped)
			break;
		send_lookup(c);
	}
	send_ping(c);
	return NULL;
}

// take_answer counts the next answer of an open loop. It returns false for that of the ping.
static bool take_answer(struct conn *c, struct reply r) {
	int64_t answered = now();
	bool pong = is_pong(r);
	c->wrong += !pong && !is_hit(r);
	take_reply(c, r);
	if (pong)
		return false;
	int64_t from = due(c, c->num_taken++);
	if (from >= begin) {
		add_sample(c, from, answered - from);
		c->requests++;
	}
	return true;
}

// read_answers is the second thread. It ends with the answer of the ping.
static void *read_answers(void *argument) {
	struct conn *c = argument;
	while (take_answer(c, read_reply(c)))
		;
	return NULL;
}

// spin is the only thread of a connection in an open loop that never sleeps until the last
// lookup is sent.
static void *spin(void *argument) {
	struct conn *c = argument;
	sleep_until(start);
	while (due(c, c->num_sent) < end && !stopped) {
		if (now() >= due(c, c->num_sent)) {
			send_lookup(c);
			c->num_sent++;
		}
		uint8_t byte;
		if (c->num_taken < c->num_sent && (c->in_len > 0 || recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0))
			take_answer(c, read_reply(c));
	}
	send_ping(c);
	return read_answers(c);
}

static void start_thread(pthread_t *thread, void *(*function)(void *), struct conn *c) {
	int error = pthread_create(thread, NULL, function, c);
	if (error != 0)
		fail(EXIT_LOST, "cannot start a thread: %s", strerror(error));
}

// measure runs the threads of all connections. It returns how many seconds were measured.
static double measure(struct conn *conns) {
	int n = options.connections;
	pthread_t *threads = allocate(2 * (size_t)n * sizeof *threads);
	start = now() + SECOND / 100; // all threads exist by then
	begin = start + (int64_t)(options.warmup * (double)SECOND);
	end = begin + (int64_t)(options.seconds * (double)SECOND);
	int count = 0;
	if (options.rate == 0)
		for (int i = 0; i < closed_threads; i++)
			start_thread(&threads[count++], closed_threads == n ? closed_loop : closed_loops, &conns[i]);
	else
		for (int i = 0; i < n; i++) {
			if (options.spin) {
				start_thread(&threads[count++], spin, &conns[i]);
				continue;
			}
			start_thread(&threads[count++], read_answers, &conns[i]);
			start_thread(&threads[count++], send_when_due, &conns[i]);
		}
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	free(threads);
	for (int i = 0; i < n; i++)
		if (conns[i].num_taken != conns[i].num_sent)
			fail(EXIT_LOST, "%" PRId64 " lookups got %" PRId64 " answers", conns[i].num_sent, conns[i].num_taken);
	int64_t until = now();
	if (!stopped || until > end)
		until = end;
	return until > begin ? (double)(until - begin) / (double)SECOND : 0;
}

// ---- The report.

static int by_latency(const void *a, const void *b) {
	int64_t x = ((const struct sample *)a)->latency, y = ((const struct sample *)b)->latency;
	return (x > y) - (x < y);
}

// percentile_us returns the nearest rank of sorted samples, in µs; 0 if there are none.
static double percentile_us(const struct sample *sorted, size_t n, size_t p) {
	if (n == 0)
		return 0;
	size_t rank = (p * n + 99) / 100;
	return (double)sorted[rank > 0 ? rank - 1 : 0].latency / 1000;
}

// write_samples writes a line for each sample: when it was sent or due, and its latency, in
// ns; the former by CLOCK_MONOTONIC.
static void write_samples(const struct sample *all, size_t n) {
	FILE *file = fopen(options.samples, "w");
	if (file == NULL)
		fail(EXIT_LOST, "%s: %s", options.samples, strerror(errno));
	for (size_t i = 0; i < n; i++)
		fprintf(file, "%" PRId64 " %" PRId64 "\n", all[i].from, all[i].latency);
	if (fclose(file) != 0)
		fail(EXIT_LOST, "%s: %s", options.samples, strerror(errno));
}

// report prints the line of JSON. It returns how many answers were wrong.
static int64_t report(const struct conn *conns, double seconds) {
	size_t n = 0;
	int64_t requests = 0, wrong = 0;
	for (int i = 0; i < options.connections; i++)
		n += conns[i].samples_len;
	struct sample *all = allocate((n + 1) * sizeof *all);
	n = 0;
	for (int i = 0; i < options.connections; i++) {
		memcpy(all + n, conns[i].samples, conns[i].samples_len * sizeof *all);
		n += conns[i].samples_len;
		requests += conns[i].requests;
		wrong += conns[i].wrong;
	}
	if (options.samples != NULL)
		write_samples(all, n);
	qsort(all, n, sizeof *all, by_latency);
	printf("{\"mode\":\"%s\",\"connections\":%d,\"hashes\":%" PRId64 ",\"chains\":%" PRId64 ",\"rate\":%.1f,\"seed\":%" PRIu64
	       ",\"seconds\":%.6f,\"requests\":%" PRId64 ",\"requests_per_s\":%.1f",
	       options.rate > 0 ? "open" : "closed", options.connections, options.hashes, chains.count, options.rate, options.seed,
	       seconds, requests, seconds > 0 ? (double)requests / seconds : 0);
	printf(",\"p50_us\":%.2f,\"p90_us\":%.2f,\"p99_us\":%.2f,\"max_us\":%.2f,\"wrong\":%" PRId64 "}\n",
	       percentile_us(all, n, 50), percentile_us(all, n, 90), percentile_us(all, n, 99), percentile_us(all, n, 100), wrong);
	free(all);
	if (fflush(stdout) != 0)
		fail(EXIT_LOST, "cannot print: %s", strerror(errno));
	return wrong;
}

// ---- The command line.

static const char usage[] =
	"Usage: generator --connect HOST:PORT [flags]\n"
	"\n"
	"Looks up chains of hashes that it has stored, all hit, and checks every answer.\n"
	"Prints one line of JSON. Stops early on SIGINT and SIGTERM.\n"
	"\n"
	"  --connect HOST:PORT   of the server\n"
	"  --connections N       default 1\n"
	"  --hashes N            of a lookup; default 64\n"
	"  --entries N           hashes to store first, at least; default 1000000\n"
	"  --block-tokens N      of tokens, in the server's pool; default 16\n"
	"  --warmup SECONDS      that are not measured; default 1\n"
	"  --seconds SECONDS     to measure; default 10\n"
	"  --rate N              lookups a second over all connections, each counted from\n"
	"                        when it was due; 0, the default: a closed loop\n"
	"  --spin                with --rate: never sleep; needs a core a connection\n"
	"  --seed N              of hashes and order; 0, the default: a random one\n"
	"  --timeout SECONDS     longest wait for an answer; default 10\n"
	"  --reset               have the server forget everything first\n"
	"  --samples FILE        for lines of when sent or due, and latency, in ns\n"
	"\n"
	"Exit codes: 0 every answer was right; 1 one was wrong; 2 wrong usage; 3 no\n"
	"connection, it was lost, an answer was late, or a store was refused.\n";

// number parses an option from least to most.
static double number(const char *name, const char *text, double least, double most) {
	char *rest;
	errno = 0;
	double x = strtod(text, &rest);
	if (errno != 0 || rest == text || *rest != '\0' || !(x >= least && x <= most))
		fail(EXIT_USAGE, "--%s %s; give a number from %.15g to %.15g", name, text, least, most);
	return x;
}

static int64_t whole(const char *name, const char *text, double least, double most) {
	double x = number(name, text, least, most);
	if (x != (double)(int64_t)x)
		fail(EXIT_USAGE, "--%s %s; give a whole number", name, text);
	return (int64_t)x;
}

// set_address takes --connect apart, in place.
static void set_address(char *text) {
	char *colon = strrchr(text, ':');
	if (colon == NULL || colon == text || colon[1] == '\0')
		fail(EXIT_USAGE, "--connect %s; give HOST:PORT", text);
	*colon = '\0';
	options.host = text;
	options.port = colon + 1;
}

static void set_option(const char *name, char *value) {
	if (strcmp(name, "connect") == 0)
		set_address(value);
	else if (strcmp(name, "connections") == 0)
		options.connections = (int)whole(name, value, 1, 1000);
	else if (strcmp(name, "hashes") == 0)
		options.hashes = whole(name, value, 1, 2e6);
	else if (strcmp(name, "entries") == 0)
		options.entries = whole(name, value, 1, 1e8);
	else if (strcmp(name, "block-tokens") == 0)
		options.block_tokens = (uint32_t)whole(name, value, 1, 2000);
	else if (strcmp(name, "warmup") == 0)
		options.warmup = number(name, value, 0, 3600);
	else if (strcmp(name, "seconds") == 0)
		options.seconds = number(name, value, 0.001, 86400);
	else if (strcmp(name, "rate") == 0)
		options.rate = number(name, value, 0, 1e7);
	else if (strcmp(name, "seed") == 0)
		options.seed = (uint64_t)whole(name, value, 0, 9007199254740992.0); // 2^53: JSON keeps it
	else if (strcmp(name, "timeout") == 0)
		options.timeout = (int)whole(name, value, 1, 3600);
	else if (strcmp(name, "samples") == 0)
		options.samples = value;
	else if (strcmp(name, "spin") == 0)
		options.spin = true;
	else
		options.reset = true;
}

static void parse_options(int argc, char **argv) {
	static const struct option names[] = {
		{"connect", required_argument, NULL, 0}, {"connections", required_argument, NULL, 0},
		{"hashes", required_argument, NULL, 0},  {"entries", required_argument, NULL, 0},
		{"block-tokens", required_argument, NULL, 0}, {"warmup", required_argument, NULL, 0},
		{"seconds", required_argument, NULL, 0}, {"rate", required_argument, NULL, 0},
		{"seed", required_argument, NULL, 0},    {"timeout", required_argument, NULL, 0},
		{"samples", required_argument, NULL, 0}, {"reset", no_argument, NULL, 0},
		{"spin", no_argument, NULL, 0},          {"help", no_argument, NULL, 'h'},
		{0},
	};
	for (int code, at; (code = getopt_long(argc, argv, "h", names, &at)) != -1;) {
		if (code == 'h') {
			fputs(usage, stdout);
			exit(0);
		}
		if (code != 0)
			fail(EXIT_USAGE, "see --help");
		set_option(names[at].name, optarg);
	}
	if (optind < argc)
		fail(EXIT_USAGE, "%s is no flag; see --help", argv[optind]);
	if (options.host == NULL)
		fail(EXIT_USAGE, "--connect is missing; see --help");
	if (options.rate > 0 && options.rate < options.connections)
		fail(EXIT_USAGE, "--rate %g; give at least one a second for each connection", options.rate);
	if (options.hashes * options.block_tokens > UINT32_MAX)
		fail(EXIT_USAGE, "a lookup of so many hashes has 2^32 tokens or more");
	while (options.seed == 0) {
		if (getrandom(&options.seed, sizeof options.seed, 0) != sizeof options.seed)
			fail(EXIT_LOST, "no random numbers: %s", strerror(errno));
		options.seed >>= 11;
	}
}

// count_cores returns how many cores this process may use.
static int count_cores(void) {
	cpu_set_t allowed;
	if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
		return 1; // more cores than the set holds
	return CPU_COUNT(&allowed);
}

static void stop(int number) {
	(void)number;
	stopped = 1;
}

int main(int argc, char **argv) {
	parse_options(argc, argv);
	struct sigaction action = {.sa_handler = stop};
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	int cores = count_cores();
	closed_threads = options.connections < cores ? options.connections : cores;
	make_chains();
	struct conn *conns = allocate((size_t)options.connections * sizeof *conns);
	uint64_t random = ~options.seed;
	for (int i = 0; i < options.connections; i++) {
		conns[i] = (struct conn){.number = i, .random = next_random(&random), .samples_cap = FIRST_SAMPLES};
		conns[i].samples = allocate(FIRST_SAMPLES * sizeof(struct sample));
		memset(conns[i].samples, 0, FIRST_SAMPLES * sizeof(struct sample));
		connect_to_server(&conns[i]);
	}
	if (options.reset) {
		static const uint8_t reset[] = {0, 5, 'r', 'e', 's', 'e', 't'};
		send_all(&conns[0], reset, sizeof reset, 0);
		expect_done(&conns[0], "a reset");
	}
	store_chains(&conns[0]);
	double seconds = measure(conns);
	int64_t wrong = report(conns, seconds);
	for (int i = 0; i < options.connections; i++) {
		close(conns[i].fd);
		free(conns[i].samples);
	}
	free(conns);
	free(chains.requests);
	return wrong > 0 ? EXIT_WRONG : 0;
}
