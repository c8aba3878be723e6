package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/admission"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

func TestMain(m *testing.M) { lookuptest.Main(m) }

var llama = router.ModelKey{Name: "llama"}

// newPool returns a pool over memory that has the first stored hashes of chain.
func newPool(t testing.TB, stored int) *lookup.Service {
	t.Helper()
	p, err := lookup.NewService(lookup.ServiceConfig{
		Pool:   coordinator.Pool{HashBlockSize: 16, HashLen: 32, Groups: []coordinator.Group{{Kind: coordinator.FullAttention, BlockSize: 16}}},
		Memory: index.Config{MaxBytes: 64 << 20},
	})
	require.NoError(t, err)
	require.NoError(t, p.Store(t.Context(), coordinator.GroupRank{}, first(chain(100), stored)))
	return p
}

// chain returns n hashes of 32 bytes.
func chain(n int) coordinator.Hashes {
	return coordinator.NewHashes(lookuptest.Chain("prompt", n, 32), 32)
}

func first(h coordinator.Hashes, n int) coordinator.Hashes {
	return coordinator.NewHashes(h.Bytes()[:n*h.HashLen()], h.HashLen())
}

func newService(t testing.TB, cfg router.Config) *router.Service {
	t.Helper()
	s, err := router.New(cfg)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// hold makes a holder with blocks, as a source would.
func hold(t testing.TB, s *router.Service, key router.ModelKey, engine string, rank int, medium string, hashes coordinator.Hashes) {
	t.Helper()
	f, err := s.Fleet(key)
	require.NoError(t, err)
	h := f.Get(fleet.ID{Engine: engine, Rank: rank})
	if h == nil {
		h, err = f.Add(fleet.ID{Engine: engine, Rank: rank})
		require.NoError(t, err)
	}
	b := events.Blocks{Group: events.NoGroup, Tier: events.Tier{Medium: medium}, Hashes: hashes}
	require.NoError(t, h.Store(&b, make([]bool, hashes.Len())))
	h.SetStale(false)
}

// hexOf returns a JSON list of hashes in hex.
func hexOf(h coordinator.Hashes) string {
	var list []string
	for _, hash := range h.All() {
		list = append(list, fmt.Sprintf(`"%x"`, hash))
	}
	return "[" + strings.Join(list, ",") + "]"
}

// do sends a request to a handler and returns its status and body.
func do(t testing.TB, h http.Handler, method, path, body string, header ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(context.Background(), method, "http://127.0.0.1"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// The answers have the shape that routers know.
func TestAnswers(t *testing.T) {
	s := newService(t, router.Config{
		Models: []router.Model{{ModelKey: llama, Pool: newPool(t, 7), Hash: &router.Hashing{}}}, Allow: []string{"tcp://127.0.0.1:*"},
	})
	h := New(Config{Service: s, Local: true})
	prompt := chain(20)
	hold(t, s, llama, "vllm-1", 0, "GPU", first(prompt, 8))
	hold(t, s, llama, "vllm-1", 1, "cpu", first(prompt, 16))
	hold(t, s, llama, "vllm-1", 1, "DP", first(prompt, 2))
	hold(t, s, llama, `b"2`, 0, "STORAGE", first(prompt, 1))
	hold(t, s, llama, `b"2`, 1, "Storage", first(prompt, 1)) // another medium: only the case of the fixed ones is ignored
	register := func(engine string, rank int) string {
		return fmt.Sprintf(`{"endpoint": "tcp://127.0.0.1:%d", "modelname": "llama", "instance_id": %q, "dp_rank": %d}`, rank+1, engine, rank)
	}
	for _, test := range []struct{ path, body, want string }{ // an answer without its tenant
		{
			"/query_by_hash", `{"model": "llama", "block_size": 16, "seq_hashes": ` + hexOf(prompt) + `}`,
			`{"instances": {"vllm-1": {"longest_matched": 256, "gpu": 128, "cpu": 256, "disk": 0, "dp": {"0": 128, "1": 256}, "media": {"DP": 32}},
			  "b\"2": {"longest_matched": 16, "gpu": 0, "cpu": 0, "disk": 0, "dp": {"0": 16, "1": 16}, "media": {"STORAGE": 16, "Storage": 16}}}}`,
		},
		{
			"/query_by_hash", `{"instance_id": "b\u00222", "loadable": true, "block_hash": ` + hexOf(prompt) + `}`,
			`{"instances": {"b\"2": {"longest_matched": 16, "gpu": 0, "cpu": 0, "disk": 0, "dp": {"0": 16, "1": 16}, "media": {"STORAGE": 16, "Storage": 16}}}, "loadable_tokens": 112}`,
		},
		{"/query_by_hash", `{"seq_hashes": [1, -1, 18446744073709551615]}`, `{"instances": {}}`},
		{"/query", `{"model": "llama", "lora_name": null, "token_ids": [1, 2, 3], "mm_hashes": null}`, `{"instances": {}}`},
		{"/predict", `{"instance_id": "p", "token_ids": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}`, `{"status": "predicted", "instance_id": "p"}`},
		{
			"/query", `{"token_ids": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}`,
			`{"instances": {"p": {"longest_matched": 16, "gpu": 0, "cpu": 0, "disk": 0, "dp": {"0": 16}, "media": {"predicted": 16}}}}`,
		},
		{"/register", register("b", 2), `{"status": "registered successfully", "instance_id": "b"}`},
		{"/register", register("a", 0), `{"status": "registered successfully", "instance_id": "a"}`},
		{"/register", register("a", 1), `{"status": "registered successfully", "instance_id": "a"}`},
		{"/register", register("a", 3), `{"status": "registered successfully", "instance_id": "a"}`},
		{"/query_by_hash", `{"seq_hashes": [1], "last_known": true}`, `{"instances": {}, "unsure": {"a": ["incomplete", "stale"], "b": ["incomplete", "stale"]},
			"unsure_ranks": {"a": {"0": ["incomplete", "stale"], "1": ["incomplete", "stale"], "3": ["incomplete", "stale"]}, "b": {"2": ["incomplete", "stale"]}}}`},
		{"/query", `{"token_ids": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1], "instance_id": "b"}`, `{"instances": {}, "unsure": {"b": ["incomplete", "stale", "unchecked"]},
			"unsure_ranks": {"b": {"2": ["incomplete", "stale", "unchecked"]}}}`},
		{"/query", `{"token_ids": [1], "instance_id": "b"}`, `{"instances": {}, "unsure": {"b": ["incomplete", "stale"]}, "unsure_ranks": {"b": {"2": ["incomplete", "stale"]}}}`},
		{"/query", `{"seq_hashes": [], "instance_id": "b"}`, `{"instances": {}, "unsure": {"b": ["incomplete", "stale"]}, "unsure_ranks": {"b": {"2": ["incomplete", "stale"]}}}`}, // less than a block
		{"/query_by_hash", `{"seq_hashes": [1], "instance_id": "nobody"}`, `{"instances": {}, "unsure": {"nobody": ["unknown"]}}`},
		{"/query_by_hash", `{"seq_hashes": [1], "instance_id": "vllm-1"}`, `{"instances": {}}`},
		{"/unregister", `{"model": "llama", "instance_id": "a", "dp_rank": 1}`, `{"status": "unregistered successfully", "removed_instances": ["a|default|1"]}`},
		{"/unregister", `{"model": "llama", "instance_id": "a"}`, `{"status": "unregistered successfully", "removed_instances": ["a|default|0", "a|default|3"]}`},
	} {
		status, reply := do(t, h, "POST", test.path, test.body)
		require.Equal(t, 200, status, reply)
		want := strings.Replace(test.want, `{"instances"`, `{"tenant_id": "default", "instances"`, 1)
		require.JSONEq(t, want, reply, test.body)
	}
	require.Len(t, s.Status(), 1)
}

// An answer of megabytes is written in small pieces, so the processor is yielded in between.
func TestAnswerInPieces(t *testing.T) {
	hints := &router.KVHints{Actions: []router.KVHintAction{{Payload: router.KVFetch{Hashes: make([]uint64, maxHashes)}}}}
	a := answer{Answer: router.Answer{KVHints: hints}, index: map[string]int{}}
	longest := 0
	require.NoError(t, a.write(writerFunc(func(b []byte) { longest = max(longest, len(b)) }), router.DefaultTenant))
	require.Less(t, longest, 64<<10)
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

// What is refused besides that of the OpenAPI text: pages of other sites, paths that there are not, wrong fields, which have
// one form: field NAME: what is wrong; what to do.
// Long names of a request do not come back whole, and never as broken UTF-8.
func TestRefused(t *testing.T) {
	h := New(Config{Service: newService(t, router.Config{Models: []router.Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}}}})})
	register := `{"endpoint": "tcp://127.0.0.1:1", "model": "llama", "instance_id": "a"`
	const another, name = "has another type, or a number that is too large; GET /openapi.yaml describes it", "; give 1 to 256 bytes of printable characters"
	for _, test := range []struct {
		path, body string
		header     []string
		want       int
		reply      string
	}{
		{"/query", `{"seq_hashes": []}`, nil, 200, ""},
		{"/query", `{"seq_hashes": [], "block_size": 0}`, nil, 200, ""},
		{"/query", `{"seq_hashes": []}`, []string{"Sec-Fetch-Site", "same-origin"}, 200, ""},
		{"/query", `{"seq_hashes": []}`, []string{"Sec-Fetch-Site", "cross-site"}, 403, "other_origin"},
		{"/query", `{"seq_hashes": []}`, []string{"Origin", "http://evil.example"}, 403, "other_origin"},
		{"/query", `{"seq_hashes": []}`, []string{"Content-Type", ""}, 415, "media_type"},
		{"/query", `{"seq_hashes": []}`, []string{"Content-Type", `application/json; x="`}, 415, "media_type"},
		{"/query", `{"seq_hashes": []}`, []string{"Content-Encoding", "gzip"}, 415, "not compressed"},
		{"/query/", "", nil, 404, "no_path"}, {"//query", "", nil, 404, "no_path"}, {"/Query", "", nil, 404, "no_path"}, {"/", "", nil, 404, "no_path"},
		{"/register", register + `, "additionalsalt": "w"}`, nil, 400, "field additionalsalt: is not known here, and ignoring it could change the answer; leave it out"},
		{"/register", register + `, "gruops": [{"a": []}]}`, nil, 400, `field \"gruops\": is not known here`},
		{"/query", `{"token_ids": [7], "model_name": "other"}`, nil, 404, `no such model: \"other\"`},
		{"/query", `{"token_ids": []}`, nil, 400, "field token_ids: is empty; give those of the whole prompt, or seq_hashes, which are none for less than a block"},
		{"/predict", `{"token_ids": [], "instance_id": "a"}`, nil, 400, "field token_ids: is empty"},
		{"/query", `{"tokens": [1]}`, nil, 400, `field tokens: is not known here; did you mean token_ids?`},
		{"/query", `{"prompt": "Hello"}`, nil, 400, `field prompt: is not known here; did you mean token_ids?`},
		{"/predict", `{"token_ids": [7], "lora": "a"}`, nil, 400, `field lora: is not known here; did you mean lora_name?`},
		{"/register", register + `, "lora_id": 7}`, nil, 400, "field lora_id: is not known here, and ignoring it could change the answer; leave it out"},
		{"/query", `{"token_ids": "Hello"}`, nil, 400, `field token_ids: is a text; give a list of token ids; for a text ask the engine's /tokenize`},
		{"/register", `{"instance_id": "a"}`, nil, 400, `field model: has no model; give one of [\"llama\"], or the name of another`},
		{"/query", `{"token_ids": [7], "lora_id": 7}`, nil, 400, "field lora_id: is not known here; did you mean lora_name?"},
		{"/register", register + `, "modelname": "llama"}`, nil, 400, "field model: is there twice, or under two names; give it once"},
		{"/register", register + `, "bind": true}`, nil, 403, "not_allowed"},
		{"/register", register + `, "block_size": 32}`, nil, 409, `field block_size: is 32, and that of model \"llama\" is 16; give the same`},
		{"/register", register + `, "type": "sglang"}`, nil, 409, `field type: is sglang, and model \"llama\" has engines of another type; leave`},
		{"/register", register + `, "timeout": "x"}`, nil, 400, `field timeout: \"x\" is not a duration; write seconds`},
		{"/register", register + `, "timeout": 0.05}`, nil, 400, "field timeout: 50ms is not 100ms to 1h0m0s"},
		{"/register", register + `, "timeout": 5}`, nil, 403, `"not_allowed","message":"not an endpoint that register allows: `}, // of an endpoint, checked after the fields
		{"/register", register + `, "timeout": true}`, nil, 400, `field timeout: \"true\" is not a duration; write seconds`},
		{"/register", register + `, "dp_rank": "1"}`, nil, 400, "field dp_rank: " + another},
		{"/register", `{"model": "llama", "endpoint": "tcp://127.0.0.1:1"}`, nil, 400, "field instance_id: has no instance_id" + name},
		{"/register", `{"model": "llama", "instance_id": "a"}`, nil, 400, "field endpoint: has no endpoint; give the publisher's"},
		{"/unregister", `{"model": "llama", "instance_id": "\n"}`, nil, 400, `field instance_id: \"\\n\" is no name` + name},
		{"/query", "{\"\\u001b\u009b\u202e\u2028" + strings.Repeat("x", 50) + `": 1}`, nil, 400, `field \"\\x1b\\u009b\\u202e\\u2028` + strings.Repeat("x", 36) + `\": is not known here`},
		{"/query", `{"` + strings.Repeat("x", maxPiece+readSize) + `": 1}`, nil, 400, "bad field: a name, or white space, of more than 32768 bytes; GET"},
		{"/query", `{"token_ids": [], "lora_name": "` + strings.Repeat("x", maxPiece+readSize) + `"}`, nil, 400, "field lora_name: has more than 32768 bytes in one text"},
		{"/query", `{"token_ids": [1, ` + strings.Repeat("2", maxPiece+readSize) + `]}`, nil, 400, "field token_ids: has more than 32768 bytes in one text or number"},
		{"/query", `{"mm_hashes": [null, "a"]}`, nil, 400, "field mm_hashes: is not known here"},
		{"/query", `{"dp_rank": true}`, nil, 400, "field dp_rank: " + another},
		{"/query", `{"block_size": 1.5}`, nil, 400, "field block_size: " + another},
		{"/query", `{"token_ids": [1, 1.5]}`, nil, 400, "field token_ids: element 1 is no token id; give a whole number"},
		{"/query", `{"seq_hashes": ["0x112233445566778"]}`, nil, 400, "field seq_hashes: element 0 is no hash; give a whole number"},
		{"/query", `{"seq_hashes": [5`, nil, 400, `"bad_json","message":"not JSON: `},
		{"/register", register + `, "replay_endpoint": "nonsense"}`, nil, 400, "field replay_endpoint: bad endpoint"},
		{"/register", register + `, "name": "` + strings.Repeat("x", 64<<10) + `"}`, nil, 413, "too_large"},
		{"/unregister", `{"instance_id": "a"}`, nil, 400, "field model: has no model" + name},
		{"/query", `{"token_ids": [7], "model": "a: index: b"}`, nil, 404, `there is no such model: \"a: index: b\" of`},
		{"/query", `{"token_ids": [7], "model": "` + strings.Repeat("é", 2000) + `"}`, nil, 404, "no_model"},
	} {
		status, reply := do(t, h, "POST", test.path, test.body, test.header...)
		require.Equal(t, test.want, status, "%s %.100s %v: %s", test.path, test.body, test.header, reply)
		require.Contains(t, reply, test.reply)
		require.NotRegexp(t, goNames, reply)
		require.Less(t, len(reply), 600)
		require.True(t, utf8.ValidString(reply))
	}
}

// A page of another site reads nothing, though a GET changes nothing.
func TestOtherSitesReadNothing(t *testing.T) {
	h := New(Config{Service: newService(t, router.Config{}), Local: true})
	for _, path := range []string{"/services", "/dump"} {
		status, _ := do(t, h, "GET", path, "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")
		require.Equal(t, http.StatusForbidden, status, path)
	}
}

// serve starts a server of a handler with what a service needs.
func serve(t *testing.T, cfg Config) (*Handler, string) {
	t.Helper()
	if cfg.Service == nil {
		cfg.Service = newService(t, router.Config{Models: []router.Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}, Hash: &router.Hashing{}}}})
	}
	h := New(cfg)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return h, server.Listener.Addr().String()
}

// send sends text on a new connection.
func send(t *testing.T, address, text string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = io.WriteString(conn, text)
	require.NoError(t, err)
	return conn.(*net.TCPConn)
}

// status reads the status of a reply, and the reply.
func status(t *testing.T, in *bufio.Reader) int {
	t.Helper()
	response, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

func post(header, body string) string {
	return "POST /query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" + header + "\r\n\r\n" + body
}

// Bodies that are not what their headers say. The server closes the connection.
func TestHostileBodies(t *testing.T) {
	_, address := serve(t, Config{limits: &limits{1000, 300 * time.Millisecond, time.Minute}})
	_, closed := serve(t, Config{limits: &limits{1000, time.Second, 500 * time.Millisecond}, Authorize: func(*http.Request) (Access, error) { return Access{}, errToken }})
	body := `{"token_ids": [1, 2, 3]}`
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d", n) }
	chunks := "Transfer-Encoding: chunked"
	for name, test := range map[string]struct {
		address, text string
		ends          bool     // the client sends the end of its stream
		want          []string // in the reply
		not           string
	}{
		"right":              {address, post(length(len(body))+"\r\nConnection: close", body), false, []string{"200 OK", `{"instances":{},"tenant_id":"default"}`}, "error"},
		"expects 100":        {address, post(length(len(body))+"\r\nExpect: 100-continue\r\nConnection: close", body), false, []string{"100 Continue", "200 OK"}, "error"},
		"too long a length":  {address, post(length(len(body)+5), body), false, []string{"408 Request Timeout", "slow_body", "Connection: close"}, "127.0.0.1"},
		"too short a length": {address, post(length(len(body)-5), body), true, []string{"400 Bad Request", "bad_json"}, "200 OK"},
		"a huge length":      {address, post("Content-Length: 1099511627776", body), true, []string{"413 Request Entity Too Large", "too_large", "Connection: close"}, "200 OK"},
		"a negative length":  {address, post(length(-1), body), true, []string{"400 Bad Request"}, "200 OK"},
		"two lengths":        {address, post(length(24)+"\r\n"+length(23), body), true, []string{"400 Bad Request"}, "200 OK"},
		"chunks for ever":    {address, post(chunks, strings.Repeat("64\r\n"+strings.Repeat(" ", 100)+"\r\n", 20)), true, []string{"413 Request", "too_large"}, "200 OK"},
		"bad chunks":         {address, post(chunks, "zz\r\n"), true, []string{"400 Bad Request", "bad_json"}, "200 OK"},
		"nothing comes":      {address, post(length(100), ""), false, []string{"408 Request Timeout", "slow_body"}, "200 OK"},
		"trailing data":      {address, post(length(len(body)+2), body+"{}"), true, []string{"400 Bad Request", "bad_json"}, "200 OK"},
		"refused before":     {closed, post(length(1000), "{"), false, []string{"401 Unauthorized"}, "200 OK"},
		"no path":            {closed, strings.Replace(post(length(1000), "{"), "/query", "/nowhere", 1), false, []string{"404 Not Found"}, "200 OK"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := send(t, test.address, test.text)
			if test.ends {
				require.NoError(t, conn.CloseWrite())
			}
			reply, err := io.ReadAll(conn)
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the server must close the connection; a reset will do")
			for _, want := range test.want {
				require.Contains(t, string(reply), want)
			}
			require.NotContains(t, string(reply), test.not)
		})
	}
}

// The time for bodies does not count while a request is answered, nor for the next one on the connection.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	models, gate := testModels(t)
	const bodyTimeout = 300 * time.Millisecond
	_, address := serve(t, Config{Service: newService(t, router.Config{Models: models}), limits: &limits{10000, bodyTimeout, time.Minute}})
	defer time.AfterFunc(2*bodyTimeout, func() { close(gate.Open) }).Stop()
	body := `{"model": "slow", "loadable": true, "seq_hashes": ` + hexOf(chain(3)) + `}`
	request := post(fmt.Sprintf("Content-Length: %d", len(body)), body)
	in := bufio.NewReader(send(t, address, request+request+strings.Replace(request, "slow", "none", 1)))
	require.Equal(t, http.StatusOK, status(t, in))
	require.Equal(t, http.StatusOK, status(t, in))
	require.Equal(t, http.StatusNotFound, status(t, in), "there is no such model")
}

// A body that is refused in its first bytes is read to its end, so that the reply reaches a client that sends all before it
// reads.
func TestWrongBodyIsRead(t *testing.T) {
	_, address := serve(t, Config{})
	right, long := `{"token_ids":[7]}`, strings.Repeat("x", 2<<20)
	request := func(body string) string { return post(fmt.Sprintf("Content-Length: %d", len(body)), body) }
	in := bufio.NewReader(send(t, address, request(`{"unknown":"`+long+`"}`)+request(`{"`+long+`":1}`)+request(right)))
	require.Equal(t, http.StatusBadRequest, status(t, in))
	require.Equal(t, http.StatusBadRequest, status(t, in))
	require.Equal(t, http.StatusOK, status(t, in))
}

// A body is refused when the memory for requests is held by others, of which none takes more than it leaves to other large ones.
// What is cheap is served. Slow bodies hold what has arrived of them.
func TestBusy(t *testing.T) {
	const maxMemory = 32 << 20
	h, address := serve(t, Config{MaxMemory: maxMemory, Authorize: func(r *http.Request) (Access, error) {
		return Access{Name: r.Header.Get("Name"), Permissions: access.All}, nil
	}})
	free := func() int64 { return maxMemory - h.memory.admission.Held() }
	arrive := func(name string, tokens int) (*net.TCPConn, bool) {
		before, busy := free(), false
		body := `{"token_ids":[1` + strings.Repeat(",1", tokens)
		conn := send(t, address, post(fmt.Sprintf("Content-Length: %d\r\nName: %s", len(body)+300000, name), body)) // net/http would wait for a short rest
		lookuptest.Eventually(t, "it has arrived", func() bool {
			if before-free() > 2*step { // for the last time that its list has grown
				return true
			}
			_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			reply := make([]byte, 1000)
			n, _ := conn.Read(reply)
			busy = strings.Contains(string(reply[:n]), `"busy"`)
			return busy
		})
		return conn, busy
	}
	query := func(name string) int {
		status, _ := do(t, h, "POST", "/query", `{"token_ids": [7]}`, "Name", name)
		return status
	}
	var conns []*net.TCPConn
	left := 2 * h.memory.admission.MaxRequest()
	for _, name := range []string{"greedy", "other", "third"} {
		before, mine := free(), int64(0)
		for n := 0; ; n++ {
			conn, busy := arrive(name, 30_000)
			conns = append(conns, conn)
			if busy {
				break
			}
			mine = before - free()
			left -= 2 * step
		}
		require.InDelta(t, left, mine, 1200<<10, "%s leaves as much as it takes, but for one request", name)
	}
	require.Equal(t, http.StatusOK, query("modest"))
	health, _ := do(t, h, "HEAD", "/health", "")
	require.Equal(t, http.StatusOK, health)
	for _, conn := range conns {
		conn.Close()
	}
	lookuptest.Eventually(t, "nothing is held", func() bool { return free() == maxMemory })
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	require.Empty(t, h.memory.held)
}

// The largest bodies that are promised fit in the default memory, announced or not.
func TestLargestBodies(t *testing.T) {
	h, _ := serve(t, Config{})
	for _, body := range []string{
		`{"seq_hashes": [` + strings.Repeat(`"`+strings.Repeat("ab", 32)+`", `, maxHashes-1) + `"` + strings.Repeat("ab", 32) + `"]}`,
		`{"token_ids": [` + strings.Repeat(`128255,            `, maxTokens-1) + `1], "extra_keys": [` + strings.Repeat("null, ", 100_000) + `null], "kv_hints": true}`,
	} {
		for _, sent := range []io.Reader{strings.NewReader(body), io.MultiReader(strings.NewReader(body))} {
			r := httptest.NewRequest(http.MethodPost, "/query", sent)
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, http.StatusOK, w.Code, "%d: %s", r.ContentLength, w.Body)
		}
	}
}

// What is announced but has not arrived is not held: 20 peers that send the first byte of large bodies keep no large one out.
func TestAnnouncedBodies(t *testing.T) {
	const maxMemory = 8 << 20
	h, address := serve(t, Config{MaxMemory: maxMemory, Authorize: func(r *http.Request) (Access, error) {
		return Access{Name: r.Header.Get("Name"), Permissions: access.All}, nil
	}})
	const peers = 20
	for i := range peers {
		send(t, address, post(fmt.Sprintf("Content-Length: %d\r\nName: %d", maxMemory/4, i), "{"))
	}
	lookuptest.Eventually(t, "all have begun, and hold no more", func() bool {
		return h.memory.admission.Held() == peers*admission.SmallBytes
	})
	status, reply := do(t, h, "POST", "/query", `{"seq_hashes": `+hexOf(chain(10000))+`}`, "Name", "modest")
	require.Equal(t, http.StatusOK, status, reply)
}

// A client that does not read its reply keeps no other out, and the reply, or each piece of a dump, has a time to be sent in.
func TestUnreadReply(t *testing.T) {
	h, _ := serve(t, Config{limits: &limits{1000, time.Minute, time.Minute}})
	for _, test := range []struct {
		method, path string
		limit        time.Duration
	}{{"POST", "/query", time.Minute}, {"GET", "/dump", 30 * time.Second}} {
		w := &writer{ResponseRecorder: httptest.NewRecorder()}
		w.before = func() {
			require.WithinDuration(t, time.Now().Add(test.limit), w.deadline, 10*time.Second, test.path)
			w.deadline = time.Time{}
			status, _ := do(t, h, "POST", "/query", `{"token_ids": [7]}`)
			require.Equal(t, http.StatusOK, status)
		}
		r := httptest.NewRequest(test.method, test.path, strings.NewReader(`{"token_ids": [7]}`))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code)
		require.Zero(t, w.deadline, "something was sent")
	}
}

// writer calls a function while it is written to.
type writer struct {
	*httptest.ResponseRecorder
	before   func()
	deadline time.Time
}

func (w *writer) SetWriteDeadline(t time.Time) error {
	w.deadline = t
	return nil
}

func (w *writer) Write(b []byte) (int, error) {
	w.before()
	return w.ResponseRecorder.Write(b)
}

// A panic ends one request, and is logged with its stack.
func TestPanic(t *testing.T) {
	log, logger := lookuptest.NewLog(slog.LevelError)
	var why any = "boom"
	h := New(Config{Service: newService(t, router.Config{}), Ready: func() error { panic(why) }, Logger: logger})
	status, reply := do(t, h, "GET", "/ready", "")
	require.Equal(t, http.StatusInternalServerError, status)
	require.NotContains(t, reply, "boom")
	require.Contains(t, log.String(), "boom")
	require.Contains(t, log.String(), "handler_test.go")
	why = http.ErrAbortHandler
	require.PanicsWithValue(t, why, func() { do(t, h, "GET", "/ready", "") })
}

// Requests are counted by path and status, those of paths that there are not under one name. Until the router has loaded,
// what would be answered wrongly is refused.
func TestMetrics(t *testing.T) {
	loaded := false
	h := New(Config{Service: newService(t, router.Config{}), Loaded: func() bool { return loaded }})
	for _, path := range []string{"/services", "/services?a", "/dump", "/x", "/y", "/health", "/ready"} {
		do(t, h, "GET", path, "")
	}
	loaded = true
	do(t, h, "GET", "/services", "")
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(h))
	families, err := registry.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			name := strings.TrimPrefix(family.GetName(), "hitline_router_http_request")
			for _, label := range m.Label {
				name += " " + label.GetValue()
			}
			got[name] = m.Counter.GetValue() + float64(m.Histogram.GetSampleCount())
		}
	}
	require.Equal(t, map[string]float64{
		"s_total 503 /services": 2, "s_total 503 /dump": 1, "s_total 404 other": 2, "s_total 200 /health": 1, "s_total 200 /ready": 1, "s_total 200 /services": 1,
		"_duration_seconds /services": 3, "_duration_seconds /dump": 1, "_duration_seconds other": 2, "_duration_seconds /health": 1, "_duration_seconds /ready": 1,
	}, got)
}
