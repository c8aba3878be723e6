package main

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/cpushare"
	"github.com/hitline/hitline/internal/eventstest"
	"github.com/hitline/hitline/internal/storetest"
)

// Both HTTP listeners, handshakes of TLS and sources of events compute on the one share of a server: if it has no processor,
// each ends after its wait, and nothing but probes is answered.
func TestShareOfServe(t *testing.T) {
	t.Parallel() // it waits for 10 s
	cert, key := certtest.WriteFiles(t.TempDir(), "server", certtest.NewCA("ca").Leaf("127.0.0.1"))
	source := config.Source{File: configFile(t, "listen: [{address: \"tls://127.0.0.1:0\", tls: {cert: "+cert+", key: "+key+"}}]\n"+
		"limits: {handshake_timeout: 1s}\n"+routerConfig(eventstest.New(t)))}
	cfg, err := config.Load(source)
	require.NoError(t, err)
	s := awaitReady(t, func(ctx context.Context, log io.Writer) int {
		cmd := newServeCmd()
		cmd.SetContext(ctx)
		r := &running{source: source, cfg: cfg, cpu: cpushare.New(0), level: new(slog.LevelVar), logger: slog.New(slog.NewJSONHandler(log, nil))}
		assert.NoError(t, serveFrom(cmd, r, false))
		return exitDone
	})
	var conns []net.Conn
	for _, address := range []string{s.metrics, s.router, strings.TrimPrefix(s.address, "tls://")} {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer conn.Close()
		conns = append(conns, conn)
	}
	for i, conn := range conns[:2] {
		storetest.Eventually(t, "a probe is answered", func() bool {
			probe, err := http.Get("http://" + []string{s.metrics + "/healthz", s.router + "/health"}[i])
			if err == nil {
				probe.Body.Close()
			}
			return err == nil && probe.StatusCode == http.StatusOK
		})
		_, err := io.WriteString(conn, "GET /health?x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		require.NoError(t, err)
	}
	require.Error(t, tls.Client(conns[2], &tls.Config{InsecureSkipVerify: true}).Handshake())
	for _, conn := range conns[:2] {
		reply, err := io.ReadAll(conn)
		assert.True(t, err != nil || len(reply) == 0, "an answer: %.100s", reply)
	}
	storetest.Eventually(t, "the source has waited", func() bool { return strings.Contains(s.log.String(), "the processors are busy") })
}
