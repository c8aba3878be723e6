package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/events"
	"github.com/hitline/hitline/router/fleet"
)

func TestMain(m *testing.M) { lookuptest.Main(m) }

var llama = router.ModelKey{Name: "llama"}

// deadEndpoint is one that nothing listens at.
func deadEndpoint(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return "tcp://" + l.Addr().String()
}

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
func hold(t testing.TB, s *router.Service, key router.ModelKey, instance string, rank int, medium string, hashes coordinator.Hashes) {
	t.Helper()
	f, err := s.Fleet(key)
	require.NoError(t, err)
	h := f.Get(fleet.ID{Engine: instance, Rank: rank})
	if h == nil {
		h, err = f.Add(fleet.ID{Engine: instance, Rank: rank})
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
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	reply, err := io.ReadAll(w.Result().Body)
	require.NoError(t, err)
	return w.Code, string(reply)
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
	for _, test := range []struct{ path, body, want string }{
		{
			"/query_by_hash", `{"model": "llama", "block_size": 16, "seq_hashes": ` + hexOf(prompt) + `}`,
			`{"default": {"vllm-1": {"longest_matched": 256, "GPU": 128, "CPU": 256, "DISK": 0, "DP": {"0": 128, "1": 256}},
			  "b\"2": {"longest_matched": 16, "GPU": 0, "CPU": 0, "DISK": 0, "DP": {"0": 16}, "STORAGE": 16}}}`,
		},
		{
			"/query_by_hash", `{"instance_id": "b\u00222", "loadable": true, "block_hash": ` + hexOf(prompt) + `}`,
			`{"default": {"b\"2": {"longest_matched": 16, "GPU": 0, "CPU": 0, "DISK": 0, "DP": {"0": 16}, "STORAGE": 16}}, "loadable_tokens": 112}`,
		},
		{"/query_by_hash", `{"seq_hashes": [1, -1, 18446744073709551615]}`, `{"default": {}}`},
		{"/query", `{"model": "llama", "lora_name": null, "token_ids": [1, 2, 3], "stream": {"of": [1.5e3, null]}}`, `{"default": {}}`},
		{"/predict", `{"instance_id": "p", "token_ids": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}`, `{"status": "predicted", "instance_id": "p"}`},
		{
			"/query", `{"token_ids": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}`,
			`{"default": {"p": {"longest_matched": 16, "GPU": 0, "CPU": 0, "DISK": 0, "DP": {"0": 16}, "predicted": 16}}}`,
		},
		{
			"/register", `{"endpoint": "` + deadEndpoint(t) + `", "type": "vLLM", "modelname": "llama", "instance_id": "vllm-2", "block_size": 16,
			  "dp_rank": 1, "lora_name": "ignored", "additionalsalt": ""}`,
			`{"status": "registered successfully", "instance_id": "vllm-2"}`,
		},
		{
			"/unregister", `{"type": "vLLM", "modelname": "llama", "tenant_id": "default", "instance_id": "vllm-2", "block_size": 16, "dp_rank": 1}`,
			`{"status": "unregistered successfully", "removed_instances": ["vllm-2|default|1"]}`,
		},
	} {
		status, reply := do(t, h, "POST", test.path, test.body)
		require.Equal(t, 200, status, reply)
		require.JSONEq(t, test.want, reply, test.body)
		require.True(t, json.Valid([]byte(reply)))
	}
}

// serve starts a server of a handler with what a service needs.
func serve(t *testing.T, limits Limits) (*Handler, string) {
	t.Helper()
	s := newService(t, router.Config{Models: []router.Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}, Hash: &router.Hashing{}}}})
	h := New(Config{Service: s, Limits: limits})
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return h, server.Listener.Addr().String()
}

// raw sends text to a server and returns all replies on the connection, which the server closes.
func raw(t *testing.T, address, text string, closeWrite bool) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = io.WriteString(conn, text)
	require.NoError(t, err)
	if closeWrite {
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	}
	reply, err := io.ReadAll(conn)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the server must close the connection; a reset will do")
	return string(reply)
}

func post(header, body string) string {
	return "POST /query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" + header + "\r\n\r\n" + body
}

// Bodies that are not what their headers say.
func TestHostileBodies(t *testing.T) {
	_, address := serve(t, Limits{MaxBody: 1000, BodyTimeout: 300 * time.Millisecond})
	body := `{"token_ids": [1, 2, 3]}`
	length := func(n int64) string { return fmt.Sprintf("Content-Length: %d", n) }
	for name, test := range map[string]struct {
		text string
		want []string // in the reply
		not  string
	}{
		"right":              {post(length(int64(len(body)))+"\r\nConnection: close", body), []string{"200 OK", `{"default":{}}`}, "error"},
		"too long a length":  {post(length(int64(len(body)+5)), body), []string{"408 Request Timeout", "slow_body", "Connection: close"}, "127.0.0.1"},
		"too short a length": {post(length(int64(len(body)-5)), body), []string{"400 Bad Request", "bad_json"}, "200 OK"},
		"a huge length":      {post(length(1<<40), body), []string{"413 Request Entity Too Large", "too_large", "Connection: close"}, "200 OK"},
		"a negative length":  {post(length(-1), body), []string{"400 Bad Request"}, "200 OK"},
		"two lengths":        {post(length(24)+"\r\n"+length(23), body), []string{"400 Bad Request"}, "200 OK"},
		"chunks for ever": {
			post("Transfer-Encoding: chunked", strings.Repeat("64\r\n"+strings.Repeat(" ", 100)+"\r\n", 20)), []string{"413 Request", "too_large"}, "200 OK",
		},
		"bad chunks":    {post("Transfer-Encoding: chunked", "zz\r\n"), []string{"400 Bad Request", "bad_json"}, "200 OK"},
		"compressed":    {post(length(int64(len(body)))+"\r\nContent-Encoding: gzip", body), []string{"415 Unsupported", "media_type"}, "200 OK"},
		"nothing comes": {post(length(100), ""), []string{"408 Request Timeout", "slow_body"}, "200 OK"},
		"trailing data": {post(length(int64(len(body)+2)), body+"{}"), []string{"400 Bad Request", "bad_json", "something follows"}, "200 OK"},
		"deep nesting":  {post(length(900), strings.Repeat("[", 900)), []string{"400 Bad Request", "bad_json"}, "200 OK"},
		"expects 100": {
			post(length(int64(len(body)))+"\r\nExpect: 100-continue\r\nConnection: close", body), []string{"100 Continue", "200 OK"}, "error",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reply := raw(t, address, test.text, name != "too long a length" && name != "nothing comes" && name != "right" && name != "expects 100")
			for _, want := range test.want {
				require.Contains(t, reply, want)
			}
			require.NotContains(t, reply, test.not)
		})
	}
}

// The time for bodies does not count while a request is answered, nor for the next one on the connection.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	store, gate := &lookuptest.KeyStore{}, lookuptest.NewGate()
	store.Holding(gate, "exists", "")
	slow, err := lookup.NewService(lookup.ServiceConfig{Pool: newPool(t, 0).Pool(), Backend: store, Remote: lookup.RemoteConfig{Timeout: time.Minute}})
	require.NoError(t, err)
	s := newService(t, router.Config{Models: []router.Model{{ModelKey: llama, Pool: slow}}})
	const bodyTimeout, replyTimeout = 500 * time.Millisecond, 3 * time.Second
	h := New(Config{Service: s, Limits: Limits{BodyTimeout: bodyTimeout, ReplyTimeout: replyTimeout}})
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	in := bufio.NewReader(conn)
	ask := func(text string) string {
		_, err := io.WriteString(conn, text)
		require.NoError(t, err)
		response, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, 200, response.StatusCode, string(body))
		return string(body)
	}
	body := `{"loadable": true, "seq_hashes": ` + hexOf(chain(3)) + `}`
	query := strings.Replace(post(fmt.Sprintf("Content-Length: %d", len(body)), body), "/query", "/query_by_hash", 1)
	opened := time.AfterFunc(2*bodyTimeout, func() { close(gate.Open) })
	defer opened.Stop()
	require.JSONEq(t, `{"default": {}, "loadable_tokens": 0}`, ask(query))
	require.Contains(t, ask("GET /dump HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"), "HITLDUMP")
	ask(query)
}

// Also who is refused before its body is read has BodyTimeout to send it, not for ever.
func TestRefusedBody(t *testing.T) {
	s := newService(t, router.Config{})
	refuseAll := func(*http.Request) (Access, error) { return Access{}, errToken }
	server := httptest.NewServer(New(Config{Service: s, Authorize: refuseAll, Limits: Limits{BodyTimeout: 200 * time.Millisecond}}))
	t.Cleanup(server.Close)
	for _, path := range []string{"/query", "/nowhere"} {
		text := strings.Replace(post("Content-Length: 1000", "{"), "/query", path, 1)
		require.Contains(t, raw(t, server.Listener.Addr().String(), text, false), "HTTP/1.1 40")
	}
}

// Bodies that arrive slowly take all places, other requests are refused meanwhile and served afterwards. What is cheap is
// served meanwhile.
func TestBusy(t *testing.T) {
	h, address := serve(t, Limits{MaxRequests: 2, BodyTimeout: time.Minute})
	h.arrivals.min = time.Hour
	var slow []net.Conn
	for range 2 {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = io.WriteString(conn, post("Content-Length: 17", `{"token_ids":`))
		require.NoError(t, err)
		slow = append(slow, conn)
	}
	lookuptest.Eventually(t, "both have a place", func() bool { return len(h.requests) == 2 })
	status, reply := do(t, h, "POST", "/query", `{"token_ids": []}`)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, reply, "busy")
	status, _ = do(t, h, "GET", "/health", "")
	require.Equal(t, http.StatusOK, status)
	for _, conn := range slow {
		_, err := io.WriteString(conn, ` []}`)
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode)
	}
	lookuptest.Eventually(t, "the places are free", func() bool { return len(h.requests) == 0 })
	status, _ = do(t, h, "POST", "/query", `{"token_ids": []}`)
	require.Equal(t, http.StatusOK, status)
}

// If all places are taken, the body that has been arriving for longest is ended for another request.
func TestSlowBodiesGiveWay(t *testing.T) {
	h, address := serve(t, Limits{MaxRequests: 2, BodyTimeout: time.Minute})
	h.arrivals.min, h.arrivals.wait = 0, time.Minute
	var slow []net.Conn
	for n := range 2 {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = io.WriteString(conn, post("Content-Length: 17", `{"token_ids":`))
		require.NoError(t, err)
		slow = append(slow, conn)
		lookuptest.Eventually(t, "it has a place", func() bool { return h.arrivals.len() == n+1 })
	}
	status, reply := do(t, h, "POST", "/query", `{"token_ids": []}`)
	require.Equal(t, http.StatusOK, status, reply)
	_, err := io.WriteString(slow[1], ` []}`)
	require.NoError(t, err)
	for n, want := range []int{http.StatusRequestTimeout, http.StatusOK} {
		require.NoError(t, slow[n].SetDeadline(time.Now().Add(30*time.Second)))
		response, err := http.ReadResponse(bufio.NewReader(slow[n]), nil)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, want, response.StatusCode)
	}
	lookuptest.Eventually(t, "the places are free", func() bool { return len(h.requests) == 0 })
	require.Zero(t, h.arrivals.len())
}

// A client that does not read its reply holds no place.
func TestUnreadReply(t *testing.T) {
	h, _ := serve(t, Limits{MaxRequests: 1})
	w := &stuckWriter{header: http.Header{}, inWrite: make(chan struct{}), release: make(chan struct{})}
	r := httptest.NewRequest(http.MethodPost, "/query", strings.NewReader(`{"token_ids": []}`))
	r.Header.Set("Content-Type", "application/json")
	var running sync.WaitGroup
	running.Go(func() { h.ServeHTTP(w, r) })
	<-w.inWrite
	status, _ := do(t, h, "POST", "/query", `{"token_ids": []}`)
	require.Equal(t, http.StatusOK, status)
	close(w.release)
	running.Wait()
}

// stuckWriter is a connection that nobody reads.
type stuckWriter struct {
	header           http.Header
	inWrite, release chan struct{}
}

func (w *stuckWriter) Header() http.Header { return w.header }
func (w *stuckWriter) WriteHeader(int)     {}
func (w *stuckWriter) Write(b []byte) (int, error) {
	close(w.inWrite)
	<-w.release
	return len(b), nil
}

// A panic ends one request, and is logged with its stack.
func TestPanic(t *testing.T) {
	log, logger := lookuptest.NewLog(slog.LevelError)
	h := New(Config{Service: newService(t, router.Config{}), Ready: func() error { panic("boom") }, Logger: logger})
	status, reply := do(t, h, "GET", "/ready", "")
	require.Equal(t, http.StatusInternalServerError, status)
	require.NotContains(t, reply, "boom")
	require.Contains(t, log.String(), "boom")
	require.Contains(t, log.String(), "handler_test.go")
	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		h := New(Config{Ready: func() error { panic(http.ErrAbortHandler) }})
		do(t, h, "GET", "/ready", "")
	})
}

// Long names of a request do not come back whole, and never as broken UTF-8.
func TestLongMessage(t *testing.T) {
	h, _ := serve(t, Limits{})
	status, reply := do(t, h, "POST", "/query", `{"token_ids": [], "model": "`+strings.Repeat("é", 2000)+`"}`)
	require.Equal(t, http.StatusNotFound, status)
	require.Less(t, len(reply), 600)
	require.True(t, utf8.ValidString(reply))
}

// Pages of other sites may not ask, and a path or a host that there is not is refused.
func TestOrigins(t *testing.T) {
	s := newService(t, router.Config{Models: []router.Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}}}})
	h := New(Config{Service: s})
	body := `{"seq_hashes": []}`
	for _, test := range []struct {
		header []string
		want   int
	}{
		{nil, 200}, {[]string{"Origin", "http://evil.example"}, 403}, {[]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{[]string{"Sec-Fetch-Site", "same-origin"}, 200}, {[]string{"Content-Type", "text/plain"}, 415}, {[]string{"Content-Type", ""}, 415},
		{[]string{"Content-Type", `application/json; x="`}, 415}, {[]string{"Content-Encoding", "identity"}, 200},
	} {
		status, reply := do(t, h, "POST", "/query_by_hash", body, test.header...)
		require.Equal(t, test.want, status, "%v: %s", test.header, reply)
	}
	for _, path := range []string{"/", "/query/", "//query", "/Query", "/metrics", "/dump/x"} {
		status, reply := do(t, h, "GET", path, "")
		require.Equal(t, 404, status, path)
		require.Contains(t, reply, "no_path")
	}
	status, reply := do(t, h, "HEAD", "/health", "")
	require.Equal(t, 200, status, reply)
	status, reply = do(t, h, "HEAD", "/dump", "")
	require.Equal(t, 405, status, reply)
	require.Contains(t, reply, "/dump takes GET\"")
	status, reply = do(t, h, "POST", "/query", `{"token_ids": [1], "lora_path": "/adapters/a"}`)
	require.Equal(t, 400, status, reply)
	require.Contains(t, reply, "lora_name")
}

// Requests have their counts by path and status, and durations by path. What is no path has one name. Until the router has
// loaded, what would be answered wrongly is refused.
func TestMetrics(t *testing.T) {
	loaded, aborts := false, false
	h := New(Config{Service: newService(t, router.Config{}), Loaded: func() bool {
		if aborts {
			panic(http.ErrAbortHandler)
		}
		return loaded
	}})
	for _, path := range []string{"/services", "/services?a", "/dump", "/x", "/y", "/health", "/ready"} {
		do(t, h, "GET", path, "")
	}
	loaded = true
	do(t, h, "GET", "/services", "")
	aborts = true
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { do(t, h, "GET", "/dump", "") })
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(h))
	families, err := registry.Gather()
	require.NoError(t, err)
	counts, durations := map[string]float64{}, map[string]uint64{}
	for _, family := range families {
		for _, m := range family.Metric {
			labels := ""
			for _, label := range m.Label {
				labels += label.GetValue() + " "
			}
			switch family.GetName() {
			case "hitline_router_http_requests_total":
				counts[labels] = m.Counter.GetValue()
			case "hitline_router_http_request_duration_seconds":
				durations[labels] = m.Histogram.GetSampleCount()
			}
		}
	}
	require.Equal(t, map[string]float64{"503 /services ": 2, "503 /dump ": 1, "404 other ": 2, "200 /health ": 1, "200 /ready ": 1, "200 /services ": 1}, counts)
	require.Equal(t, map[string]uint64{"/services ": 3, "/dump ": 1, "other ": 2, "/health ": 1, "/ready ": 1}, durations)
}

// What is no endpoint is a wrong field, whatever is allowed. An endpoint that is not allowed is refused as such.
func TestRegisterEndpoints(t *testing.T) {
	s := newService(t, router.Config{Models: []router.Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}}}, Allow: []string{"tcp://127.0.0.1:*"}})
	h := New(Config{Service: s})
	for endpoints, code := range map[string]string{
		`"endpoint": "nonsense"`: "bad_field", `"endpoint": "http://127.0.0.1:1"`: "bad_field", `"endpoint": "tcp://127.0.0.1"`: "bad_field",
		`"endpoint": "tcp://127.0.0.1:1", "replay_endpoint": "nonsense"`: "bad_field", `"endpoint": "tcp://192.0.2.1:1"`: "not_allowed",
	} {
		status, reply := do(t, h, "POST", "/register", `{"modelname": "llama", "instance_id": "a", `+endpoints+`}`)
		require.Equal(t, map[string]int{"bad_field": 400, "not_allowed": 403}[code], status, reply)
		require.Contains(t, reply, `"code":"`+code+`"`)
	}
}

// /unregister without a rank is about all ranks that were registered.
func TestUnregisterAll(t *testing.T) {
	s := newService(t, router.Config{Models: []router.Model{{ModelKey: llama, Fleet: fleet.Config{BlockSize: 16}}}, Allow: []string{"tcp://127.0.0.1:*"}})
	h := New(Config{Service: s})
	for rank, instance := range []string{"a", "a", "b", "a"} {
		body := fmt.Sprintf(`{"endpoint": %q, "modelname": "llama", "instance_id": %q, "dp_rank": %d}`, deadEndpoint(t), instance, rank)
		status, reply := do(t, h, "POST", "/register", body)
		require.Equal(t, 200, status, reply)
	}
	status, reply := do(t, h, "POST", "/unregister", `{"modelname": "llama", "instance_id": "a"}`)
	require.Equal(t, 200, status, reply)
	require.JSONEq(t, `{"status": "unregistered successfully", "removed_instances": ["a|default|0", "a|default|1", "a|default|3"]}`, reply)
	require.Len(t, s.Status(), 1)
	status, _ = do(t, h, "POST", "/unregister", `{"modelname": "llama", "instance_id": "a"}`)
	require.Equal(t, 404, status)
	status, reply = do(t, h, "POST", "/register", `{"endpoint": "tcp://127.0.0.1:1", "modelname": "llama", "instance_id": "s", "additionalsalt": "w"}`)
	require.Equal(t, 400, status)
	require.Contains(t, reply, "additionalsalt")
}

// len returns how many bodies are arriving.
func (a *arrivals) len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.list)
}
