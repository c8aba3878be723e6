package main

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/eventstest"
	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup/server"
)

// routerPrompt returns token ids as --tokens-file takes them, and the hashes of their whole blocks of 16.
func routerPrompt(t *testing.T, tokens int) (ids string, hashes [][]byte) {
	t.Helper()
	for i := range tokens {
		ids += fmt.Sprintln(i % 7)
	}
	got := hitline(t, ids, "hash")
	require.Equal(t, exitDone, got.code, got.stderr)
	for line := range strings.FieldsSeq(got.stdout) {
		hash, err := hex.DecodeString(line)
		require.NoError(t, err)
		hashes = append(hashes, hash)
	}
	return ids, hashes
}

// routerConfig is a server with a router of two engines, one of them with two ranks.
func routerConfig(engines ...*eventstest.Publisher) string {
	sources := ""
	for i, p := range engines {
		sources += fmt.Sprintf("    - {name: s%d, instance_id: engine-%d, dp_rank: %d, endpoint: \"%s\", replay_endpoint: \"%s\"}\n", i, i/2, i%2, p.Endpoint, p.Replay)
	}
	return "metrics: 127.0.0.1:0\npool: {vllm: 0.33.0}\nrouter:\n  listen: 127.0.0.1:0\n  models: [{name: llama, hash: {type: vllm}}]\n  sources:\n" + sources
}

// hexKeys returns hashes as lines for the commands.
func hexKeys(hashes [][]byte) string {
	var lines strings.Builder
	for _, h := range hashes {
		lines.WriteString(hex.EncodeToString(h) + "\n")
	}
	return lines.String()
}

// The router follows the events of engines. The command, HTTP, metrics and /status say who has what, and what the
// pool can load.
func TestServeRouter(t *testing.T) {
	engines := []*eventstest.Publisher{eventstest.New(t), eventstest.New(t), eventstest.New(t)}
	ids, hashes := routerPrompt(t, 16*8+5)
	require.Len(t, hashes, 8)
	engines[0].Publish(false, eventstest.Stored(nil, hashes[:2]...))
	engines[1].Publish(false, eventstest.Stored(nil, hashes[:3]...))
	engines[2].Publish(false, eventstest.Stored(nil, hashes...), eventstest.Removed(hashes[6]))
	s := startServe(t, routerConfig(engines...))
	require.NotEmpty(t, s.router)

	ask := func(args ...string) result {
		return hitline(t, ids, append([]string{"holders", "--connect", s.router, "--tokens-file", "-"}, args...)...)
	}
	const want = `engine    tokens  GPU  ranks
engine-1  96      96   0: 96
engine-0  48      48   0: 32, 1: 48
`
	const unsure = "unsure: engine-0 (unchecked), engine-1 (unchecked)\n" // the events have no tokens
	storetest.Eventually(t, "all events are applied", func() bool { return ask().stdout == want+unsure })
	assert.Equal(t, result{exitDone, want, ""}, hitline(t, hexKeys(hashes), "holders", "--connect", "http://"+s.router+"/", "--hashes-file", "-", "--model", "llama", "--tenant", "default"))
	assert.Equal(t, "engine    tokens  GPU  ranks\nengine-0  48      48   0: 32, 1: 48\nunsure: engine-0 (unchecked)\n", ask("--engine", "engine-0").stdout)
	const none = "no engine has the first whole block; hitline router lists those that are followed\n"
	assert.Equal(t, none+unsure, ask("--salt", "x").stdout)
	assert.Equal(t, result{exitDone, none + "unsure: nope (unknown)\n", "hitline: the server follows no engine \"nope\"; hitline router lists them\n"}, ask("--engine", "nope"))
	assert.Empty(t, ask("--engine", "engine-0", "--salt", "x").stderr)
	assert.Equal(t, none+unsure, ask("--lora", "x", "--lora-path", "/x").stdout)
	assert.Equal(t, none+unsure, hitline(t, strings.Repeat("1 ", 16), "holders", "--connect", s.router, "--tokens-file", "-").stdout)

	// The pool has four blocks of the prompt. The last token is computed by an engine in any case.
	stored := hitline(t, hexKeys(hashes[:4]), "store", "--connect", s.address, "--hashes-file", "-")
	require.Equal(t, exitDone, stored.code, stored.stderr)
	assert.Equal(t, want+"the store can load 64 tokens\n"+unsure, ask("--loadable").stdout)
	assert.Equal(t, want+"the store can load 48 tokens\n", hitline(t, hexKeys(hashes), "holders", "--connect", s.router, "--hashes-file", "-", "--loadable", "--tokens", "64").stdout)
	assert.Equal(t, `{"instances":{"engine-1":{"longest_matched":96,"gpu":96,"cpu":0,"disk":0,"dp":{"0":96}},`+
		`"engine-0":{"longest_matched":48,"gpu":48,"cpu":0,"disk":0,"dp":{"0":32,"1":48}}},"tenant_id":"default","loadable_tokens":64,`+
		`"unsure":{"engine-0":["unchecked"],"engine-1":["unchecked"]},"unsure_ranks":{"engine-0":{"0":["unchecked"],"1":["unchecked"]},"engine-1":{"0":["unchecked"]}}}`+"\n", ask("--loadable", "--json").stdout)

	state := hitline(t, "", "router", "--connect", s.router)
	assert.Regexp(t, `^model  engine    rank  state  last event  blocks  problem
llama  engine-0  0     live   \d+s ago +2       -
llama  engine-0  1     live   \d+s ago +3       the batches are of data-parallel rank 0, .*
llama  engine-1  0     live   \d+s ago +7       -
model llama: 7 different blocks in 1 of 1024 MiB
$`, state.stdout)
	assert.Regexp(t, `^\{"time":"[^"]+","models":\[\{.*"next_sequence":`, hitline(t, "", "router", "--connect", s.router, "--json").stdout)

	api := &testServer{metrics: s.router}
	const asJSON = "Content-Type: application/json"
	code, reply := api.send(t, "POST", "/query", `{"model": "llama", "block_size": 16, "token_ids": [`+strings.Join(strings.Fields(ids), ",")+`]}`, asJSON)
	assert.Equal(t, 200, code, reply)
	assert.JSONEq(t, `{"instances": {"engine-0": {"longest_matched": 48, "gpu": 48, "cpu": 0, "disk": 0, "dp": {"0": 32, "1": 48}},
		"engine-1": {"longest_matched": 96, "gpu": 96, "cpu": 0, "disk": 0, "dp": {"0": 96}}}, "tenant_id": "default",
		"unsure": {"engine-0": ["unchecked"], "engine-1": ["unchecked"]},
		"unsure_ranks": {"engine-0": {"0": ["unchecked"], "1": ["unchecked"]}, "engine-1": {"0": ["unchecked"]}}}`, reply)
	code, reply = api.get(t, "GET", "/ready")
	assert.Equal(t, 200, code, reply)
	code, _ = api.send(t, "POST", "/query", `{}`, asJSON, "Origin: http://evil.example")
	assert.Equal(t, 403, code)

	o := &testServer{address: s.address, metrics: s.metrics}
	_, body := o.get(t, "GET", "/metrics")
	for _, line := range []string{
		`hitline_router_source_blocks{source="s2"} 7`, `hitline_router_holders{model="llama",tenant="default"} 3`, `hitline_router_stale_holders{model="llama",tenant="default"} 0`,
		`hitline_router_source_info{endpoint="` + engines[1].Endpoint + `",engine="engine-0",model="llama",rank="1",source="s1",tenant="default"} 1`,
		`hitline_router_http_requests_total{code="403",path="/query"} 1`, `hitline_router_http_request_duration_seconds_count{path="/ready"} 1`,
	} {
		assert.Contains(t, body, "\n"+line+"\n")
	}
	_, body = o.get(t, "GET", "/status")
	assert.Contains(t, body, `"router":{"models":[{"tenant_id":"default","model":"llama","block_size":16,"configured":true,"pool":"","hashes_differ":false,"blocks":`)
	assert.Contains(t, s.log.String(), `"msg":"following KV events","source":"s0"`)

	engines[2].Publish(false, eventstest.Cleared())
	storetest.Eventually(t, "an engine has cleared its cache", func() bool { return !strings.Contains(ask().stdout, "engine-1  ") })

	for _, e := range engines {
		e.Close()
	}
	const stale = "unsure: engine-0 (stale, unchecked), engine-1 (stale, unchecked)\n"
	storetest.Eventually(t, "no engine is there", func() bool { return ask().stdout == none+stale })
	assert.Contains(t, ask("--last-known").stdout, "engine-0  48")
	assert.Regexp(t, `(?m)^llama  engine-1  0     stale  .* ago +0 +\S.*$`, hitline(t, "", "router", "--connect", s.router).stdout)
}

// That no engine is known to hash token ids as the server does comes first, with what to set. If every engine hashes
// otherwise, nothing else is said.
func TestHoldersOfDifferingEngines(t *testing.T) {
	engines := []*eventstest.Publisher{eventstest.New(t), eventstest.New(t)}
	for n := range 2 {
		event := eventstest.Stored(nil, []byte{byte(n), 1, 2, 3, 4, 5, 6, 7})
		event["token_ids"] = slices.Repeat([]any{n}, 16)
		engines[0].Publish(false, event)
	}
	ids, hashes := routerPrompt(t, 32)
	hash := hexKeys(hashes)
	const why = `no known way to hash fits: the engine's PYTHONHASHSEED is probably another; give its text as seed in the model's hash`
	s := startServe(t, routerConfig(engines...))
	ask := func(stdin, file string) result { return hitline(t, stdin, "holders", "--connect", s.router, file, "-") }
	storetest.Eventually(t, "the hashes differ", func() bool {
		return strings.Contains(ask(ids, "--tokens-file").stdout, "unsure: engine-0 (differ)")
	})
	storetest.Eventually(t, "the command says why", func() bool {
		return ask(ids, "--tokens-file").stderr == "hitline: no engine of model \"llama\" is known to hash token ids as its hash says: "+why+"\n"
	})
	assert.Empty(t, ask(hash, "--hashes-file").stderr)

	s = startServe(t, routerConfig(engines[0]))
	storetest.Eventually(t, "all differ", func() bool { return ask(ids, "--tokens-file").code == exitFailed })
	assert.Equal(t, "hitline: http://"+s.router+": refused by the server: the engines hash tokens otherwise than the model's hash says, "+
		"see hashes_reason in /services; ask by hashes, or configure it: model \"llama\" (hashes_differ)\n", ask(ids, "--tokens-file").stderr)
	assert.Equal(t, exitDone, ask(hash, "--hashes-file").code)
}

// What the command is refused for exits with 1, a server that is not there with 3.
func TestHoldersRefused(t *testing.T) {
	s := startServe(t, "router: {listen: \"127.0.0.1:0\", models: [{name: a, block_size: 64}, {name: b, block_size: 16}]}\n")
	for _, ofPools := range []string{"the index is empty", "no release is given"} {
		assert.NotContains(t, s.log.String(), ofPools)
	}
	hash := strings.Repeat("ab", 32) + "\n"
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("ids", []byte("1 2 3"), 0o600))
	for line, want := range map[string]string{
		"--hashes-file -":                      "there is no such model: tenant \"default\" has several; name a model (no_model)",
		"--hashes-file - --model d":            "there is no such model",
		"--hashes-file - --model a --tenant t": "there is no such model",
		"--tokens-file ids --model a":          "(no_hashing)",
	} {
		got := hitline(t, hash, append([]string{"holders", "--connect", s.router}, strings.Fields(line)...)...)
		assert.Equal(t, exitFailed, got.code, "%s: %s", line, got.stderr)
		assert.Empty(t, got.stdout, line)
		assert.Contains(t, got.stderr, "hitline: http://"+s.router+": ", line)
		assert.Contains(t, got.stderr, want, line)
		assert.Equal(t, 1, strings.Count(got.stderr, "\n"), got.stderr)
		got = hitline(t, hash, append([]string{"holders", "--json", "--connect", s.router}, strings.Fields(line)...)...)
		assert.Regexp(t, `^\{"error":".*","exit":1\}\n$`, got.stdout, line)
	}
	for address, want := range map[string]string{storetest.FreeAddr(t): "connection refused", s.address: "the server does not speak HTTP; give the address of router.listen, with https:// if it has TLS",
		"https://" + s.router: "the server has no TLS, so give http://"} {
		got := hitline(t, hash, "holders", "--connect", strings.TrimPrefix(address, "tcp://"), "--hashes-file", "-")
		assert.Equal(t, exitNoConnection, got.code, "%s: %s", address, got.stderr)
		assert.Contains(t, got.stderr, want, address)
	}
}

// [::] is an address of both families, wherever it is listened on.
func TestBothFamilies(t *testing.T) {
	config := "listen: [\"tcp://[::]:0\"]\nmetrics: \"[::]:0\"\nrouter: {listen: \"[::]:0\", models: [{name: a, block_size: 16}]}\n"
	s := awaitReady(t, func(ctx context.Context, log io.Writer) int {
		return run(ctx, []string{"serve", "--config", configFile(t, config+"log: {format: json}\n")}, nil, io.Discard, log)
	})
	for _, address := range []string{strings.TrimPrefix(s.address, "tcp://"), s.metrics, s.router} {
		host, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		require.Equal(t, "::", host)
		for _, local := range []string{"127.0.0.1", "::1"} {
			conn, err := net.Dial("tcp", net.JoinHostPort(local, port))
			require.NoError(t, err, address)
			require.NoError(t, conn.Close())
		}
	}
}

// A server starts from what its peer holds, with the peer's token. A peer that has nothing is left out.
func TestRouterPeers(t *testing.T) {
	engine := eventstest.New(t)
	ids, hashes := routerPrompt(t, 64)
	engine.Publish(false, eventstest.Stored(nil, hashes...))
	dir := t.TempDir()
	token := strings.Repeat("t", 32)
	tokens, own := filepath.Join(dir, "tokens.yaml"), filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(tokens, []byte("tokens: [{name: peer, token: "+token+", allow: all}]\n"), 0o600))
	require.NoError(t, os.WriteFile(own, []byte(token+"\n"), 0o600))
	config := routerConfig(engine)
	first := startServe(t, strings.Replace(config, "  listen: 127.0.0.1:0\n", "  listen: {address: 127.0.0.1:0, tokens: "+tokens+"}\n", 1))
	ask := func(s *testServer, args ...string) string {
		return hitline(t, ids, append([]string{"holders", "--connect", s.router, "--tokens-file", "-"}, args...)...).stdout
	}
	const want = "engine    tokens  GPU  ranks\nengine-0  64      64   0: 64\nunsure: engine-0 (unchecked)\n"
	storetest.Eventually(t, "the first server has the events", func() bool { return ask(first, "--token-file", own) == want })

	closing := strings.TrimPrefix(listenAndReply(t, hangUp), "tcp://")
	peers := func(lines string) string { return config + "  peers: [" + lines + "]\n" }
	second := startServe(t, peers("\"http://"+closing+"\", \"http://"+first.router+"\"")+"  peer_token_file: "+own+"\n")
	o := &testServer{metrics: second.metrics}
	storetest.Eventually(t, "the second is ready", func() bool { status, _ := o.get(t, "GET", "/readyz"); return status == 200 })
	assert.Equal(t, want, ask(second), "it is ready with what the first has")
	log := second.log.String()
	assert.Contains(t, log, `"msg":"router: a peer has no dump for us","peer":"http://`+closing)
	assert.Contains(t, log, `"msg":"router: loaded what a peer holds","peer":"http://`+first.router)

	third := startServe(t, peers("\"http://"+first.router+"\""))
	assert.Contains(t, third.log.String(), "send Authorization: Bearer TOKEN", "without the token it starts empty")
	storetest.Eventually(t, "the events are replayed", func() bool { return ask(third) == want })
}

// While a peer is awaited, the server is not ready, refuses queries over HTTP, and a signal stops it.
func TestRouterLoading(t *testing.T) {
	asked := make(chan net.Conn, 1)
	peer := strings.TrimPrefix(listenAndServe(t, func(conn net.Conn) {
		buf := make([]byte, 1<<10)
		if n, err := conn.Read(buf); err == nil && n > 0 {
			asked <- conn
			_, _ = conn.Read(buf) // until the server gives up
		}
	}), "tcp://")
	free, metricsAddr := storetest.FreeAddr(t), storetest.FreeAddr(t)
	var log logtest.Buffer
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	code := make(chan int, 1)
	go func() {
		file := configFile(t, "metrics: "+metricsAddr+"\nrouter: {listen: \""+free+"\", peers: [\"http://"+peer+"\"], models: [{name: m, block_size: 16}]}\n")
		code <- run(ctx, []string{"serve", "--listen", "127.0.0.1:0", "--config", file}, nil, io.Discard, &log)
	}()
	<-asked
	api, o := &testServer{metrics: free}, &testServer{metrics: metricsAddr}
	status, body := api.send(t, "POST", "/query_by_hash", `{"model": "m", "seq_hashes": []}`, "Content-Type: application/json")
	assert.Equal(t, 503, status)
	assert.Contains(t, body, `{"error":{"code":"not_ready"`)
	status, body = api.get(t, "GET", "/ready")
	assert.Equal(t, 503, status)
	assert.Contains(t, body, "loading what a peer of the router holds")
	status, _ = api.get(t, "GET", "/health")
	assert.Equal(t, 200, status)
	status, body = o.get(t, "GET", "/readyz")
	assert.Equal(t, 503, status)
	assert.Equal(t, "not ready: loading what a peer of the router holds\n", body)
	stop()
	assert.Equal(t, exitNoConnection, <-code)
	assert.Contains(t, log.String(), "stopped before it was ready")
}

// The HTTP listener has tokens and TLS as the others, and takes new ones while the server runs.
func TestRouterListener(t *testing.T) {
	dir, ca := t.TempDir(), certtest.NewCA("ca")
	cert, key := certtest.WriteFiles(dir, "server", ca.Leaf("127.0.0.1"))
	tokens := filepath.Join(dir, "tokens.yaml")
	router, admin := strings.Repeat("r", 32), strings.Repeat("a", 32)
	writeAt(t, tokens, "tokens: [{name: router, token: "+router+", allow: [holders]}, {name: admin, token: "+admin+", allow: all}]\n", 1)
	s := startServe(t, "router:\n  listen: {address: \"tls://127.0.0.1:0\", tokens: "+tokens+", tls: {cert: "+cert+", key: "+key+"}}\n"+
		"  models: [{name: m, block_size: 16}]\n")
	plain := hitline(t, "00", "holders", "--connect", s.router, "--hashes-file", "-")
	assert.Equal(t, result{exitFailed, "", "hitline: http://" + s.router + ": refused by the server: 400 Bad Request; it has TLS, so give https://\n"}, plain)
	_, err := tls.Dial("tcp", s.router, &tls.Config{RootCAs: ca.Pool(), MaxVersion: tls.VersionTLS12})
	assert.ErrorContains(t, err, "protocol version")
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}}}
	defer client.CloseIdleConnections()
	ask := func(path, body, token string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.router+path, strings.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		reply, err := client.Do(request)
		require.NoError(t, err)
		defer reply.Body.Close()
		text, err := io.ReadAll(reply.Body)
		require.NoError(t, err)
		return reply.StatusCode, string(text)
	}
	const query = `{"model": "m", "seq_hashes": [1]}`
	status := func(path, body, token string) int {
		t.Helper()
		code, _ := ask(path, body, token)
		return code
	}
	assert.Equal(t, 401, status("/query_by_hash", query, ""))
	assert.Equal(t, 401, status("/query_by_hash", query, strings.Repeat("x", 32)))
	assert.Equal(t, 200, status("/query_by_hash", query, router))
	assert.Equal(t, 403, status("/predict", `{"model": "m", "instance_id": "i", "seq_hashes": [1]}`, router))
	assert.Equal(t, 403, status("/unregister", `{}`, router))
	assert.Equal(t, 200, status("/predict", `{"model": "m", "instance_id": "i", "seq_hashes": [1]}`, admin))
	_, body := ask("/query_by_hash", query, router)
	assert.JSONEq(t, `{"instances": {"i": {"longest_matched": 16, "gpu": 0, "cpu": 0, "disk": 0, "dp": {"0": 16}, "media": {"predicted": 16}}}, "tenant_id": "default"}`, body)

	routerFile := filepath.Join(dir, "router")
	require.NoError(t, os.WriteFile(routerFile, []byte(router+"\n"), 0o600))
	command := func(args ...string) result {
		return hitline(t, "0000000000000001\n", append([]string{"holders", "--connect", "https://" + s.router, "--hashes-file", "-"}, args...)...)
	}
	got := command("--tls-ca", ca.WriteFile(filepath.Join(dir, "ca.pem")), "--token-file", routerFile)
	assert.Equal(t, result{exitDone, "engine  tokens  predicted  ranks\ni       16      16         0: 16\n", ""}, got)
	assert.Equal(t, exitFailed, command("--tls-ca", filepath.Join(dir, "ca.pem")).code, "without the token")
	assert.Equal(t, exitNoConnection, command("--token-file", routerFile).code, "the certificate is not trusted")

	writeAt(t, tokens, "tokens: [{name: admin, token: "+admin+", allow: all}]\n", 2)
	storetest.Eventually(t, "the token is gone, over a connection that was open, too", func() bool { return status("/query_by_hash", query, router) == 401 })
	assert.Equal(t, 200, status("/query_by_hash", query, admin))
}

// Requests over HTTP hold five eighths of limits.max_memory, one request three eighths of that. Its token ids take 8 bytes each.
func TestRouterRequestMemory(t *testing.T) {
	s := startServe(t, "limits: {max_memory: 24MiB}\nrouter: {listen: 127.0.0.1:0, models: [{name: llama, block_size: 16}]}\n")
	body := `{"model": "llama", "token_ids": [0` + strings.Repeat(",0", 1_000_000) + `]}`
	code, reply := (&testServer{metrics: s.router}).send(t, "POST", "/query", body, "Content-Type: application/json")
	assert.Equal(t, 413, code)
	assert.Contains(t, reply, "more than 5898240 bytes of memory")
}

// A reload changes what the HTTP listener allows, and names what else of the section needs a restart.
func TestReloadRouter(t *testing.T) {
	r := newTestReloader(t, "router: {listen: 127.0.0.1:8557, models: [{name: a, block_size: 16}]}\n")
	r.router = &atomic.Pointer[server.Settings]{}
	r.reload()
	assert.Equal(t, []string{`level=INFO msg=reloaded changed=[]`}, r.lines())
	assert.Nil(t, r.router.Load())
	r.write("router: {listen: {address: 127.0.0.1:8557, allow: [holders]}, models: [{name: b, block_size: 16}]}\n")
	for range 2 {
		r.reload()
		lines := r.lines()
		assert.Equal(t, `level=WARN msg="some changes need a restart" fields=[router.models]`, lines[len(lines)-1])
	}
	assert.Equal(t, []string{"holders"}, r.router.Load().Rules.Anonymous.Names())
	assert.Empty(t, r.srv.take())
	r.write("router: {models: [{name: a, block_size: 16}]}\n")
	r.reload()
	lines := r.lines()
	assert.Equal(t, `level=WARN msg="some changes need a restart" fields=[router.listen]`, lines[len(lines)-1])
}

// What stays open to other machines, and what they can read on the way, is said by --check.
func TestRouterCheckWarnings(t *testing.T) {
	file := configFile(t, "metrics: 0.0.0.0:9557\npprof: true\nrouter:\n  listen: {address: \"10.0.0.1:8557\", allow: all}\n"+
		"  peers: [\"http://10.0.0.2:8557\"]\n  peer_token_file: "+writeToken(t, theToken)+"\n  models: [{name: m, block_size: 16}]\n")
	got := hitline(t, "", "serve", "--check", "--config", file)
	assert.Equal(t, exitDone, got.code, got.stderr)
	for _, place := range []string{":2:8: pprof: ", ":4:3: router.listen: ", ":5:11: router.peers[0]: the token goes to http://10.0.0.2:8557 in plain text"} {
		assert.Equal(t, 1, strings.Count(got.stderr, "hitline: warning: "+file+place), "%s\n%s", place, got.stderr)
	}
	assert.Equal(t, 3, strings.Count(got.stderr, "\n"), got.stderr)
}

// What is wrong with the section ends serve before anything is bound, and --check tells it too.
func TestRouterConfigErrors(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"router: {listen: \"127.0.0.1:0\", register: [\"udp://a:1\"]}\n", "router.register"},
		{"router: {peers: [\"http://127.0.0.1:1\"], peer_token_file: /no/such}\n", "router.peer_token_file: "},
		{"router: {listen: {address: \"127.0.0.1:0\", tokens: /no/such}, models: [{name: m, block_size: 16}]}\n", "router.listen.tokens: cannot read it"},
	} {
		file := configFile(t, test.text)
		got := hitline(t, "", "serve", "--listen", "tcp://127.0.0.1:0", "--config", file)
		assert.Equal(t, exitUsage, got.code, "%s: %s", test.text, got.stderr)
		assert.Contains(t, got.stderr, test.want)
		assert.NotContains(t, got.stderr, "following KV events")
		got = hitline(t, "", "serve", "--check", "--config", file)
		assert.Equal(t, exitUsage, got.code, "%s: %s", test.text, got.stderr)
	}
}

// A server that stops no longer takes HTTP requests while it answers those in flight.
func TestRouterDrains(t *testing.T) {
	o := startServe(t, metricsHere+"router: {listen: \"127.0.0.1:0\", models: [{name: m, block_size: 16}]}\n")
	require.NotEmpty(t, o.router)
	api := &testServer{metrics: o.router}
	status, _ := api.get(t, "GET", "/ready")
	assert.Equal(t, 200, status)
	conn := beginPing(t, o.address)
	o.stop()
	storetest.Eventually(t, "the HTTP listener is closed while a request is in flight", func() bool {
		c, err := net.Dial("tcp", o.router)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	status, _ = o.get(t, "GET", "/readyz")
	assert.Equal(t, 503, status, "the server still drains")
	_, err := io.WriteString(conn, "ng\x00\x00")
	require.NoError(t, err)
	<-o.done
}
