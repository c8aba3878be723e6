package main

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/cmd/hitline/internal/config"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/httpapi"
)

func TestMemoryAccount(t *testing.T) {
	bound := func(cfg config.Config, store *remoteStore) int64 {
		_, most, _ := memoryAccount(&cfg, store).Usage()
		return most
	}
	cfg := config.Default()
	require.Positive(t, machineMemory())
	cfg.Backend.Memory.MaxBytes = 2 << 20
	require.LessOrEqual(t, bound(cfg, nil), int64(128<<20))
	require.GreaterOrEqual(t, bound(cfg, new(remoteStore)), bound(cfg, nil))
	cfg.Router.Models = []config.RouterModel{{MaxBytes: 1}, {MaxBytes: config.Size(machineMemory())}}
	require.EqualValues(t, config.MinMemory, bound(cfg, nil), "nothing is left")
	cfg.Router.Models = nil
	cfg.Backend.Memory.MaxBytes = config.Size(machineMemory())
	require.EqualValues(t, config.MinMemory, bound(cfg, nil), "nothing is left")
	cfg.Limits.MaxMemory = 20 << 20
	require.EqualValues(t, 20<<20, bound(cfg, nil))
}

func TestRequestMemory(t *testing.T) {
	for most, want := range map[int64]int64{128 << 20: httpapi.DefaultMaxMemory, 1 << 40: 256 << 20} {
		require.Equal(t, want, requestMemory(lookup.NewMemoryAccount(most)))
	}
}

func TestMemoryWarnings(t *testing.T) {
	const total = 4 << 30
	cfg := config.Default()
	warn := func() string { return strings.Join(memoryWarnings(&cfg, nil, total), "\n") }
	require.Empty(t, warn())
	cfg.Backend.Memory.MaxBytes = 500 << 40
	require.Equal(t, "default: backend.memory.max_bytes: 500TiB: more than the 4096MiB of memory that this machine or container has; a bound above it protects from nothing, lower it", warn())
	require.Empty(t, memoryWarnings(&cfg, new(remoteStore), total), "there is no index")
	require.Empty(t, memoryWarnings(&cfg, nil, 0))
	cfg.Backend.Memory.MaxBytes = 2 << 30
	cfg.Router.Models = []config.RouterModel{{MaxBytes: 1 << 30}, {MaxBytes: 1 << 30}}
	require.Empty(t, warn())
	cfg.Limits.MaxMemory = 1 << 20
	require.Contains(t, warn(), "backend.memory.max_bytes 2GiB and max_bytes of router.models 2GiB and limits.max_memory 1MiB, together: more than")
	cfg.Limits.MaxMemory = 0
	cfg.Router.Sources = make([]router.Source, 4)
	require.Contains(t, warn(), "max_bytes of router.models 2GiB and events by router.max_payload and router.sources 132MiB, together: more than")
	cfg.Router.Sources, cfg.Router.Register = nil, []string{"tcp://127.0.0.1:*"}
	require.Contains(t, warn(), "events by router.max_payload and router.sources 897MiB, together: more than")
	cfg.Router.Register, cfg.Router.Listen = nil, new(config.Listener)
	require.Contains(t, warn(), "queries and dumps at router.listen 2304MiB, together: more than")
	cfg.Limits.MaxMemory = 1 << 62
	cfg.Backend.Memory.MaxBytes = 1 << 62
	require.NotEmpty(t, warn())
}

// Hashes, keys and what connections hold have parts of the account that none of the others can
// use, and by default the parts are what they are without one.
func TestPartsOfTheAccount(t *testing.T) {
	for most, want := range map[int64][2]int64{
		storeMemory: {lookup.DefaultMaxBytes, storeMemory / 16 * 10},
		128 << 20:   {24 << 20, 80 << 20},
	} {
		shared := lookup.NewSharedBackend(&lookuptest.KeyStore{}, lookup.RemoteConfig{Memory: lookup.NewMemoryAccount(most)}, nil)
		got := shared.Config()
		require.Equal(t, want, [2]int64{got.MaxBytes, got.MaxKeyBytes})
		require.LessOrEqual(t, got.MaxBytes+got.MaxKeyBytes+most/8, most)
	}
	require.InDelta(t, lookup.DefaultMaxKeyBytes, storeMemory/16*10, 16)
}

func TestLimitGoMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	cfg := config.Default()
	t.Setenv("GOMEMLIMIT", "1GiB")
	limitGoMemory(&cfg, nil)
	require.Equal(t, before, debug.SetMemoryLimit(-1), "the user has set it")
	require.NoError(t, os.Unsetenv("GOMEMLIMIT"))
	limitGoMemory(&cfg, nil) // of the container, if this test runs in one
	require.GreaterOrEqual(t, debug.SetMemoryLimit(-1), int64(minGoMemory))
}
