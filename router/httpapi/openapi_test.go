package httpapi

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/eventstest"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

// testAPI is a service with all that is needed for each documented reply, and servers of it by what is special.
type testAPI struct {
	t       *testing.T
	service *router.Service
	servers map[string]*httptest.Server
}

func newTestAPI(t *testing.T) *testAPI {
	f := &testAPI{t: t, servers: map[string]*httptest.Server{}}
	models, gate := testModels(t)
	t.Cleanup(func() { close(gate.Open) })
	cfg := router.Config{Models: models, Allow: []string{"tcp://127.0.0.1:*"}, MaxModels: len(models) + 1}
	f.service = newService(t, cfg)
	closed := newService(t, cfg)
	require.NoError(t, closed.Register(testSource("llama", "gone")))
	closed.Close()
	rules, err := access.NewRules(0, []access.Credential{
		{Name: "admin", Digest: access.DigestOf([]byte("all")), Permissions: access.All}, {Name: "nobody", Digest: access.DigestOf([]byte("none"))},
	})
	require.NoError(t, err)
	with := func(name string, service *router.Service, limits *limits) {
		server := httptest.NewServer(New(Config{
			Service: service, limits: limits, Ready: service.Ready, Local: true, Authorize: func(r *http.Request) (Access, error) {
				if r.Header.Get("X-Panic") != "" {
					panic("a test wants it")
				}
				return ByRules(func() (*access.Rules, *x509.CertPool) { return rules, nil })(r)
			},
		}))
		t.Cleanup(server.Close)
		f.servers[name] = server
	}
	with("normal", f.service, nil)
	with("small", f.service, &limits{600, 200 * time.Millisecond, time.Minute})
	with("hasty", f.service, &limits{6000, time.Second, time.Second})
	with("busy", f.service, &limits{600, time.Second, time.Minute})
	busy := f.servers["busy"].Config.Handler.(*Handler).memory
	require.True(t, busy.admission.Admit(DefaultMaxMemory, true, 0))
	with("closed", closed, nil)
	loading := f.servers["normal"].Config.Handler.(*Handler).cfg
	loading.Loaded, loading.Ready = func() bool { return false }, func() error { return router.ErrLoading }
	f.servers["notReady"] = httptest.NewServer(New(loading))
	t.Cleanup(f.servers["notReady"].Close)
	return f
}

// testModels returns the models, and the gate that holds the store of the slow one.
func testModels(t *testing.T) ([]router.Model, *lookuptest.Gate) {
	pool := newPool(t, 7)
	store, gate := &lookuptest.KeyStore{}, lookuptest.NewGate()
	store.Holding(gate, "exists", "")
	slow, err := lookup.NewService(lookup.ServiceConfig{Pool: pool.Pool(), Backend: store, Remote: lookup.RemoteConfig{Timeout: time.Minute}})
	require.NoError(t, err)
	windowPool := pool.Pool()
	windowPool.Groups = []coordinator.Group{{Kind: coordinator.SlidingWindow, BlockSize: 16, SlidingWindow: 32}}
	window, err := lookup.NewService(lookup.ServiceConfig{Pool: windowPool, Memory: index.Config{MaxBytes: 64 << 20}})
	require.NoError(t, err)
	named := func(name string) router.ModelKey { return router.ModelKey{Name: name} }
	return []router.Model{
		{ModelKey: llama, Pool: pool, Hash: &router.Hashing{}}, {ModelKey: named("window"), Pool: window},
		{ModelKey: named("slow"), Pool: slow, Hash: &router.Hashing{}}, {ModelKey: named("plain"), Fleet: fleet.Config{BlockSize: 16}},
		{ModelKey: named("differ"), Fleet: fleet.Config{BlockSize: 16}, Hash: &router.Hashing{}},
		{ModelKey: named("crowded"), Fleet: fleet.Config{BlockSize: 16, MaxHolders: 1}}, {ModelKey: named("full"), Fleet: fleet.Config{BlockSize: 16, MaxBlocks: 1}},
	}, gate
}

// addDiffering adds an engine whose hashes are not those that model differ makes.
func (f *testAPI) addDiffering() {
	f.t.Helper()
	p := eventstest.New(f.t)
	for n := range 2 {
		event := eventstest.Stored(nil, chain(2).At(n))
		event["token_ids"] = slices.Repeat([]any{n}, 16)
		p.Publish(false, event)
	}
	require.NoError(f.t, f.service.Add(router.Source{Name: "differ", Endpoint: p.Endpoint, Replay: p.Replay, Model: "differ", Engine: "e"}))
	lookuptest.Eventually(f.t, "its hashes differ", func() bool {
		return slices.ContainsFunc(f.service.Status(), func(st router.SourceStatus) bool { return !st.Stale && st.Hashes == router.HashesDiffer })
	})
}

// source is one that may be registered.
func testSource(model, engine string) router.Source {
	return router.Source{Name: engine, Endpoint: "tcp://127.0.0.1:2", Model: model, Engine: engine, BlockSize: 16}
}

// exchange is a request, and by default it is right and its sender may do everything.
type exchange struct {
	server       string
	method, path string
	host         string // "": the server's
	token        string
	header       map[string]string
	body         string
	stuck        bool // the body is cut off, and nothing follows
}

// ask returns the reply to a request, and its body.
func (f *testAPI) ask(x exchange) (status int, header http.Header, body []byte) {
	f.t.Helper()
	sent, length := io.Reader(strings.NewReader(x.body)), int64(len(x.body))
	if x.stuck {
		rest, w := io.Pipe()
		defer func() { _ = w.Close() }()
		sent, length = io.MultiReader(sent, rest), length+10
	}
	r, err := http.NewRequestWithContext(f.t.Context(), x.method, f.servers[x.server].URL+x.path, sent)
	require.NoError(f.t, err)
	r.ContentLength, r.Host = length, x.host
	r.Header.Set("Authorization", "Bearer "+x.token)
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	for name, value := range x.header {
		r.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(f.t, err)
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(response.Body)
	require.NoError(f.t, err)
	return response.StatusCode, response.Header, body
}

// document is an OpenAPI text, as far as these tests read it.
type document map[string]any

func parseOpenAPI(t testing.TB) document {
	t.Helper()
	var d document
	require.NoError(t, yaml.Unmarshal(openAPI, &d))
	return d
}

// at returns what is at keys, nil if there is nothing.
func at(value any, keys ...string) any {
	for _, key := range keys {
		m, _ := value.(map[string]any)
		value = m[key]
	}
	return value
}

// rightBodies has the body of a request with the status 200 for each operation that has one.
func rightBodies() map[string]string {
	return map[string]string{
		"/query":         `{"model": "llama", "tenant_id": "default", "block_size": 16, "token_ids": [1, 2, 3], "lora_name": "a", "lora_path": "/a", "cache_salt": "s", "loadable": true}`,
		"/query_by_hash": `{"modelname": "llama", "block_size": 16, "seq_hashes": ` + hexOf(chain(20)) + `, "loadable": true}`,
		"/predict":       `{"model": "llama", "instance_id": "p", "dp_rank": 3, "seq_hashes": [1, -2, 3]}`,
		"/register":      `{"endpoint": "tcp://127.0.0.1:3", "type": "vLLM", "modelname": "llama", "instance_id": "i", "block_size": 16, "dp_rank": 0, "lora_name": "x", "additionalsalt": "", "timeout": "1m"}`,
		"/unregister":    `{"type": "vLLM", "modelname": "llama", "tenant_id": "default", "instance_id": "i", "dp_rank": 0}`,
	}
}

// wrong has for each error code what provokes it, from a request that is right. Codes that need another body in each
// operation are in wrongBodies.
func wrong() map[string]func(*exchange) {
	return map[string]func(*exchange){
		"unauthorized":       func(x *exchange) { x.token = "unknown" },
		"forbidden":          func(x *exchange) { x.token = "none" },
		"other_origin":       func(x *exchange) { x.host = "evil.example:80" },
		"method_not_allowed": func(x *exchange) { x.method = http.MethodDelete },
		"slow_body":          func(x *exchange) { x.server, x.stuck, x.body = "small", true, `{` },
		"too_large":          func(x *exchange) { x.server, x.body = "small", strings.Repeat(" ", 601) },
		"media_type":         func(x *exchange) { x.header = map[string]string{"Content-Type": "application/x-www-form-urlencoded"} },
		"bad_json":           func(x *exchange) { x.body = `{"model": "llama"` },
		"busy":               func(x *exchange) { x.server = "busy" },
		"internal":           func(x *exchange) { x.header = map[string]string{"X-Panic": "1"} },
		"closing":            func(x *exchange) { x.server, x.body = "closed", strings.Replace(x.body, `"i"`, `"gone"`, 1) },
		"timeout":            func(x *exchange) { x.server = "hasty" },
		"not_ready":          func(x *exchange) { x.server = "notReady" },
	}
}

// wrongBodies has for an operation and an error code the body that provokes it. /query_by_hash has those of /query.
func wrongBodies() map[string]string {
	hashes := hexOf(chain(20))
	register := func(fields string) string { return `{"modelname": "llama", "instance_id": "new", ` + fields + `}` }
	endpoint := `"endpoint": "tcp://127.0.0.1:1"` // where nobody listens, either
	return map[string]string{
		"/query bad_field":        `{"model": "llama"}`,
		"/query bad_tokens":       `{"model": "llama", "token_ids": [1, -1]}`,
		"/query bad_hashes":       `{"model": "llama", "seq_hashes": [1, 2, 3], "loadable": true}`,
		"/query no_model":         `{"token_ids": [1]}`,
		"/query no_hashing":       `{"model": "plain", "token_ids": [1]}`,
		"/query hashes_differ":    `{"model": "differ", "token_ids": [1]}`,
		"/query other_block_size": `{"model": "llama", "token_ids": [1], "block_size": 32}`,
		"/query unanswerable":     `{"model": "window", "seq_hashes": ` + hashes + `, "loadable": true, "num_tokens": 1000000}`,
		"/query timeout":          `{"model": "slow", "seq_hashes": ` + hashes + `, "loadable": true}`,

		"/predict bad_field":        `{"model": "llama", "seq_hashes": [1]}`,
		"/predict bad_tokens":       `{"model": "llama", "instance_id": "p", "token_ids": [2147483648]}`,
		"/predict no_model":         `{"model": "qwen", "instance_id": "p", "token_ids": [1]}`,
		"/predict no_hashing":       `{"model": "plain", "instance_id": "p", "token_ids": [1]}`,
		"/predict other_block_size": `{"model": "plain", "instance_id": "p", "seq_hashes": [1], "block_size": 4}`,
		"/predict too_many":         `{"model": "crowded", "instance_id": "second", "seq_hashes": [1]}`,
		"/predict full":             `{"model": "full", "instance_id": "p", "seq_hashes": [1, 2, 3]}`,

		"/register bad_field":        register(endpoint + `, "dp_rank": 65536`),
		"/register not_allowed":      register(`"endpoint": "tcp://192.0.2.1:5557"`),
		"/register exists":           register(endpoint + `, "name": "fixed"`),
		"/register configured":       `{"modelname": "llama", "instance_id": "fixed", ` + endpoint + `}`,
		"/register other_block_size": register(endpoint + `, "block_size": 32`),
		"/register other_engine":     register(endpoint + `, "type": "SGLang"`),
		"/register too_many":         `{"modelname": "another", "block_size": 16, "instance_id": "new", ` + endpoint + `}`,

		"/unregister bad_field":  `{"modelname": "llama"}`,
		"/unregister no_model":   `{"modelname": "qwen", "instance_id": "i"}`,
		"/unregister no_source":  `{"modelname": "llama", "instance_id": "nobody"}`,
		"/unregister configured": `{"modelname": "llama", "instance_id": "fixed"}`,
	}
}

// Every operation is asked for every documented status and error code. Every error that the handler knows is documented.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	d, f := parseOpenAPI(t), newTestAPI(t)
	hold(t, f.service, llama, "vllm-1", 1, "GPU", first(chain(20), 5)) // so that answers have an engine
	require.NoError(t, f.service.Add(testSource("llama", "fixed")))
	f.addDiffering()
	require.NoError(t, f.service.Predict(t.Context(), router.ModelKey{Name: "crowded"}, fleet.ID{Engine: "first"}, &router.Query{Hashes: chain(1)}))
	require.NoError(t, f.service.Register(testSource("extra", "m")))

	paths := at(map[string]any(d), "paths").(map[string]any)
	documented := map[string]bool{}
	for _, op := range operations { // in their order: /register before /unregister
		methods := paths[op.path].(map[string]any)
		require.Len(t, methods, 1, op.path)
		x := exchange{server: "normal", method: op.method, path: op.path, token: "all", body: rightBodies()[op.path]}
		for _, code := range f.checkOperation(d, methods[strings.ToLower(op.method)], x) {
			documented[code] = true
		}
		delete(paths, op.path)
	}
	require.Empty(t, paths)
	for _, r := range refusals {
		require.True(t, documented[fmt.Sprint(r.status, " ", r.code)], "%d %s: %v", r.status, r.code, r.err)
	}
}

// checkOperation asks an operation for all that is documented, and returns its statuses and error codes. For /unregister,
// what is right comes last.
func (f *testAPI) checkOperation(d document, operation any, right exchange) (documented []string) {
	t := f.t
	responses := at(operation, "responses").(map[string]any)
	succeed := func() {
		f.check(d, responses["200"], right, http.StatusOK, "")
	}
	if right.path != "/unregister" {
		succeed()
	}
	changes, bodies := wrong(), wrongBodies()
	for _, status := range slices.Sorted(maps.Keys(responses)) {
		codes, _ := at(responses[status], "x-error-codes").([]any)
		require.Equal(t, status == "200", len(codes) == 0, "%s %s", right.path, status)
		want, err := strconv.Atoi(status)
		require.NoError(t, err)
		for _, code := range codes {
			x := right
			body, ok := bodies[strings.TrimSuffix(x.path, "_by_hash")+" "+code.(string)]
			if ok {
				x.body = body
			}
			if change := changes[code.(string)]; change != nil {
				change(&x)
			} else {
				require.True(t, ok, "%s: no test provokes %s", x.path, code)
			}
			f.check(d, responses[status], x, want, code.(string))
			documented = append(documented, fmt.Sprint(status, " ", code))
		}
	}
	if right.path == "/unregister" {
		succeed()
	}
	return documented
}

// goNames are names of packages, and others that errors of Go have.
const goNames = `(router|fleet|events|lookup|coordinator|blockhash|jsontext|json|strconv|hex)[:.]|Go |context`

// check compares the reply to a request with its description.
func (f *testAPI) check(d document, response any, x exchange, status int, code string) {
	gotStatus, header, body := f.ask(x)
	t, what := f.t, fmt.Sprintf("%s %d %s: %.300s", x.path, status, code, body)
	require.Equal(t, status, gotStatus, what)
	for _, name := range []string{"Allow", "Retry-After", "WWW-Authenticate"} {
		require.Equal(t, at(response, "headers", name) != nil, header.Get(name) != "", "%s: %s", what, name)
	}
	require.Equal(t, "no-store", header.Get("Cache-Control"))
	kind := header.Get("Content-Type")
	content := at(response, "content", kind)
	require.NotNil(t, content, what)
	if kind == "application/json" {
		require.True(t, json.Valid(body), what)
	}
	if code != "" {
		require.NotRegexp(t, goNames, string(body))
		var e struct{ Error struct{ Code string } }
		require.NoError(t, json.Unmarshal(body, &e))
		require.Equal(t, code, e.Error.Code, what)
	} else if x.path == "/openapi.yaml" {
		require.True(t, bytes.Equal(openAPI, body))
	}
}
