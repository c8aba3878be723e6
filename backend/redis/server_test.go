package redis

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hitline/hitline/internal/storetest"
)

func TestMain(m *testing.M) {
	DiscardDriverLog()
	code := m.Run()
	if theCluster != nil {
		theCluster.Stop()
	}
	if code == 0 {
		// gnet, which the lookup service brings along, keeps these for the whole process.
		if err := goleak.Find(
			goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
			goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// patience bounds every wait of these tests.
const patience = storetest.Patience

// binaries have a test run with a Redis and with a Valkey.
func binaries(t *testing.T, run func(t *testing.T, binary string)) {
	for name, find := range map[string]func(testing.TB) string{"redis": storetest.Binary, "valkey": storetest.Valkey} {
		t.Run(name, func(t *testing.T) { run(t, find(t)) })
	}
}

// serverName is what a program's server calls itself.
func serverName(binary string) string { return strings.TrimSuffix(filepath.Base(binary), "-server") }

var (
	theCluster     *storetest.Cluster
	theClusterOnce sync.Once
)

// sharedCluster returns a running cluster, empty.
func sharedCluster(t testing.TB) *storetest.Cluster {
	t.Helper()
	binary := storetest.Binary(t)
	theClusterOnce.Do(func() { theCluster = storetest.StartCluster(t, binary) })
	require.NotNil(t, theCluster)
	theCluster.Ready(t)
	theCluster.Empty(t)
	return theCluster
}

// testBackend returns a backend that is closed with the test. Fields that cfg
// leaves out are a test's.
func testBackend(t testing.TB, cfg Config) *Backend {
	t.Helper()
	if cfg.KeyPrefix == "" {
		cfg.KeyPrefix = "m"
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = patience
	}
	if cfg.IOTimeout == 0 {
		cfg.IOTimeout = patience
	}
	b, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}
