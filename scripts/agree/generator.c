//go:build ignore

// The line above keeps the Go tool from compiling this file: agree runs gcc on it.
//
// A load generator for hitline that shares no code with hitbench or the server. It follows
// docs/protocol.md only, so that an error in how those send, answer or measure does not
// repeat here. Linux, C11:
//
//	gcc -O2 -Wall -Wextra -Werror -o generator generator.c
//
// It stores the same chains of random hashes on each server, over one connection each.
// Then it looks up whole chains: it sends a lookup, waits for the answer, checks it, and
// asks the next server the same. Each turn has a random chain and a random order of
// servers, so that what the machine does beside this changes all of them alike. All
// lookups hit. The pool must have one full-attention group of 16 tokens a block and
// four-byte replies (no pool.vllm of 0.29.0 or newer).
//
// It prints a line of JSON for each round and server, after a round that warms them up.
// Percentiles are exact: of all latencies of the round, sorted, by nearest rank.
//
//	generator HASHES ENTRIES ROUNDS SECONDS HOST:PORT...
//
// HASHES of a lookup, ENTRIES to store (at least), SECONDS of a round. What the servers held
// is forgotten. Exit codes: 0 every answer was right; 1 one was wrong; 2 wrong usage; 3 no
// connection, or it was lost.

#define _GNU_SOURCE

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

enum { EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_LOST = 3 };

enum {
	HASH_LEN = 32,     // bytes
	BLOCK_TOKENS = 16, // of the servers' pools
	MIN_CHAINS = 10,   // otherwise a single chain stays in the cache
	TIMEOUT = 10,      // longest wait for an answer, in s
	MAX_SERVERS = 16,
	MAX_SAMPLES = 1 << 22 // of a round and server
};

static const int64_t SECOND = 1000000000; // in ns

// The flags of a frame.
enum { MORE = 1, LONG = 2 };

static struct {
	int64_t hashes, entries, rounds;
	double seconds; // of a round
} options;

// The lookups of all chains, one after the other.
static struct {
	uint8_t *requests;
	size_t size;  // bytes of a lookup
	size_t head;  // of them in front of the hashes
	int64_t count;
	uint32_t hit; // tokens of each
} chains;

// A server, with the latencies of the current round in ns.
static struct server {
	char *address;
	int fd;
	int64_t *samples; // room for MAX_SAMPLES
	size_t len;
} servers[MAX_SERVERS];

static int num_servers;

static _Noreturn void fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

static _Noreturn void fail(int code, const char *format, ...) {
	va_list arguments;
	fputs("generator: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(code);
}

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

// next_random is SplitMix64.
static uint64_t next_random(uint64_t *state) {
	uint64_t z = *state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

// random_below returns a random number below n, which is less than 2^32.
static uint64_t random_below(uint64_t *state, uint64_t n) { return (next_random(state) >> 32) * n >> 32; }

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

static uint8_t *put_frame(uint8_t *p, const void *body, size_t len) {
	p = put_frame_head(p, MORE, len);
	memcpy(p, body, len);
	return p + len;
}

// put_lookup writes a lookup up to the hashes.
static uint8_t *put_lookup(uint8_t *p, uint32_t tokens, uint64_t blob) {
	p = put_frame(p, "lookup", 6);
	p = put_integer(put_frame_head(p, MORE, 4), tokens, 4);
	p = put_integer(put_frame_head(p, MORE, 2), HASH_LEN, 2);
	return put_frame_head(p, 0, blob);
}

// put_store writes a store on rank 0, 0 of group 0 up to the keys.
static uint8_t *put_store(uint8_t *p, uint64_t blob) {
	p = put_frame(p, "store", 5);
	p = put_frame(p, "\0\0\0\0\0\0", 6);
	p = put_integer(put_frame_head(p, MORE, 2), HASH_LEN, 2);
	return put_frame_head(p, 0, blob);
}

static void send_all(const struct server *s, const uint8_t *p, size_t len, int flags) {
	while (len > 0) {
		ssize_t n = send(s->fd, p, len, flags | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			fail(EXIT_LOST, "%s: cannot send: %s", s->address, strerror(errno));
		p += n;
		len -= (size_t)n;
	}
}

// expect reads an answer, which must be these bytes and no more. All answers have a known
// length, so reading them needs no parser.
static void expect(const struct server *s, const uint8_t *want, size_t len, const char *request) {
	uint8_t got[16];
	size_t have = 0;
	while (have < len) {
		ssize_t n = recv(s->fd, got + have, sizeof got - have, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			fail(EXIT_LOST, "%s: closed the connection", s->address);
		if (n < 0)
			fail(EXIT_LOST, "%s: no answer: %s", s->address, strerror(errno));
		have += (size_t)n;
		if (memcmp(got, want, have < len ? have : len) != 0)
			break;
	}
	if (have != len || memcmp(got, want, len) != 0)
		fail(EXIT_WRONG, "%s: the answer to a %s is wrong", s->address, request);
}

static void expect_done(const struct server *s, const char *request) {
	static const uint8_t done[] = {0, 1, 1};
	expect(s, done, sizeof done, request);
}

// ---- Before the measuring.

// connect_to takes the address apart in place, and puts it together again for messages.
static void connect_to(struct server *s) {
	char *colon = strrchr(s->address, ':');
	if (colon == NULL)
		fail(EXIT_USAGE, "%s is no HOST:PORT", s->address);
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
	*colon = '\0';
	int error = getaddrinfo(s->address, colon + 1, &hints, &found);
	*colon = ':';
	if (error != 0)
		fail(EXIT_LOST, "%s: %s", s->address, gai_strerror(error));
	int on = 1;
	struct timeval timeout = {.tv_sec = TIMEOUT};
	s->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s->fd < 0 || connect(s->fd, found->ai_addr, found->ai_addrlen) != 0 ||
	    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
	    setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) != 0 ||
	    setsockopt(s->fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) != 0)
		fail(EXIT_LOST, "%s: cannot connect: %s", s->address, strerror(errno));
	freeaddrinfo(found);
}

static void make_chains(uint64_t *random) {
	uint8_t head[64];
	size_t blob = (size_t)options.hashes * HASH_LEN;
	chains.hit = (uint32_t)options.hashes * BLOCK_TOKENS;
	chains.head = (size_t)(put_lookup(head, chains.hit, blob) - head);
	chains.size = chains.head + blob;
	chains.count = (options.entries + options.hashes - 1) / options.hashes;
	if (chains.count < MIN_CHAINS)
		chains.count = MIN_CHAINS;
	chains.requests = malloc((size_t)chains.count * chains.size);
	if (chains.requests == NULL)
		fail(EXIT_LOST, "no memory for %" PRId64 " chains", chains.count);
	uint8_t *p = chains.requests;
	for (int64_t i = 0; i < chains.count; i++) {
		memcpy(p, head, chains.head);
		p += chains.head;
		for (size_t at = 0; at < blob; at += 8)
			p = put_integer(p, next_random(random), 8);
	}
}

// store_chains replaces what the server holds.
static void store_chains(const struct server *s) {
	static const uint8_t reset[] = {0, 5, 'r', 'e', 's', 'e', 't'};
	send_all(s, reset, sizeof reset, 0);
	expect_done(s, "reset");
	uint8_t head[64];
	size_t blob = chains.size - chains.head;
	size_t head_len = (size_t)(put_store(head, blob) - head);
	for (int64_t i = 0; i < chains.count; i++) {
		send_all(s, head, head_len, MSG_MORE);
		send_all(s, chains.requests + (size_t)i * chains.size + chains.head, blob, 0);
		expect_done(s, "store");
	}
}

// ---- The measuring.

// look_up asks a server for a chain.
static void look_up(struct server *s, uint64_t chain) {
	uint8_t hit[6] = {0, 4};
	put_integer(hit + 2, chains.hit, 4);
	int64_t sent = now();
	send_all(s, chains.requests + chain * chains.size, chains.size, 0);
	expect(s, hit, sizeof hit, "lookup");
	s->samples[s->len++] = now() - sent;
}

// run_round asks all servers in turns until the time is over, each at least once.
static void run_round(uint64_t *random) {
	int64_t end = now() + (int64_t)(options.seconds * (double)SECOND);
	int order[MAX_SERVERS];
	for (int i = 0; i < num_servers; i++) {
		servers[i].len = 0;
		order[i] = i;
	}
	do {
		uint64_t chain = random_below(random, (uint64_t)chains.count);
		for (int i = num_servers - 1; i >= 0; i--) { // Fisher-Yates
			int j = (int)random_below(random, (uint64_t)i + 1), chosen = order[j];
			order[j] = order[i];
			order[i] = chosen;
			look_up(&servers[chosen], chain);
		}
	} while (now() < end && servers[0].len < MAX_SAMPLES);
}

static int compare(const void *a, const void *b) {
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

// percentile_us returns the nearest rank of sorted samples, in µs.
static double percentile_us(const struct server *s, size_t p) {
	size_t rank = (p * s->len + 99) / 100;
	return (double)s->samples[rank > 0 ? rank - 1 : 0] / 1000;
}

static void report(struct server *s, int64_t round) {
	qsort(s->samples, s->len, sizeof *s->samples, compare);
	printf("{\"server\":\"%s\",\"hashes\":%" PRId64 ",\"round\":%" PRId64 ",\"lookups\":%zu,\"p50_us\":%.2f,\"p99_us\":%.2f,\"max_us\":%.2f}\n",
	       s->address, options.hashes, round, s->len, percentile_us(s, 50), percentile_us(s, 99), percentile_us(s, 100));
	if (fflush(stdout) != 0)
		fail(EXIT_LOST, "cannot print: %s", strerror(errno));
}

// ---- The arguments.

static double number(const char *text, double min, double max) {
	char *rest;
	double x = strtod(text, &rest);
	if (rest == text || *rest != '\0' || !(x >= min && x <= max))
		fail(EXIT_USAGE, "%s is no number from %.15g to %.15g", text, min, max);
	return x;
}

static void parse_arguments(int argc, char **argv) {
	num_servers = argc - 5;
	if (num_servers < 1 || num_servers > MAX_SERVERS)
		fail(EXIT_USAGE, "usage: generator HASHES ENTRIES ROUNDS SECONDS HOST:PORT..., at most %d", MAX_SERVERS);
	options.hashes = (int64_t)number(argv[1], 1, 2e6);
	options.entries = (int64_t)number(argv[2], 1, 1e8);
	options.rounds = (int64_t)number(argv[3], 1, 1e6);
	options.seconds = number(argv[4], 0.001, 86400);
	for (int i = 0; i < num_servers; i++)
		servers[i].address = argv[5 + i];
}

int main(int argc, char **argv) {
	parse_arguments(argc, argv);
	uint64_t random;
	if (getrandom(&random, sizeof random, 0) != sizeof random)
		fail(EXIT_LOST, "no random numbers: %s", strerror(errno));
	make_chains(&random);
	for (int i = 0; i < num_servers; i++) {
		servers[i].samples = malloc(MAX_SAMPLES * sizeof *servers[i].samples);
		if (servers[i].samples == NULL)
			fail(EXIT_LOST, "no memory for latencies");
		connect_to(&servers[i]);
		store_chains(&servers[i]);
	}
	run_round(&random);
	for (int64_t round = 1; round <= options.rounds; round++) {
		run_round(&random);
		for (int i = 0; i < num_servers; i++)
			report(&servers[i], round);
	}
	return 0;
}
