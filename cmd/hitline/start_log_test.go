package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/cmd/hitline/internal/diagnosis"
	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/internal/storetest"
)

// A server listens before its store has answered, as clients of the server before it wait for that. It is ready afterwards.
func TestListensBeforeTheStoreAnswers(t *testing.T) {
	address, metrics := storetest.FreeAddr(t), storetest.FreeAddr(t)
	source := config.Source{File: configFile(t, "listen: ['tcp://"+address+"']\nmetrics: '"+metrics+"'\npool: {model_name: m}\nbackend: {redis: {url: 'redis://"+closedAddress(t)+"'}}\n")}
	cfg, err := config.Load(source)
	require.NoError(t, err)
	store, err := openStore(cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer func() { assert.NoError(t, store.Close()) }()
	answer := make(chan struct{})
	store.info = func(context.Context) (diagnosis.Info, error) {
		<-answer
		return diagnosis.Info{}, nil
	}
	var log logtest.Buffer
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		cmd := newServeCmd()
		cmd.SetContext(ctx)
		logger := slog.New(slog.NewJSONHandler(&log, nil))
		done <- serveFrom(cmd, &running{source: source, cfg: cfg, store: store, cpu: cpushare.Half(), level: new(slog.LevelVar), logger: logger}, false)
	}()
	readiness := func() (int, string) {
		response, err := http.Get("http://" + metrics + "/readyz")
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(bytes.TrimSpace(text))
	}
	storetest.Eventually(t, "it answers", func() bool { return hitline(t, "", "ping", "--connect", address).code == exitDone })
	assert.NotContains(t, log.String(), `"msg":"ready"`)
	status, text := readiness()
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, text, "the store has not answered yet")
	close(answer)
	storetest.Eventually(t, "it is ready", func() bool { status, _ := readiness(); return status == http.StatusOK })
	storetest.Eventually(t, "it says so", func() bool { return bytes.Contains([]byte(log.String()), []byte(`"msg":"ready"`)) })
	stop()
	require.NoError(t, <-done)
}
