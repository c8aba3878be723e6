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
	if testCluster != nil {
		testCluster.Stop()
	}
	if code == 0 {
		// gnet, which the lookup service imports, runs these for the whole process.
		if err := goleak.Find(
			goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
			goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// testTimeout bounds every wait of these tests.
const testTimeout = storetest.Timeout

// forEachServer runs a test with the program of a Redis and with that of a Valkey.
func forEachServer(t *testing.T, run func(t *testing.T, binary string)) {
	for name, find := range map[string]func(testing.TB) string{"redis": storetest.RedisBinary, "valkey": storetest.ValkeyBinary} {
		t.Run(name, func(t *testing.T) { run(t, find(t)) })
	}
}

// serverName returns the name that the server of a program reports: "redis" or "valkey".
func serverName(binary string) string { return strings.TrimSuffix(filepath.Base(binary), "-server") }

var (
	testCluster     *storetest.Cluster
	testClusterOnce sync.Once
)

// sharedCluster returns a running, empty cluster. All tests share it.
func sharedCluster(t testing.TB) *storetest.Cluster {
	t.Helper()
	binary := storetest.RedisBinary(t)
	testClusterOnce.Do(func() { testCluster = storetest.StartCluster(t, binary) })
	require.NotNil(t, testCluster)
	testCluster.WaitReady(t)
	testCluster.FlushAll(t)
	return testCluster
}

// testBackend returns a backend that is closed with the test. It sets defaults for tests.
func testBackend(t testing.TB, cfg Config) *Backend {
	t.Helper()
	if cfg.KeyPrefix == "" {
		cfg.KeyPrefix = "m"
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = testTimeout
	}
	if cfg.IOTimeout == 0 {
		cfg.IOTimeout = testTimeout
	}
	b, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// testContext returns a context with a deadline after testTimeout.
func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}
