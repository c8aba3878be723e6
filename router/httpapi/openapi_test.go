package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

// testAPI is a service with all that is needed for each documented reply, and servers of it with different limits.
type testAPI struct {
	t        *testing.T
	service  *router.Service
	endpoint string // that may be registered and nobody listens at
	normal   *httptest.Server
	small    *httptest.Server // with small limits
	hasty    *httptest.Server // with a short time for replies
	busy     *httptest.Server
	closed   *httptest.Server // of a service that is closed
	dumping  *httptest.Server // while a dump is read
	broken   *httptest.Server // whose Ready panics
	notReady *httptest.Server
}

// tokenRules have a token that may do everything, and one that may do nothing.
func tokenRules(t testing.TB) *access.Rules {
	t.Helper()
	rules, err := access.NewRules(0, []access.Credential{
		{Name: "admin", Digest: access.DigestOf([]byte("all")), Permissions: access.All},
		{Name: "nobody", Digest: access.DigestOf([]byte("none"))},
	})
	require.NoError(t, err)
	return rules
}

func newTestAPI(t *testing.T) *testAPI {
	f := &testAPI{t: t, endpoint: deadEndpoint(t)}
	models, gate := f.models()
	t.Cleanup(func() { close(gate.Open) })
	cfg := router.Config{Models: models, Allow: []string{f.endpoint, "tcp://127.0.0.1:1"}, MaxModels: len(models) + 1}
	f.service = newService(t, cfg)
	closed := newService(t, cfg)
	require.NoError(t, closed.Register(f.source("gone", 0)))
	closed.Close()
	byRules := ByRules(func() *access.Rules { return tokenRules(t) })
	authorize := func(r *http.Request) (Access, error) {
		if r.Header.Get("X-Panic") != "" {
			panic("a test wants it")
		}
		return byRules(r)
	}
	with := func(change func(*Config)) *httptest.Server {
		c := Config{
			Service: f.service, Authorize: authorize, Local: true,
		}
		if change != nil {
			change(&c)
		}
		server := httptest.NewServer(New(c))
		t.Cleanup(server.Close)
		return server
	}
	f.normal = with(nil)
	f.small = with(func(c *Config) { c.Limits = Limits{MaxBody: 600, BodyTimeout: 200 * time.Millisecond} })
	f.hasty = with(func(c *Config) { c.Limits = Limits{ReplyTimeout: time.Second} })
	f.busy = with(func(c *Config) { c.Limits = Limits{MaxRequests: 1} })
	f.busy.Config.Handler.(*Handler).requests <- struct{}{}
	f.closed = with(func(c *Config) { c.Service = closed })
	f.broken = with(func(c *Config) { c.Ready = func() error { panic("a test wants it") } })
	dumping := dumpingService(t)
	f.dumping = with(func(c *Config) { c.Service = dumping })
	loading := loadingService(t)
	f.notReady = with(func(c *Config) { c.Service, c.Ready = loading, loading.Ready })
	return f
}

// loadingService returns a service that loads the dump of a peer until the end of the test.
func loadingService(t *testing.T) *router.Service {
	peer := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(peer.Close)
	s := newService(t, router.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Start(ctx, router.StartConfig{Peers: []string{peer.URL}, PeerTimeout: time.Hour})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	require.Eventually(t, func() bool { return s.Ready() != nil }, 30*time.Second, time.Millisecond)
	return s
}

// dumpingService returns a service whose dump is read until the end of the test.
func dumpingService(t *testing.T) *router.Service {
	s := newService(t, router.Config{})
	r, w := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.WriteDump(context.Background(), w)
	}()
	_, err := r.Read(make([]byte, 1))
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close(); <-ended })
	return s
}

// models returns the models, and the gate that holds the store of the slow one.
func (f *testAPI) models() ([]router.Model, *lookuptest.Gate) {
	pool := newPool(f.t, 7)
	store, gate := &lookuptest.KeyStore{}, lookuptest.NewGate()
	store.Holding(gate, "exists", "")
	slow, err := lookup.NewService(lookup.ServiceConfig{Pool: pool.Pool(), Backend: store, Remote: lookup.RemoteConfig{Timeout: time.Minute}})
	require.NoError(f.t, err)
	windowPool := pool.Pool()
	windowPool.Groups = []coordinator.Group{{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 32}}
	window, err := lookup.NewService(lookup.ServiceConfig{Pool: windowPool, Memory: index.Config{MaxBytes: 64 << 20}})
	require.NoError(f.t, err)
	named := func(name string, m router.Model) router.Model {
		m.ModelKey = router.ModelKey{Name: name}
		return m
	}
	return []router.Model{
		named("llama", router.Model{Pool: pool, Hash: &router.Hashing{}}),
		named("window", router.Model{Pool: window}),
		named("plain", router.Model{Fleet: fleet.Config{BlockSize: 16}}),
		named("blank", router.Model{}),
		named("slow", router.Model{Pool: slow, Hash: &router.Hashing{}}),
		named("crowded", router.Model{Fleet: fleet.Config{BlockSize: 16, MaxHolders: 1}}),
		named("full", router.Model{Fleet: fleet.Config{BlockSize: 16, MaxBlocks: 1}}),
	}, gate
}

// source is one that may be registered.
func (f *testAPI) source(engine string, rank int) router.Source {
	return router.Source{Name: fmt.Sprint(engine, rank), Endpoint: f.endpoint, Model: llama.Name, Engine: engine, Rank: rank}
}

// exchange is a request, and by default it is right and its sender may do everything.
type exchange struct {
	server       *httptest.Server // nil: the normal one
	method, path string
	host         string // "": the server's
	token        string // "": that of the administrator
	header       map[string]string
	body         string
	stuck        bool // the body is cut off, and nothing follows
}

// reply is what came back.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (f *testAPI) ask(x exchange) reply {
	f.t.Helper()
	if x.server == nil {
		x.server = f.normal
	}
	address := x.server.Listener.Addr().String()
	conn, err := net.Dial("tcp", address)
	require.NoError(f.t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(f.t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	length := len(x.body)
	if x.stuck {
		length += 10
	}
	header := map[string]string{"Host": address, "Authorization": "Bearer all", "Connection": "close"}
	if x.host != "" {
		header["Host"] = x.host
	}
	if x.token != "" {
		header["Authorization"] = "Bearer " + x.token
	}
	if x.method == http.MethodPost {
		header["Content-Type"], header["Content-Length"] = "application/json; charset=utf-8", strconv.Itoa(length)
	}
	maps.Copy(header, x.header)
	text := x.method + " " + x.path + " HTTP/1.1\r\n"
	for name, value := range header {
		text += name + ": " + value + "\r\n"
	}
	_, err = io.WriteString(conn, text+"\r\n"+x.body)
	require.NoError(f.t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(f.t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(f.t, err)
	require.NoError(f.t, response.Body.Close())
	return reply{response.StatusCode, response.Header, body}
}

// right has a request with the status 200 for each operation.
func (f *testAPI) right() map[string]exchange {
	return map[string]exchange{
		"/query":         {body: `{"model": "llama", "tenant_id": "default", "block_size": 16, "token_ids": [1, 2, 3], "lora_name": "a", "lora_path": "/a", "cache_salt": "s", "loadable": true}`},
		"/query_by_hash": {body: `{"modelname": "llama", "block_size": 16, "seq_hashes": ` + hexOf(chain(20)) + `, "loadable": true}`},
		"/predict":       {body: `{"model": "llama", "instance_id": "p", "dp_rank": 3, "seq_hashes": [1, -2, 3]}`},
		"/register":      {body: `{"endpoint": "` + f.endpoint + `", "type": "vLLM", "modelname": "llama", "instance_id": "i", "block_size": 16, "dp_rank": 0, "lora_name": "x", "additionalsalt": ""}`},
		"/unregister":    {body: `{"type": "vLLM", "modelname": "llama", "tenant_id": "default", "instance_id": "i", "block_size": 16, "dp_rank": 0}`},
		"/services":      {}, "/health": {}, "/ready": {}, "/dump": {}, "/openapi.yaml": {},
	}
}

// wrong has for each error code what provokes it, from a request that is right. Codes that need another body in each
// operation are in wrongBodies.
func (f *testAPI) wrong() map[string]func(*exchange) {
	return map[string]func(*exchange){
		"unauthorized":       func(x *exchange) { x.token = "unknown" },
		"forbidden":          func(x *exchange) { x.token = "none" },
		"other_origin":       func(x *exchange) { x.host = "evil.example:80" },
		"method_not_allowed": func(x *exchange) { x.method = http.MethodDelete },
		"slow_body":          func(x *exchange) { x.server, x.stuck = f.small, true; x.body = `{` },
		"too_large":          func(x *exchange) { x.server, x.body = f.small, strings.Repeat(" ", 601) },
		"media_type":         func(x *exchange) { x.header = map[string]string{"Content-Type": "application/x-www-form-urlencoded"} },
		"bad_json":           func(x *exchange) { x.body = `{"model": "llama"` },
		"busy": func(x *exchange) {
			x.server = f.busy
			if x.path == "/dump" {
				x.server = f.dumping
			}
		},
		"internal": func(x *exchange) {
			x.header = map[string]string{"X-Panic": "1"}
			if x.path == "/ready" {
				x.server = f.broken
			}
		},
		"closing":   func(x *exchange) { x.server = f.closed; x.body = strings.Replace(x.body, `"i"`, `"gone"`, 1) },
		"timeout":   func(x *exchange) { x.server = f.hasty },
		"not_ready": func(x *exchange) { x.server = f.notReady },
	}
}

// wrongBodies has for an operation and an error code the body that provokes it.
func (f *testAPI) wrongBodies() map[string]string {
	hashes := hexOf(chain(20))
	register := func(fields string) string { return `{"modelname": "llama", "instance_id": "new", ` + fields + `}` }
	endpoint := `"endpoint": "tcp://127.0.0.1:1"` // where nobody listens, either
	return map[string]string{
		"/query bad_field":        `{"model": "llama"}`,
		"/query bad_tokens":       `{"model": "llama", "token_ids": [1, -1]}`,
		"/query bad_hashes":       `{"model": "llama", "seq_hashes": [1, 2, 3], "loadable": true}`,
		"/query no_model":         `{"model": "qwen", "token_ids": [1]}`,
		"/query no_hashing":       `{"model": "plain", "token_ids": [1]}`,
		"/query no_pool":          `{"model": "plain", "token_ids": [], "loadable": true}`,
		"/query other_block_size": `{"model": "llama", "token_ids": [1], "block_size": 32}`,
		"/query no_block_size":    `{"model": "blank", "token_ids": [1], "block_size": 16}`,
		"/query unanswerable":     `{"model": "window", "seq_hashes": ` + hashes + `, "loadable": true, "num_tokens": 1000000}`,
		"/query timeout":          `{"model": "slow", "seq_hashes": ` + hashes + `, "loadable": true}`,

		"/predict bad_field":        `{"model": "llama", "seq_hashes": [1]}`,
		"/predict bad_tokens":       `{"model": "llama", "instance_id": "p", "token_ids": [2147483648]}`,
		"/predict no_model":         `{"model": "qwen", "instance_id": "p", "token_ids": [1]}`,
		"/predict no_hashing":       `{"model": "plain", "instance_id": "p", "token_ids": [1]}`,
		"/predict other_block_size": `{"model": "plain", "instance_id": "p", "seq_hashes": [1], "block_size": 4}`,
		"/predict no_block_size":    `{"model": "blank", "instance_id": "p", "seq_hashes": [1]}`,
		"/predict too_many":         `{"model": "crowded", "instance_id": "second", "seq_hashes": [1]}`,
		"/predict full":             `{"model": "full", "instance_id": "p", "seq_hashes": [1, 2, 3]}`,

		"/register bad_field":        register(endpoint + `, "dp_rank": "0"`),
		"/register not_allowed":      register(`"endpoint": "tcp://192.0.2.1:5557"`),
		"/register exists":           `{"modelname": "llama", "instance_id": "i", ` + endpoint + `}`,
		"/register other_block_size": register(endpoint + `, "block_size": 32`),
		"/register other_engine":     register(endpoint + `, "type": "SGLang"`),
		"/register no_block_size":    `{"modelname": "blank", "instance_id": "new", ` + endpoint + `}`,
		"/register too_many":         `{"modelname": "another", "block_size": 16, "instance_id": "new", ` + endpoint + `}`,

		"/unregister bad_field":  `{"modelname": "llama"}`,
		"/unregister no_model":   `{"modelname": "qwen", "instance_id": "i"}`,
		"/unregister no_source":  `{"modelname": "llama", "instance_id": "nobody"}`,
		"/unregister configured": `{"modelname": "llama", "instance_id": "fixed"}`,
	}
}

// prepare brings about what some errors need.
func (f *testAPI) prepare() {
	t := f.t
	hold(t, f.service, llama, "vllm-1", 1, "GPU", first(chain(20), 5)) // so that answers have an instance
	require.NoError(t, f.service.Add(f.source("fixed", 0)))
	first := router.Query{Hashes: coordinator.NewHashes(make([]byte, 8), 8)}
	require.NoError(t, f.service.Predict(router.ModelKey{Name: "crowded"}, fleet.ID{Engine: "first"}, &first))
	extra := f.source("m", 0)
	extra.Model, extra.BlockSize = "extra", 16
	require.NoError(t, f.service.Register(extra))
}

// operation is one method of a path in the OpenAPI text.
type operation struct {
	path, method string
	spec         map[string]any
}

func operationsOf(t *testing.T, d document) (list []operation) {
	t.Helper()
	for path, methods := range d["paths"].(map[string]any) {
		for method, spec := range methods.(map[string]any) {
			list = append(list, operation{path, strings.ToUpper(method), spec.(map[string]any)})
		}
	}
	slices.SortFunc(list, func(a, b operation) int { return strings.Compare(a.path, b.path) })
	return list
}

// Every operation is asked for every documented status and error code, and its replies fit their schemas.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	d := parseOpenAPI(t)
	f := newTestAPI(t)
	f.prepare()
	operations := operationsOf(t, d)
	var documented, served []string
	for _, o := range operations {
		documented = append(documented, o.method+" "+o.path)
	}
	for _, e := range endpoints {
		served = append(served, e.method+" "+e.path)
	}
	require.ElementsMatch(t, served, documented)

	right := f.right()
	for _, path := range []string{ // /register before the error of a second one, /unregister at the end
		"/register", "/query", "/query_by_hash", "/predict", "/services", "/health", "/ready", "/dump", "/openapi.yaml", "/unregister",
	} {
		i := slices.IndexFunc(operations, func(o operation) bool { return o.path == path })
		x := right[path]
		x.path, x.method = path, operations[i].method
		f.checkOperation(d, operations[i], x)
		operations = slices.Delete(operations, i, i+1)
	}
	require.Empty(t, operations)
}

// checkOperation asks an operation for all that is documented. For /unregister, what is right comes last.
func (f *testAPI) checkOperation(d document, o operation, right exchange) {
	t := f.t
	responses := o.spec["responses"].(map[string]any)
	succeed := func() {
		if right.body != "" {
			schema := at(o.spec, "requestBody", "content", "application/json", "schema")
			require.NoError(t, d.validateJSON(schema, []byte(right.body)), o.path)
		}
		f.checkReply(d, o, responses["200"], f.ask(right), http.StatusOK, "")
	}
	if o.path != "/unregister" {
		succeed()
	}
	wrong, bodies := f.wrong(), f.wrongBodies()
	for status, spec := range responses {
		codes, _ := at(spec, "x-error-codes").([]any)
		require.Equal(t, status == "200", len(codes) == 0, "%s %s", o.path, status)
		want, err := strconv.Atoi(status)
		require.NoError(t, err)
		for _, code := range codes {
			x := right
			body, ok := bodies[strings.TrimSuffix(o.path, "_by_hash")+" "+code.(string)]
			if ok {
				x.body = body
			}
			if change := wrong[code.(string)]; change != nil {
				change(&x)
			} else {
				require.True(t, ok, "%s: no test provokes %s", o.path, code)
			}
			f.checkReply(d, o, spec, f.ask(x), want, code.(string))
		}
	}
	if o.path == "/unregister" {
		succeed()
	}
}

// checkReply compares a reply with its description.
func (f *testAPI) checkReply(d document, o operation, spec any, r reply, status int, code string) {
	t, what := f.t, fmt.Sprintf("%s %d %s: %.300s", o.path, status, code, r.body)
	require.Equal(t, status, r.status, what)
	for name := range headersOf(spec) {
		require.NotEmpty(t, r.header.Get(name), "%s: %s", what, name)
	}
	for _, name := range []string{"Allow", "Retry-After", "WWW-Authenticate"} {
		_, described := headersOf(spec)[name]
		require.Equal(t, described, r.header.Get(name) != "", "%s: %s", what, name)
	}
	require.Equal(t, "no-store", r.header.Get("Cache-Control"))
	content := at(spec, "content").(map[string]any)
	kind := r.header.Get("Content-Type")
	require.Contains(t, content, kind, what)
	if kind == "application/json" {
		require.NoError(t, d.validateJSON(at(content[kind], "schema"), r.body), what)
	}
	if code != "" {
		var e struct{ Error struct{ Code string } }
		require.NoError(t, json.Unmarshal(r.body, &e))
		require.Equal(t, code, e.Error.Code, what)
	}
	if o.path == "/openapi.yaml" && status == http.StatusOK {
		require.True(t, bytes.Equal(OpenAPI, r.body))
	}
}

func headersOf(spec any) map[string]any {
	m, _ := at(spec, "headers").(map[string]any)
	return m
}

// Every error that the handler knows is documented somewhere with its status.
func TestErrorsAreDocumented(t *testing.T) {
	documented := map[string]bool{}
	for _, o := range operationsOf(t, parseOpenAPI(t)) {
		for status, spec := range o.spec["responses"].(map[string]any) {
			codes, _ := at(spec, "x-error-codes").([]any)
			for _, code := range codes {
				documented[fmt.Sprint(status, " ", code)] = true
			}
		}
	}
	for _, r := range refusals {
		require.True(t, documented[fmt.Sprint(r.status, " ", r.code)], "%d %s: %v", r.status, r.code, r.err)
	}
}
