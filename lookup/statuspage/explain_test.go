package statuspage

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// hexOf returns n hashes of a prompt in hex.
func hexOf(n int) []string {
	texts := make([]string, n)
	for i := range n {
		texts[i] = hex.EncodeToString(prompt(n)[i*32 : (i+1)*32])
	}
	return texts
}

// explain returns the reply to an explain request, which is one.
func explain(t *testing.T, p *Page, request map[string]any) explainReply {
	t.Helper()
	body, err := json.Marshal(request)
	require.NoError(t, err)
	w := ask(p, http.MethodPost, "/explain", string(body), jsonBody)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	var reply explainReply
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply))
	return reply
}

// The reply is the service's explanation, and counts nothing.
func TestExplain(t *testing.T) {
	p, service := plainPage(t)
	store(t, service, 5)
	want, err := service.Explain(t.Context(), 160, hashesOfPrompt(10))
	require.NoError(t, err)
	require.EqualValues(t, 80, want.HitTokens)

	got := explain(t, p, map[string]any{"pool": "", "tokens": 160, "hashes": hexOf(10)})
	assert.Equal(t, explainReply{Explanation: want, Tokens: 160, Hashes: 10, HashBlockSize: 16}, got)
	from := explain(t, p, map[string]any{"start_tokens": 135, "hashes": hexOf(10)})
	assert.EqualValues(t, []int64{128, 128, 8}, []int64{from.StartTokens, from.HitTokens, *from.Groups[0].FirstMissingBlock})
	assert.EqualValues(t, 160, explain(t, p, map[string]any{"hashes": hexOf(10)}).Tokens, "by default those of the hashes")
	assert.Equal(t, coordinator.ReasonNothing, explain(t, p, map[string]any{}).Groups[0].Reason)
	assert.Zero(t, service.Stat().Lookups)
}

func TestExplainNamedPool(t *testing.T) {
	named := newService(t, lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 32}})
	p := pageOf(t, nil, server.Config{Pools: []server.ServedPool{{Name: "a", Service: named}}}, Options{})
	store(t, named, 3)
	got := explain(t, p, map[string]any{"pool": "a", "hashes": hexOf(4)})
	assert.Equal(t, "a", got.Pool)
	assert.EqualValues(t, 96, got.HitTokens)
	assert.EqualValues(t, 128, got.Tokens)
	for pool, want := range map[string]string{"": "the server has no pool of its own; name one", "<b>": `no pool "<b>"`} {
		body, _ := json.Marshal(map[string]any{"pool": pool})
		w := ask(p, http.MethodPost, "/explain", string(body), jsonBody)
		assert.Equal(t, http.StatusNotFound, w.Code)
		assert.NotContains(t, w.Body.String(), "<b>", "even if it were taken for HTML")
		var reply struct{ Error string }
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply))
		assert.Equal(t, want, reply.Error)
	}
}

func TestExplainRefused(t *testing.T) {
	p, _ := plainPage(t)
	for body, want := range map[string]struct {
		code int
		text string
	}{
		``:                           {400, "EOF"},
		`[]`:                         {400, "cannot unmarshal array"},
		`{"hashes": "00"}`:           {400, "cannot unmarshal string"},
		`{"hashes": [1]}`:            {400, "cannot unmarshal number"},
		`{"hashes": ["abc"]}`:        {400, `hash 1 is not in hex: \"abc\"`},
		`{"hashes": [""]}`:           {400, "hash 1 is not in hex"},
		`{"hashes": ["0000", "00"]}`: {400, "hash 2 has 1 bytes, those before it 2"},
		`{"hashes": ["00"]}`:         {400, "hashes of 1 bytes; those of the pool have 32"},
		`{"hashes": ["` + strings.Repeat("00", 65) + `"]}`: {400, "hash 1 has 65 bytes; at most 64 are possible"},
		`{"hashes": [], "promt": 1}`:                       {400, "unknown field"},
		`{"tokens": -1}`:                                   {422, "a number of tokens is negative"},
		`{"pool": "` + strings.Repeat("a", 100000) + `"}`:  {404, "no pool"},
		strings.Repeat(" ", maxExplainBody+1):              {413, "more than 8388608 bytes"},
	} {
		w := ask(p, http.MethodPost, "/explain", body, jsonBody)
		name := body[:min(len(body), 80)]
		assert.Equal(t, want.code, w.Code, name)
		assert.Contains(t, w.Body.String(), want.text, name)
		assert.Less(t, w.Body.Len(), 600, "an error does not repeat the request")
	}
}

// What is computed at a time is bounded, before a body is read.
func TestBusy(t *testing.T) {
	p, _ := plainPage(t)
	for range 2 {
		require.True(t, acquire(p.explain))
	}
	w := ask(p, http.MethodPost, "/explain", "not JSON", jsonBody)
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Equal(t, "1", w.Header().Get("Retry-After"))
	release(p.explain)
	assert.Equal(t, http.StatusOK, ask(p, http.MethodPost, "/explain", "{}", jsonBody).Code)
	assert.Len(t, p.explain, 1, "a reply frees its place")

	for range 4 {
		require.True(t, acquire(p.status))
	}
	assert.Equal(t, http.StatusServiceUnavailable, ask(p, http.MethodGet, "/status", "").Code)
	release(p.status)
	statusOf(t, p)
	assert.Len(t, p.status, 3)
}

// A store that fails or does not answer makes an error, not an explanation.
func TestExplainOverBackend(t *testing.T) {
	blocked := &lookuptest.KeyStore{Before: func(ctx context.Context, _ string, _ []string) error { <-ctx.Done(); return ctx.Err() }}
	failing := &lookuptest.KeyStore{Before: func(context.Context, string, []string) error { return lookuptest.ErrStore }}
	for _, test := range []struct {
		backend *lookuptest.KeyStore
		timeout time.Duration
		want    int
	}{{blocked, 50 * time.Millisecond, http.StatusGatewayTimeout}, {failing, time.Minute, http.StatusUnprocessableEntity}} {
		service := newService(t, lookup.ServiceConfig{
			Pool: lookuptest.Blocks16, Backend: test.backend, Remote: lookup.RemoteConfig{Timeout: test.timeout},
		})
		p := pageOf(t, service, server.Config{}, Options{})
		w := ask(p, http.MethodPost, "/explain", `{"hashes": ["`+strings.Join(hexOf(3), `","`)+`"]}`, jsonBody)
		assert.Equal(t, test.want, w.Code, w.Body)
		assert.Contains(t, w.Body.String(), `"error"`)
	}
}

// An explanation ends after 5 s, though the store has more time.
func TestExplainTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := &lookuptest.KeyStore{Before: func(ctx context.Context, _ string, _ []string) error { <-ctx.Done(); return ctx.Err() }}
		p := pageOf(t, newService(t, lookup.ServiceConfig{
			Pool: lookuptest.Blocks16, Backend: blocked, Remote: lookup.RemoteConfig{Timeout: time.Minute},
		}), server.Config{}, Options{})
		begin := time.Now()
		w := ask(p, http.MethodPost, "/explain", `{"hashes": ["`+strings.Join(hexOf(3), `","`)+`"]}`, jsonBody)
		assert.Equal(t, http.StatusGatewayTimeout, w.Code, w.Body)
		assert.Equal(t, 5*time.Second, time.Since(begin))
	})
}

// stuckWriter is the writer of a client that does not read.
type stuckWriter struct {
	http.ResponseWriter
	writing chan<- struct{}
	end     <-chan struct{}
}

func (w stuckWriter) Write(b []byte) (int, error) {
	w.writing <- struct{}{}
	<-w.end
	return len(b), nil
}

// Clients that do not read their replies keep nobody from his.
func TestStuckClientsHoldNoPlace(t *testing.T) {
	p, _ := plainPage(t)
	writing, end := make(chan struct{}), make(chan struct{})
	var stuck sync.WaitGroup
	defer stuck.Wait()
	defer close(end)
	for range 2 * maxStatus {
		for _, r := range []*http.Request{
			httptest.NewRequest(http.MethodGet, "/status", nil),
			httptest.NewRequest(http.MethodPost, "/explain", strings.NewReader(`{"tokens": 16}`)),
		} {
			r.Host = "localhost"
			r.Header.Set("Content-Type", "application/json")
			stuck.Go(func() { p.ServeHTTP(stuckWriter{httptest.NewRecorder(), writing, end}, r) })
			<-writing
		}
	}
	require.Equal(t, http.StatusOK, ask(p, http.MethodGet, "/status", "").Code)
	require.Equal(t, http.StatusOK, ask(p, http.MethodPost, "/explain", `{"tokens": 16}`, jsonBody).Code)
}
