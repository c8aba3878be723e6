package statuspage

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

func TestMain(m *testing.M) { lookuptest.Main(m) }

func newService(t *testing.T, cfg lookup.ServiceConfig) *lookup.Service {
	t.Helper()
	service, err := lookup.NewService(cfg)
	require.NoError(t, err)
	return service
}

// pageOf returns the page of a server that is not started.
func pageOf(t *testing.T, service *lookup.Service, cfg server.Config, options Options) *Page {
	t.Helper()
	srv, err := server.New(service, cfg)
	require.NoError(t, err)
	p := New(srv, options)
	t.Cleanup(p.Close)
	return p
}

// plainPage returns the page of a server of one pool, which is not started.
func plainPage(t *testing.T) (*Page, *lookup.Service) {
	service := newService(t, lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16, HashLen: 32}})
	return pageOf(t, service, server.Config{}, Options{}), service
}

// start starts the server of a page until the end of the test.
func start(t *testing.T, p *Page) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lookuptest.Patience)
	defer cancel()
	require.NoError(t, p.server.Start(ctx))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lookuptest.Patience)
		defer cancel()
		_ = p.server.Shutdown(ctx)
	})
}

// ask returns the reply to a request with headers, each as "Name: value".
func ask(p *Page, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:9557"
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
		}
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

const jsonBody = "Content-Type: application/json"

// statusOf returns the reply to /status.
func statusOf(t *testing.T, p *Page, headers ...string) *status {
	t.Helper()
	w := ask(p, http.MethodGet, "/status", "", headers...)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	st := &status{}
	decoder := json.NewDecoder(w.Body)
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(st))
	_, err := decoder.Token()
	require.ErrorIs(t, err, io.EOF)
	return st
}

// prompt returns n hashes of 32 bytes.
func prompt(n int) []byte {
	var b []byte
	for i := range n {
		b = fmt.Appendf(b, "%032d", i)
	}
	return b
}

func hashesOfPrompt(n int) coordinator.Hashes { return coordinator.NewHashes(prompt(n), 32) }

// lookUp looks up n hashes at a service.
func lookUp(t *testing.T, service *lookup.Service, n int) {
	t.Helper()
	_, err := service.Lookup(t.Context(), int64(16*n), hashesOfPrompt(n))
	require.NoError(t, err)
}

func store(t *testing.T, service *lookup.Service, n int) {
	t.Helper()
	require.NoError(t, service.Store(t.Context(), coordinator.GroupRank{}, hashesOfPrompt(n)))
}
