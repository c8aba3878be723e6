package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

// tableRequests are the requests of a row, in this order. A row has a character for each:
//
//   - "+": served
//   - "-": refused, not allowed
//   - "n": refused, not authenticated
//   - "r": refused for another reason, as what cannot be served is
var tableRequests = []string{
	"lookup", "explain", "plan", "load_mask", "store_mask", "lookup_mask", // read
	"store", "store_prompt", "evict", "reset_rank", "reset", // change blocks
	"ping", "stat", "holders", "pool",
}

// What many rows expect.
const (
	everything = "++++++ +++++ ++++"
	readOnly   = "++++++ ----- +++-"
	pingOnly   = "------ ----- +---"
	failedTLS  = "closed tls_handshake"
	// notOfTenant is everything but the model, whose pool is the server's own.
	notOfTenant = "++++++ +++++ ++r+"
)

// tableListeners are the listeners of the table: a name, and the entry of the configuration.
var tableListeners = [][2]string{
	{"unix", "'ipc://DIR/unix'"},
	{"loopback", "'tcp://127.0.0.1:0'"},
	{"public", "'tcp://PUBLIC:0'"},
	{"unix allow", "{address: 'ipc://DIR/allow', allow: [lookup, ping]}"},
	{"loopback allow", "{address: 'tcp://127.0.0.1:0', allow: [store, evict]}"},
	{"public allow", "{address: 'tcp://PUBLIC:0', allow: all}"},
	{"tokens", "{address: 'tcp://127.0.0.1:0', tokens: DIR/tokens.yaml}"},
	{"public tokens", "{address: 'tcp://PUBLIC:0', tokens: DIR/tokens.yaml}"},
	{"unix tokens", "{address: 'ipc://DIR/tokens', tokens: DIR/tokens.yaml}"},
	{"tokens allow", "{address: 'tcp://127.0.0.1:0', tokens: DIR/tokens.yaml, allow: [lookup, stat]}"},
	{"other tokens", "{address: 'tcp://127.0.0.1:0', tokens: DIR/other.yaml}"},
	{"tls", "{address: 'tls://127.0.0.1:0', TLS}"},
	{"public tls", "{address: 'tls://PUBLIC:0', TLS}"},
	{"tls tokens", "{address: 'tls://127.0.0.1:0', TLS, tokens: DIR/tokens.yaml}"},
	{"mutual", "{address: 'tls://127.0.0.1:0', MUTUAL}"},
	{"public mutual", "{address: 'tls://PUBLIC:0', MUTUAL}"},
	{"mutual allow", "{address: 'tls://127.0.0.1:0', MUTUAL, allow: [ping, stat]}"},
	{"mutual names", "{address: 'tls://127.0.0.1:0', MUTUAL, tokens: DIR/names.yaml}"},
	{"mutual names allow", "{address: 'tls://PUBLIC:0', MUTUAL, tokens: DIR/names.yaml, allow: [lookup]}"},
}

// tableTokens are the tokens files of the table. TOKEN(name) is the text of a token.
var tableTokens = map[string]string{
	"tokens.yaml": `tokens:
  - {name: engines, token: TOKEN(engines), allow: [lookup, plan, ping]}
  - {name: ops, sha256: DIGEST(ops), allow: all}
  - {name: default, token: TOKEN(default), allow: all}
  - {name: writer, token: TOKEN(writer), allow: [store, evict]}
  - {name: resetter, token: TOKEN(resetter), allow: [reset, pool, ping]}
  - {name: expired, token: TOKEN(expired), expires: 2020-01-01T00:00:00Z, allow: all}
  - {name: later, token: TOKEN(later), expires: 2999-01-01T00:00:00Z, allow: all}
  - {name: llama, token: TOKEN(llama), pools: [llama], allow: all}
  - {name: two, token: TOKEN(two), allow: [lookup, stat, pool, ping], pools: [gone, qwen, llama]}
  - {name: own, token: TOKEN(own), pools: [''], allow: all}
  - {name: gone, token: TOKEN(gone), pools: [gone], allow: all}
`,
	"other.yaml": "tokens:\n  - {name: other, token: TOKEN(other), allow: all}\n",
	"names.yaml": `tokens:
  - {name: engine, certificate: engine.example.com, allow: [lookup, plan]}
  - {name: spiffe, certificate: 'spiffe://example.com/engine', pools: [qwen], allow: all}
  - {name: mail, certificate: ops@example.com, allow: [ping, stat]}
  - {name: common, certificate: batch, allow: all}
  - {name: old, certificate: old.example.com, expires: 2020-01-01T00:00:00Z, allow: all}
  - {name: token, token: TOKEN(token), allow: [evict]}
`,
}

// tableCertificates are the names of the client certificates. All are of ours but theirs.
var tableCertificates = map[string][]string{
	"engine": {"engine.example.com"}, "spiffe": {"spiffe://example.com/engine"}, "mail": {"ops@example.com"},
	"common": {"CN=batch"}, "old": {"old.example.com"}, "unknown": {"unknown.example.com", "CN=nobody"}, "theirs": {"engine.example.com"},
}

// tableRow is a peer with what becomes of its requests.
type tableRow struct {
	listener, token, certificate string
	// auth is what becomes of the token: +, n, or a space if there is none. After a failed auth a
	// connection is what it is without: want is of that. Clients that connect by a library fail then.
	auth string
	pool string // that the connection is about at first, "-" for none
	// want has a character for each of tableRequests, or "closed" and the reason why the connection
	// is closed before it is served.
	want string
}

var tableRows = []tableRow{
	{"unix", "", "", " ", "", everything},
	{"unix", "ops", "", "n", "", everything},
	{"loopback", "", "", " ", "", everything},
	{"loopback", "engines", "", "n", "", everything},
	{"public", "", "", " ", "", readOnly},
	{"public", "ops", "", "n", "", readOnly},
	{"unix allow", "", "", " ", "", "+----- ----- +---"},
	{"loopback allow", "", "", " ", "", "------ +++-- ----"},
	{"public allow", "", "", " ", "", everything},

	{"tokens", "", "", " ", "", pingOnly},
	{"tokens", "engines", "", "+", "", "+-++++ ----- +---"},
	{"tokens", "ops", "", "+", "", everything},
	{"tokens", "default", "", "+", "", everything},
	{"tokens", "writer", "", "+", "", "------ +++-- ----"},
	{"tokens", "resetter", "", "+", "", "------ ---++ +--+"},
	{"tokens", "later", "", "+", "", everything},
	{"tokens", "expired", "", "n", "", pingOnly},
	{"tokens", "other", "", "n", "", pingOnly},
	{"tokens", "wrong", "", "n", "", pingOnly},
	{"public tokens", "", "", " ", "", pingOnly},
	{"public tokens", "engines", "", "+", "", "+-++++ ----- +---"},
	{"public tokens", "ops", "", "+", "", everything},
	{"public tokens", "wrong", "", "n", "", pingOnly},
	{"unix tokens", "", "", " ", "", pingOnly},
	{"unix tokens", "writer", "", "+", "", "------ +++-- ----"},
	{"tokens allow", "", "", " ", "", "+----- ----- -+--"},
	{"tokens allow", "writer", "", "+", "", "------ +++-- ----"}, // those of the listener do not count
	{"tokens allow", "expired", "", "n", "", "+----- ----- -+--"},
	{"other tokens", "other", "", "+", "", everything},
	{"other tokens", "ops", "", "n", "", pingOnly},

	{"tokens", "llama", "", "+", "llama", notOfTenant},
	{"tokens", "two", "", "+", "qwen", "+----- ----- ++-+"},
	{"tokens", "own", "", "+", "", "++++++ +++++ +++r"},
	{"tokens", "gone", "", "+", "-", "rrrrrr rrrrr ++rr"},

	{"tls", "", "", " ", "", everything},
	{"tls", "ops", "", "n", "", everything},
	{"public tls", "", "", " ", "", readOnly},
	{"tls tokens", "", "", " ", "", pingOnly},
	{"tls tokens", "engines", "", "+", "", "+-++++ ----- +---"},
	{"tls tokens", "llama", "", "+", "llama", notOfTenant},
	{"tls tokens", "wrong", "", "n", "", pingOnly},
	{"mutual", "", "", " ", "", failedTLS},
	{"mutual", "", "engine", " ", "", everything},
	{"mutual", "", "unknown", " ", "", everything},
	{"mutual", "", "theirs", " ", "", failedTLS},
	{"public mutual", "", "engine", " ", "", everything},
	{"public mutual", "", "theirs", " ", "", failedTLS},
	{"mutual allow", "", "engine", " ", "", "------ ----- ++--"},
	{"mutual names", "", "", " ", "", failedTLS},
	{"mutual names", "", "engine", " ", "", "+-++++ ----- ----"},
	{"mutual names", "", "spiffe", " ", "qwen", "++++++ +++++ ++rr"},
	{"mutual names", "", "mail", " ", "", "------ ----- ++--"},
	{"mutual names", "", "common", " ", "", everything},
	{"mutual names", "", "unknown", " ", "", pingOnly},
	{"mutual names", "", "theirs", " ", "", failedTLS},
	{"mutual names", "token", "engine", "+", "", "------ --+-- ----"}, // a token replaces the certificate's
	{"mutual names", "wrong", "engine", "n", "", "+-++++ ----- ----"}, // a wrong one does not
	{"mutual names", "wrong", "spiffe", "n", "qwen", "++++++ +++++ ++rr"},
	{"mutual names", "wrong", "unknown", "n", "", pingOnly},
	{"mutual names allow", "", "mail", " ", "", "------ ----- ++--"},
	{"mutual names allow", "", "unknown", " ", "", "+----- ----- ----"},
	{"mutual names", "", "old", " ", "", "closed credential_expired"},
	{"loopback", "", "none", " ", "", "closed bad_first_byte"}, // TLS to a listener without it
	{"tls", "", "plain", " ", "", failedTLS},
}

// tablePools are the hits of the table's lookup in each pool.
var tablePools = map[string]int64{"": 64, "llama": 48, "qwen": 32}

// tableConfig is the configuration of the table but for its listeners.
const tableConfig = `
log: {format: json, level: debug}
metrics: 127.0.0.1:0
pool: {vllm: 0.33.0}
pools: {llama: {model_name: llama}, qwen: {model_name: qwen}}
accept_pools: true
backend: {memory: {max_bytes: 256MiB}}
limits: {handshake_timeout: 1m}
fleet: {models: [{name: m}]}
`

// The lookup of the table is for more tokens than its hashes have, so that all may be a hit.
const tableTokensAsked = 80

var tableHashes = netproto.NewHashes([]byte(strings.Repeat("a", 32)+strings.Repeat("b", 32)+strings.Repeat("c", 32)+strings.Repeat("d", 32)), 32)

// tokenOf returns the text of the token of a name.
func tokenOf(name string) string { return "the-secret-token-of-" + name }

// tableFiles writes the tokens files and certificates of the table.
func tableFiles(t *testing.T) *certificates {
	c := newCertificates(t)
	for name, text := range tableTokens {
		replaceFile(t, filepath.Join(c.dir, name), withTokens(text))
	}
	for name, names := range tableCertificates {
		ca := c.ours
		if name == "theirs" {
			ca = c.theirs
		}
		c.write(name, ca, names...)
	}
	return c
}

// withTokens replaces TOKEN(name) and DIGEST(name) in a tokens file.
func withTokens(text string) string {
	text = regexp.MustCompile(`TOKEN\((\w+)\)`).ReplaceAllString(text, tokenOf("$1"))
	return regexp.MustCompile(`DIGEST\(\w+\)`).ReplaceAllStringFunc(text, func(s string) string {
		digest := sha256.Sum256([]byte(tokenOf(s[len("DIGEST(") : len(s)-1])))
		return hex.EncodeToString(digest[:])
	})
}

// expand replaces DIR, PUBLIC, TLS and MUTUAL in an entry of listen, and port 0 by one that is
// free, as the addresses of a configuration differ.
func (c *certificates) expand(t *testing.T, entry string) string {
	_, port, _ := net.SplitHostPort(storetest.FreeAddr(t))
	entry = strings.Replace(entry, ":0'", ":"+port+"'", 1)
	return strings.NewReplacer("DIR", c.dir, "PUBLIC", c.public, "TLS", c.yaml(false), "MUTUAL", c.yaml(true)).Replace(entry)
}

// tableServer is a server with the listeners of the table.
type tableServer struct {
	*program
	files   *certificates
	address map[string]string // of each listener
	pools   map[string]*client.Client
}

// startTable starts a server with the configuration.
func startTable(t *testing.T, yaml string) *tableServer {
	t.Helper()
	s := &tableServer{files: tableFiles(t), address: map[string]string{}, pools: map[string]*client.Client{}}
	yaml += "listen:\n"
	for _, l := range tableListeners {
		yaml += "  - " + s.files.expand(t, l[1]) + "\n"
	}
	s.program = startProgramWith(t, yaml)
	require.Len(t, s.addresses, len(tableListeners))
	for i, l := range tableListeners {
		s.address[l[0]] = strings.NewReplacer("[::]", "127.0.0.1", "0.0.0.0", "127.0.0.1").Replace(s.addresses[i])
	}
	for pool := range tablePools {
		c, err := peer{address: s.address["unix"]}.dial(namePool(pool)...)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		s.pools[pool] = c
	}
	return s
}

// namePool returns the option for a pool, none for the server's own.
func namePool(pool string) []client.Option {
	if pool == "" {
		return nil
	}
	return []client.Option{client.WithPoolName(pool)}
}

// fill stores the hits of tablePools.
func (s *tableServer) fill() {
	s.t.Helper()
	for pool, hit := range tablePools {
		require.NoError(s.t, s.pools[pool].Store(context.Background(), netproto.GroupRank{}, netproto.NewHashes(tableHashes.Bytes()[:2*hit], 32)))
	}
}

// peer returns the peer of a row.
func (s *tableServer) peer(row tableRow) peer {
	p := peer{address: s.address[row.listener]}
	if row.token != "" {
		p.token = tokenOf(row.token)
	}
	switch isTLS := strings.HasPrefix(p.address, "tls://"); {
	case row.certificate == "plain":
		p.address = strings.Replace(p.address, "tls://", "tcp://", 1)
	case row.certificate == "none":
		p.address, p.tls = strings.Replace(p.address, "tcp://", "tls://", 1), s.files.client(s.t, "")
	case isTLS:
		p.tls = s.files.client(s.t, row.certificate)
	}
	return p
}

// counts are the counters of refused peers, by a name: "auth", "closed" and a reason, "not allowed"
// and a request.
type counts map[string]int64

// counts returns the counters now, without zeros.
func (s *tableServer) counts() counts {
	stat := statOf(s.t, s.pools[""])
	c := counts{"auth": stat.AuthFailures}
	for request, n := range stat.NotAllowed {
		c["not allowed "+request] = n
	}
	for reason, n := range stat.Closed {
		if reason != "peer" && reason != "zmtp_mechanism" {
			c["closed "+reason] = n
		}
	}
	return c
}

// awaitCounts waits until the counters have grown by at least those of want, as connections are
// closed behind the client's back, and checks that they have not grown by more.
func (s *tableServer) awaitCounts(before, want counts, what string) {
	s.t.Helper()
	var grown counts
	deadline := time.Now().Add(storetest.Timeout)
	for once := true; once || time.Now().Before(deadline) && !s.t.Failed(); time.Sleep(time.Millisecond) {
		once = false
		grown = counts{}
		for name, n := range s.counts() {
			if n != before[name] {
				grown[name] = n - before[name]
			}
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(want)), func(name string) bool { return grown[name] < want[name] }) {
			break
		}
	}
	assert.Equal(s.t, want, grown, what)
}

// add adds what the outcome of a row's requests counts, and further counters.
func (c counts) add(outcome string, more ...string) {
	for i, request := range tableRequests[:len(outcome)] {
		if outcome[i] == '-' {
			c["not allowed "+request]++
		}
	}
	for _, name := range more {
		c[name]++
	}
}

// expected returns what a client of a kind is to see of a row, and what is counted beside requests
// that are not allowed: "raw" is a connection without a library, "go", "go pipe" and "python" are the
// clients, "zmq" is libzmq with the token as its password.
func (row tableRow) expected(kind string) (outcome string, counted []string) {
	failed := strings.Repeat("n", len(tableRequests))
	reason, isClosed := strings.CutPrefix(row.want, "closed ")
	switch {
	case isClosed:
		return "x", []string{"closed " + reason}
	case row.auth != "n":
	case kind == "raw":
		counted = []string{"auth"}
	case kind == "zmq" && !strings.Contains(row.listener, "tokens"):
		return failed, nil // the server's mechanism is NULL: either side may close first
	case kind == "zmq":
		return failed, []string{"auth", "closed zmtp_credentials"}
	default:
		return failed, []string{"auth"}
	}
	outcome = strings.ReplaceAll(row.want, " ", "")
	if kind == "python" { // which has no such call
		at := slices.Index(tableRequests, "explain")
		outcome = outcome[:at] + " " + outcome[at+1:]
	}
	return outcome, counted
}

func TestAccessTable(t *testing.T) {
	s := startTable(t, tableConfig)
	for _, row := range tableRows {
		for kind, outcomeOf := range map[string]func(*testing.T, tableRow, peer) string{"raw": rawOutcome, "go": goOutcome, "go pipe": pipeOutcome} {
			s.fill()
			before := s.counts()
			outcome, counted := row.expected(kind)
			what := fmt.Sprintf("%s: %+v", kind, row)
			assert.Equal(t, outcome, outcomeOf(t, row, s.peer(row)), what)
			want := counts{}
			want.add(outcome, counted...)
			s.awaitCounts(before, want, what)
		}
	}
}

// The Python client and libzmq see the same.
func TestAccessTableFromPython(t *testing.T) {
	python := storetest.PyzmqPython(t)
	s := startTable(t, tableConfig)
	job := pythonJob{Unix: s.address["unix"], Pools: tablePools}
	want, kinds, all := counts{}, []string{}, []tableRow{}
	for _, row := range tableRows {
		for _, kind := range []string{"python", "zmq"} {
			p := s.peer(row)
			if kind == "zmq" && (p.tls != nil || strings.HasPrefix(row.want, "closed")) {
				continue
			}
			outcome, counted := row.expected(kind)
			want.add(outcome, counted...)
			all, kinds = append(all, row), append(kinds, kind)
			job.Peers = append(job.Peers, s.pythonPeer(kind, row, p))
		}
	}
	before := s.counts()
	replies, _ := job.run(t, python)
	for i := range replies {
		outcome, _ := all[i].expected(kinds[i])
		if kinds[i] == "zmq" { // nothing says why a request is refused
			outcome = strings.ReplaceAll(outcome, "r", "-")
		}
		assert.Equal(t, outcome, pythonOutcome(t, kinds[i], all[i], replies[i]), "%s: %+v", kinds[i], all[i])
	}
	s.awaitCounts(before, want, "what Python did")
}
