//go:build linux

package crowd

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/internal/storetest"
)

func TestZCell(t *testing.T) {
	hitline := filepath.Join(t.TempDir(), "hitline")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", hitline, "../../cmd/hitline").CombinedOutput()
	require.NoError(t, err, "%s", out)
	python := storetest.RequireMooncake(t, storetest.MooncakeRelease).Python()
	found, err := process.FindMooncake(t.Context(), python, time.Minute)
	require.NoError(t, err)
	o := Options{Trace: "../testdata/conversation_excerpt.jsonl", CacheTokens: 100_000, StoreTokens: 200_000, Lead: 15*time.Second, Window: 30*time.Second, Seed: 1, Hitline: hitline, Python: python, Timeout: time.Minute}
	s, err := readSessions(t.Context(), o.Trace)
	require.NoError(t, err)
	for _, tp := range []int{8} {
	for _, way := range []Way{Shared} {
		began := time.Now()
		c := &cell{o: o, tp: tp, way: way, engines: 10}
		f, err := c.run(t.Context(), s, found)
		require.NoError(t, err)
		text, _ := json.Marshal(f)
		n := float64(f.Turns)
		fmt.Printf("%v %v\n  %s\n  keys/turn %.0f leases %.0f all %.0f cpu/turn %v hit %.3f master %.3f gen %.3f hitline %.1f ms/turn carries %.0f\n", time.Since(began), c, text, float64(f.LookupKeys)/n, float64(f.LookupLeases)/n, float64(f.Leases())/n, f.CPUPerTurn(), f.HitShare(), f.MasterShare(), f.GeneratorShare(), f.HitlineCPU/n*1000, f.EnginesPerCore())
	}}
}
