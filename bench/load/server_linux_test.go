package load

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// patience is far more than anything here takes.
const patience = 20 * time.Second

// asServer names the variable that makes this test binary hitline, and says what is
// wrong with it.
const asServer = "LOAD_TEST_AS_SERVER"

// serveAsHitline is a hitline that announces what it was given: its arguments, its groups and the
// cores that it runs on.
func serveAsHitline(fault string) {
	if fault == "ends" {
		fmt.Fprintln(os.Stderr, "cannot listen")
		os.Exit(1)
	}
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}})
	if err != nil {
		panic(err)
	}
	server, err := server.New(service, server.Config{Listeners: []server.Listener{{Address: "tcp://127.0.0.1:0"}}})
	if err == nil {
		err = server.Start(context.Background())
	}
	if err != nil {
		panic(err)
	}
	cores, _ := process.Cores()
	text := fmt.Sprintln(strings.Join(os.Args[1:], " "), os.Getenv("HITLINE_POOL_GROUPS"), cores)
	if err := os.WriteFile(os.Getenv("LOAD_TEST_RECORD"), []byte(text), 0o600); err != nil {
		panic(err)
	}
	fmt.Fprintf(os.Stderr, "{\"msg\":\"ready\",\"listen\":[%q]}\n", server.Addrs()[0])
	<-server.Done()
	os.Exit(0)
}

func TestStartServer(t *testing.T) {
	record := t.TempDir() + "/record"
	t.Setenv("LOAD_TEST_RECORD", record)
	t.Setenv(asServer, "none")
	allowed, err := process.Cores()
	require.NoError(t, err)
	o := ServerOptions{Hitline: os.Args[0], Groups: "[{block_size: 16}]", Entries: 100, Connections: 3, Loops: 2, Cores: allowed[:1], Timeout: patience}
	p, err := StartServer(t.Context(), o)
	require.NoError(t, err)
	defer p.Stop()
	text, err := os.ReadFile(record)
	require.NoError(t, err)
	for _, want := range []string{"serve ", " --backend memory", " --loops 2", " [{block_size: 16}] ", fmt.Sprintln(allowed[:1])} {
		assert.Contains(t, string(text), want)
	}
	r, err := Run(t.Context(), Options{Connect: p.Addr(), Requests: 100, Timeout: patience})
	require.NoError(t, err)
	assert.Zero(t, r.Wrong)

	t.Setenv(asServer, "ends")
	_, err = StartServer(t.Context(), o)
	require.ErrorIs(t, err, measure.ErrLost)
	assert.ErrorContains(t, err, "cannot listen")
}
