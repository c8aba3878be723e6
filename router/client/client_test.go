package client_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/fakeserver"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/client"
	"github.com/hitline/hitline/router/fleet"
	"github.com/hitline/hitline/router/httpapi"
)

func TestMain(m *testing.M) { lookuptest.Main(m) }

// nobody is the answer if no engine has anything.
const nobody = `{"instances": {}, "tenant_id": "default"}`

// newClient returns a client of a handler.
func newClient(t *testing.T, handler http.HandlerFunc, opts ...client.Option) *client.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := client.New(server.URL+"/", opts...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// answering returns a client of a server with one answer.
func answering(t *testing.T, status int, reply string) *client.Client {
	t.Helper()
	return newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, reply)
	})
}

func query(t *testing.T, c *client.Client) (*client.Answer, error) {
	return c.Query(t.Context(), &client.Query{})
}

// hashesOf returns n hashes of 32 bytes.
func hashesOf(n int) coordinator.Hashes {
	return coordinator.NewHashes(lookuptest.Chain("prompt", n, 32), 32)
}

// The client asks the real server all that it can.
func TestAgainstTheServer(t *testing.T) {
	key := router.ModelKey{Name: "llama"}
	service, err := router.New(router.Config{Models: []router.Model{{ModelKey: key, Fleet: fleet.Config{BlockSize: 16}, Hash: &router.Hashing{}}}})
	require.NoError(t, err)
	t.Cleanup(service.Close)
	require.NoError(t, service.Add(router.Source{Endpoint: "tcp://127.0.0.1:1", Model: "llama", Engine: "away"}))
	c := newClient(t, httpapi.New(httpapi.Config{Service: service, Local: true}).ServeHTTP)

	tokens := make([]int64, 50)
	require.NoError(t, c.Predict(t.Context(), &client.Prediction{Prompt: client.Prompt{Tokens: tokens, BlockSize: 16}, Engine: "a", Rank: 2}))
	require.NoError(t, c.Predict(t.Context(), &client.Prediction{Prompt: client.Prompt{Hashes: hashesOf(2)}, Engine: "b"}))
	answer, err := c.Query(t.Context(), &client.Query{Prompt: client.Prompt{Tokens: tokens}})
	require.NoError(t, err)
	require.True(t, json.Valid(answer.JSON))
	answer.JSON = nil
	media := map[string]int64{"GPU": 0, "CPU": 0, "DISK": 0, client.Predicted: 48}
	reasons := []string{client.ReasonIncomplete, client.ReasonStale, client.ReasonUnchecked}
	require.Equal(t, &client.Answer{
		Tenant: "default", Engines: []client.Engine{{Name: "a", Tokens: 48, Media: media, Ranks: map[int]int64{2: 48}}}, LoadableTokens: -1,
		Unsure: map[string][]string{"away": reasons}, UnsureRanks: map[string]map[int][]string{"away": {0: reasons}},
	}, answer)
	answer, err = c.Query(t.Context(), &client.Query{Prompt: client.Prompt{Hashes: hashesOf(3)}})
	require.NoError(t, err)
	require.Equal(t, "b", answer.Engines[0].Name)
	require.Equal(t, int64(32), answer.Engines[0].Tokens)
	answer, err = query(t, c)
	require.NoError(t, err)
	require.Empty(t, answer.Engines)

	services, err := c.Services(t.Context())
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), services.Time, time.Minute)
	require.Equal(t, []client.Holder{{Engine: "a", Rank: 2, Stale: true, Blocks: 3}, {Engine: "away", Stale: true}, {Engine: "b", Stale: true, Blocks: 2}}, services.Models[0].Holders)
	require.Equal(t, "away", services.Sources[0].Engine)

	var refused *client.RefusedError
	err = c.Predict(t.Context(), &client.Prediction{Engine: "a", Prompt: client.Prompt{BlockSize: 32}})
	require.ErrorAs(t, err, &refused)
	require.ErrorIs(t, err, client.ErrRefused)
	require.Equal(t, 409, refused.Status)
	require.Equal(t, "other_block_size", refused.Code)
}

func TestAnswers(t *testing.T) {
	answer, err := query(t, answering(t, 200, `{"instances": {
		"b": {"longest_matched": 64, "gpu": 16, "cpu": 64, "disk": 0, "dp": {"1": 64}}, "c": {"longest_matched": 80},
		"a": {"longest_matched": 64, "gpu": 0, "cpu": 0, "disk": 0, "dp": {"0": 64}, "media": {"STORAGE": 64}}},
		"tenant_id": "t", "loadable_tokens": 96, "loadable_unknown": "why", "kv_hints": {"b": {"x": 1}},
		"unsure": {"b": ["stale"], "d": ["stale"]}, "unsure_ranks": {"b": {"0": ["stale"]}, "d": {"0": ["stale"]}}}`))
	require.NoError(t, err)
	require.Equal(t, []client.Engine{
		{Name: "c", Tokens: 80, Media: map[string]int64{"GPU": 0, "CPU": 0, "DISK": 0}, Ranks: map[int]int64{}},
		{Name: "a", Tokens: 64, Media: map[string]int64{"GPU": 0, "CPU": 0, "DISK": 0, "STORAGE": 64}, Ranks: map[int]int64{0: 64}},
		{Name: "b", Tokens: 64, Media: map[string]int64{"GPU": 16, "CPU": 64, "DISK": 0}, Ranks: map[int]int64{1: 64}},
	}, answer.Engines)
	require.Equal(t, "t", answer.Tenant)
	require.Equal(t, int64(96), answer.LoadableTokens)
	require.Equal(t, "why", answer.LoadableUnknown)
	require.JSONEq(t, `{"x": 1}`, string(answer.KVHints["b"]))
	for _, test := range []struct {
		engine string
		rank   int
		tokens int64
		stale  bool
	}{
		{"a", client.AllRanks, 64, false},
		{"b", client.AllRanks, 64, true}, // one of its ranks is stale
		{"b", 1, 64, false},
		{"b", 0, 0, true},
		{"d", client.AllRanks, 0, true},
		{"e", 0, 0, false},
	} {
		tokens, stale := answer.Prefix(test.engine, test.rank)
		require.Equal(t, test.tokens, tokens, test)
		require.Equal(t, test.stale, stale, test)
	}
}

// What is no answer is an error of its class, and its text is a printable line.
func TestBadReplies(t *testing.T) {
	for _, test := range []struct {
		status int
		reply  string
		class  error
		want   string
	}{
		{200, ``, client.ErrReply, "no JSON"},
		{200, `[]`, client.ErrReply, "the document has another type: array"},
		{200, `{}`, client.ErrReply, "instances are missing"},
		{200, `{"instances": {"\u001b": {}}}`, client.ErrReply, `longest_matched of "\x1b" is missing`},
		{200, `{"instances": {"a": {"longest_matched": -1}}}`, client.ErrReply, "-1 is no number of tokens"},
		{200, `{"instances": {"a": {"longest_matched": 1, "gpu": null}}}`, client.ErrReply, "null is no number of tokens"},
		{200, `{"instances": {"a": {"longest_matched": 1, "dp": {"x": 1}}}}`, client.ErrReply, "instances.dp has another type: number x"},
		{200, `{"instances": {}, "loadable_tokens": 1.5}`, client.ErrReply, "1.5 is no number of tokens"},
		{200, nobody + strings.Repeat(" ", 32<<20), client.ErrReply, "more than 33554432 bytes"},
		{503, `{"error": {"code": "busy", "message": "try\nagain"}}`, client.ErrRefused, `try\nagain (busy)`},
		{404, `page not found`, client.ErrRefused, "404 Not Found; is this router.listen?"},
		{302, ``, client.ErrRefused, "302 Found"},
		{400, `Client sent an HTTP request to an HTTPS server.`, client.ErrRefused, "400 Bad Request; it has TLS, so give https://"},
	} {
		_, err := query(t, answering(t, test.status, test.reply))
		require.ErrorIs(t, err, test.class, test.reply)
		require.ErrorContains(t, err, test.want)
		require.ErrorContains(t, err, test.class.Error()+": ")
		require.Less(t, len(err.Error()), 700)
	}
	_, err := answering(t, 200, `{}`).Services(t.Context())
	require.ErrorIs(t, err, client.ErrReply)
}

func TestNoAnswer(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	c, err := client.New(gone.URL)
	require.NoError(t, err)
	_, err = query(t, c)
	require.ErrorIs(t, err, client.ErrConnect)

	released := make(chan struct{})
	wait := func(http.ResponseWriter, *http.Request) { <-released }
	_, err = query(t, newClient(t, wait, client.WithTimeout(20*time.Millisecond)))
	close(released)
	require.ErrorIs(t, err, client.ErrNoAnswer)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	hangUp := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	_, err = query(t, newClient(t, hangUp))
	require.ErrorIs(t, err, client.ErrConnect)
	require.ErrorContains(t, err, "the server does not speak HTTP")

	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, nobody)
	}
	_, err = query(t, newClient(t, cut))
	require.ErrorIs(t, err, client.ErrNoAnswer)
}

// A connection that the server has closed while nobody used it costs no answer.
func TestClosedConnections(t *testing.T) {
	requests := 0
	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests == 2 { // the connection is not new any more
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, nobody)
	})
	for range 2 {
		_, err := query(t, c)
		require.NoError(t, err)
	}
	require.Equal(t, 3, requests)
}

func TestAddresses(t *testing.T) {
	for _, address := range []string{"", "127.0.0.1:1", "tcp://a:1", "http://", "http://u:secret@a:1", "http://a:1/query", "http://a:1?x", "http://a b:1"} {
		_, err := client.New(address)
		require.ErrorContains(t, err, "the address must be http://host:port", address)
		require.NotContains(t, err.Error(), "secret")
	}
}

// The file of the token is read for each request.
func TestTokenFile(t *testing.T) {
	var got string
	path := filepath.Join(t.TempDir(), "token")
	t.Setenv("HITLINE_TOKEN_FILE", path)
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		_, _ = io.WriteString(w, nobody)
	})
	_, err := query(t, c)
	require.ErrorIs(t, err, client.ErrConnect, "there is no token yet")
	for _, token := range []string{"first", "second"} {
		require.NoError(t, os.WriteFile(path, []byte(token+"\n"), 0o600))
		_, err = query(t, c)
		require.NoError(t, err)
		require.Equal(t, "Bearer "+token, got)
	}
}

// What a later server adds to its replies changes nothing.
func TestGrownReplies(t *testing.T) {
	fakeserver.EachGrowth(t, func(t *testing.T, s *fakeserver.Server) string {
		c, err := client.New(s.Router)
		require.NoError(t, err)
		defer c.Close()
		answer, err := query(t, c)
		require.NoError(t, err)
		services, err := c.Services(t.Context())
		require.NoError(t, err)
		var refused *client.RefusedError
		require.ErrorAs(t, c.Predict(t.Context(), &client.Prediction{}), &refused)
		answer.JSON, services.JSON = nil, nil
		return fakeserver.JSON(t, answer) + fakeserver.JSON(t, services) + fakeserver.JSON(t, refused)
	})
}

// queryFields returns the fields of /query by openapi.yaml, without other names of the same.
func queryFields(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../httpapi/openapi.yaml")
	require.NoError(t, err)
	var doc struct {
		Components struct {
			Schemas struct {
				Query struct{ Properties map[string]any } `yaml:"Query"`
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &doc))
	for name := range doc.Components.Schemas.Query.Properties {
		if !slices.Contains([]string{"modelname", "model_name", "block_hash"}, name) {
			names = append(names, name)
		}
	}
	return names
}

// Every option and every field of a request changes what is sent.
func TestWhatIsSent(t *testing.T) {
	s := fakeserver.Start(t, fakeserver.Config{})
	sent := func(ask func(*client.Client) error, opts ...client.Option) string {
		c, err := client.New(s.Router, opts...)
		require.NoError(t, err)
		defer c.Close()
		_ = ask(c) // it may be refused
		return s.Sent()
	}
	ask := func(q client.Query) func(*client.Client) error {
		return func(c *client.Client) error { _, err := c.Query(t.Context(), &q); return err }
	}
	plain := sent(ask(client.Query{}))
	keys := map[string]bool{}
	for name, set := range lookuptest.Fields[client.Query]() {
		var q client.Query
		set(&q)
		got := sent(ask(q))
		require.NotEqual(t, plain, got, "Query.%s", name)
		var body map[string]any
		require.NoError(t, json.Unmarshal([]byte(got[strings.Index(got, "{"):]), &body))
		for key := range body {
			keys[key] = true
		}
	}
	require.ElementsMatch(t, queryFields(t), slices.Collect(maps.Keys(keys)), "every field of /query can be asked")
	predict := func(p client.Prediction) func(*client.Client) error {
		return func(c *client.Client) error { return c.Predict(t.Context(), &p) }
	}
	plain = sent(predict(client.Prediction{}))
	for name, set := range lookuptest.Fields[client.Prediction]() {
		var p client.Prediction
		set(&p)
		require.NotEqual(t, plain, sent(predict(p)), "Prediction.%s", name)
	}

	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte("of-a-file\n"), 0o600))
	ca := certtest.NewCA("ca")
	secure := fakeserver.Start(t, fakeserver.Config{TLS: &tls.Config{Certificates: []tls.Certificate{ca.Leaf("127.0.0.1")}}})
	effects := map[string]func(){
		"WithToken":     func() { require.Contains(t, sent(ask(client.Query{}), client.WithToken("a-token")), "Bearer a-token") },
		"WithTokenFile": func() { require.Contains(t, sent(ask(client.Query{}), client.WithTokenFile(path)), "Bearer of-a-file") },
		"WithTimeout": func() {
			require.Empty(t, sent(func(c *client.Client) error {
				_, err := query(t, c)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				return err
			}, client.WithTimeout(1)))
		},
		"WithTLS": func() {
			for _, opts := range [][]client.Option{nil, {client.WithTLS(&tls.Config{RootCAs: ca.Pool()})}} {
				c, err := client.New(secure.Router, opts...)
				require.NoError(t, err)
				_, err = query(t, c)
				c.Close()
				require.Equal(t, opts != nil, err == nil, err)
			}
		},
	}
	for _, name := range lookuptest.Options(t) {
		require.Contains(t, effects, name)
		effects[name]()
	}
}
