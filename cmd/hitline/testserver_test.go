package main

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/logtest"
	"github.com/hitline/hitline/internal/storetest"
)

// testServer is a serve that runs in this process until the test ends.
type testServer struct {
	address string
	metrics string // address of the metrics, "" if they are not served
	router  string // address of router.listen, "" if there is none
	log     logtest.Buffer
	stop    func()        // begins to drain
	done    chan struct{} // closed when it has ended
}

// metricsHere has serve listen for HTTP, too.
const metricsHere = "metrics: 127.0.0.1:0\n"

// ready is the line of the log that says that a server is ready.
type ready struct {
	Msg             string
	Listen          []string
	Metrics, Router string
}

// logLines returns the lines of the log.
func (s *testServer) logLines() []string {
	return strings.Split(strings.TrimSuffix(s.log.String(), "\n"), "\n")
}

// warnings returns the lines of level WARN and ERROR.
func (s *testServer) warnings() []string {
	return slices.DeleteFunc(s.logLines(), func(line string) bool {
		return !strings.Contains(line, `"level":"WARN"`) && !strings.Contains(line, `"level":"ERROR"`)
	})
}

// storeLine returns the one warning of serve about its store. The store's client may log, too.
func (s *testServer) storeLine(t *testing.T) string {
	t.Helper()
	lines := slices.DeleteFunc(s.warnings(), func(line string) bool { return !strings.Contains(line, `"msg":"the store `) })
	require.Len(t, lines, 1)
	return lines[0]
}

// startServe runs serve and waits until it is ready.
func startServe(t *testing.T, config string) *testServer {
	t.Helper()
	return awaitReady(t, func(ctx context.Context, log io.Writer) int {
		return run(ctx, []string{"serve", "--listen", "tcp://127.0.0.1:0", "--config", configFile(t, config+"log: {format: json}\n")}, nil, io.Discard, log)
	})
}

// awaitReady runs a server, which returns its exit code, and waits until it is ready.
func awaitReady(t *testing.T, serve func(ctx context.Context, log io.Writer) int) *testServer {
	t.Helper()
	s := &testServer{done: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() {
		defer close(s.done)
		assert.Equal(t, exitDone, serve(ctx, &s.log))
	}()
	t.Cleanup(func() {
		stop()
		<-s.done
	})
	storetest.Eventually(t, "serve is ready", func() bool {
		for _, line := range s.logLines() {
			var r ready
			if strings.Contains(line, `"msg":"ready"`) && json.Unmarshal([]byte(line), &r) == nil {
				s.address, s.metrics, s.router = r.Listen[0], r.Metrics, r.Router
			}
		}
		return s.address != ""
	})
	return s
}
