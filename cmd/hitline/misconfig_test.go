package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/fakeserver"
	"github.com/hitline/hitline/internal/storetest"
)

// These tests configure hitline in the ways that go wrong most often, over real stores with
// real keys. doctor must report the problem in one line.

// wrongPool is a pool that differs from that of the keys.
type wrongPool struct {
	pool   string   // the pool's fields
	lookup string   // arguments of a lookup of hashes, "" if keys alone show the problem
	hashes []string // in hex
	want   string   // the problem
}

// hexHashes returns n different hashes of length bytes, in hex.
func hexHashes(name string, n, length int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%0*x", 2*length, fmt.Sprintf("%s%d", name, i))
	}
	return list
}

const promptLen = 40 // hashes of a prompt

// storedKeys returns the keys of several pools. m has the most, of one group on two ranks.
// two has two groups.
func storedKeys() (keys []string) {
	put := func(rank int, name string, group int, hashes ...string) {
		for _, hash := range hashes {
			keys = append(keys, fmt.Sprintf("%s@tp_rank:%d@pcp0@dcp0@pp_rank:0@group:%d@%s", name, rank, group, hash))
		}
	}
	chain := hexHashes("h", promptLen, 32)
	for rank := range 2 {
		put(rank, "p@m", 0, chain...)
		put(rank, "p@two", 0, chain[:5]...)
		put(rank, "p@two", 1, chain[:5]...)
	}
	return keys
}

// Groups of pools.
const (
	window32 = "{kind: sliding_window, block_size: 16, sliding_window: 32}"
	full16   = "{kind: full_attention, block_size: 16}"
)

// wrongPools are over storedKeys.
var wrongPools = map[string]wrongPool{
	"model name": {
		pool: "model_name: org/other, cache_prefix: p, tp_size: 2",
		want: `the store's blocks are of the model "m", and lookups ask for "other": set pool.model_name to the engine's, unless it has stored nothing yet`,
	},
	"cache prefix": {
		pool: "model_name: org/m, cache_prefix: q, tp_size: 2",
		want: `the store's blocks have the cache prefix "p", and lookups ask for "q": set pool.cache_prefix to the engine's, unless it has stored nothing yet`,
	},
	"hash length": {
		pool: "model_name: m, cache_prefix: p, tp_size: 2", lookup: "--tokens 640", hashes: hexHashes("h", promptLen, 16),
		want: "a prompt's hashes have 16 bytes, and those in the store 32: have all engines of this pool use one hash function (vLLM: --prefix-caching-hash-algo)",
	},
	"larger hash block size": {
		pool: "model_name: m, cache_prefix: p, tp_size: 2, hash_block_size: 32, scheduler_block_size: 32, groups: [{kind: full_attention, block_size: 32}]", lookup: "--tokens 640", hashes: hexHashes("h", promptLen, 32),
		want: "a prompt of 640 tokens has 40 hashes, one for every 16 tokens, and pool.hash_block_size is 32: set it to the engine's",
	},
	"smaller hash block size": {
		pool: "model_name: m, cache_prefix: p, tp_size: 2, hash_block_size: 8, scheduler_block_size: 8, groups: [{kind: full_attention, block_size: 8}]", lookup: "--tokens 640", hashes: hexHashes("h", promptLen, 32),
		want: "a prompt of 640 tokens has 40 hashes, one for every 16 tokens, and pool.hash_block_size is 8: set it to the engine's",
	},
}

func TestWrongPoolOverRedis(t *testing.T) {
	server := storetest.StartRedis(t)
	client := server.Client(t)
	for _, key := range storedKeys() {
		require.NoError(t, client.Set(t.Context(), key, "", 0).Err())
	}
	testWrongPools(t, "redis: {url: 'redis://"+server.Addr+"', timeout: 5s}")
}

// testWrongPools checks that doctor reports the problem of each wrong pool.
func testWrongPools(t *testing.T, store string) {
	right := wrongPool{pool: "model_name: org/m, cache_prefix: p, tp_size: 2", lookup: "--tokens 640", hashes: hexHashes("h", promptLen, 32)}
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		d := right.runDoctor(t, store)
		assert.Empty(t, d.Problems)
		assert.Equal(t, exitDone, d.Exit)
	})
	for name, m := range wrongPools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := m.runDoctor(t, store)
			assert.Equal(t, []string{m.want}, d.Problems)
			assert.Equal(t, exitFailed, d.Exit)
		})
	}
}

func (m wrongPool) config(store string) string {
	return "pool: {" + m.pool + "}\nbackend: {" + store + "}\n"
}

// runDoctor returns doctor's result for the pool.
func (m wrongPool) runDoctor(t *testing.T, store string) doctorResult {
	if m.lookup == "" {
		return runDoctor(t, m.config(store))
	}
	file := configFile(t, strings.Join(m.hashes, "\n")) // in hex, whatever its name
	return runDoctor(t, m.config(store), append(strings.Fields(m.lookup), "--hashes-file", file)...)
}

// wrongConnection is a backend section with a wrong address or wrong credentials, and a
// part of the problem.
type wrongConnection struct {
	backend, want string
	silent        bool // the peer sends nothing, as a store that hangs: serve warns only
}

// testWrongConnections checks that doctor and serve report each of cases.
func testWrongConnections(t *testing.T, cases map[string]wrongConnection) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := "pool: {model_name: m}\nbackend: {" + c.backend + "}\n"
			d := runDoctor(t, config)
			require.Len(t, d.Problems, 1, "doctor: %s", d.Error)
			assert.Contains(t, d.Problems[0], c.want)
			assert.NotContains(t, d.Problems[0], "s3cret")
			assert.Equal(t, exitFailed, d.Exit)

			s := startServe(t, config)
			line := s.storeLine(t)
			if c.silent {
				assert.Contains(t, line, `"level":"WARN","msg":"the store cannot be used; serving anyway, every lookup is a hit of 0 until it can"`)
			} else {
				assert.Contains(t, line, `"level":"ERROR","msg":"the store is not what the configuration says; serving anyway, every lookup is a hit of 0"`)
			}
			assert.Contains(t, strings.ReplaceAll(line, `\"`, `"`), c.want)
			assert.NotContains(t, line, "s3cret")
			got := hitline(t, strings.Repeat("00", 32)+"\n", "lookup", "--connect", s.address, "--tokens", "16", "--hashes-file", "-")
			assert.Equal(t, exitFailed, got.code, "it serves")
			assert.Contains(t, got.stderr, "a hit of 0, as the lookup failed: ")
			assert.NotContains(t, got.stderr, "s3cret")
		})
	}
}

func TestWrongConnectionsToRedis(t *testing.T) {
	secret := storetest.StartRedis(t, "--requirepass", "s3cret")
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	testWrongConnections(t, map[string]wrongConnection{ // for others see package redis
		"port of a web server":  {"redis: {url: 'redis://:s3cret@" + web.Listener.Addr().String() + "'}", `the server is not a Redis: it answers "HTTP/1.1 400 Bad Request`, false},
		"password wrong":        {"redis: {url: 'redis://:s3cret2@" + secret.Addr + "'}", "the server refuses this user or password", false},
		"TLS at a port without": {"redis: {url: 'rediss://:s3cret@" + secret.Addr + "'}", "the server does not answer in TLS", true},
	})
}

// tlsListener listens on a port and does TLS handshakes only.
func tlsListener(t *testing.T) string {
	certFile, keyFile := storetest.WriteCertificate(t)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	require.NoError(t, err)
	fakeserver.Serve(t, l, func(conn net.Conn) { _ = conn.(*tls.Conn).Handshake() })
	return l.Addr().String()
}

// silentListener listens on a port, accepts connections and never answers.
func silentListener(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}
