package mooncake

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/server"
)

// What the account predicts of a real master at the size that this has, and at twice the size, is what masters of these sizes give, of the
// prompts of HITLINE_TEST_TRACE, each asked for whole.
func TestCurveOverAMaster(t *testing.T) {
	path := os.Getenv("HITLINE_TEST_TRACE")
	if path == "" {
		t.Skip("HITLINE_TEST_TRACE names no trace")
	}
	var prompts [][]uint64
	require.NoError(t, workload.Trace(path).Requests(t.Context(), workload.BlockTokens, 0, func(r workload.Request) error {
		prompts = append(prompts, r.IDs)
		return nil
	}))
	env := storetest.RequireMooncake(t, storetest.MooncakeRelease)
	promised := map[int]float64{} // of a size, by what was seen of half of it
	for _, blocks := range []int{5_000, 10_000, 20_000, 40_000} {
		t.Run(fmt.Sprint(blocks), func(t *testing.T) {
			predicted, twice, measured := replayOverMaster(t, env, prompts, blocks)
			t.Logf("predicted %.2f %%, measured %.2f %%; twice the size promises %.2f %%", 100*predicted, 100*measured, 100*twice)
			assert.InDelta(t, predicted, measured, 0.03)
			if want, ok := promised[blocks]; ok {
				t.Logf("half of the size has promised %.2f %%", 100*want)
				assert.InDelta(t, want, measured, 0.03)
			}
			promised[2*blocks] = twice
		})
	}
}

// replayOverMaster asks for prompts and saves them, as engines do, in a master that has room for some blocks. It returns the hit shares that
// the account predicts for this size and for twice the size, and what was hit.
func replayOverMaster(t *testing.T, env *storetest.MooncakeEnv, prompts [][]uint64, blocks int) (predicted, twice, measured float64) {
	const block, askers = 512, 50
	// Leases are short, as the hour of the trace takes a minute.
	master := storetest.StartMaster(t, env, "", "--default_kv_lease_ttl=20")
	node := storetest.StartNode(t, env, master)
	store, err := New(Config{Masters: []string{master.RPC}})
	require.NoError(t, err)
	defer store.Close()
	pool := coordinator.Pool{HashBlockSize: block}
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool, Backend: store, Remote: lookup.RemoteConfig{
		Timeout: testTimeout, NumBlocks: int64(blocks),
	}})
	require.NoError(t, err)
	s, err := server.New(service, server.Config{Listeners: []server.Listener{{Address: "tcp://127.0.0.1:0"}}, FirstLook: time.Second, SecondLook: 5 * time.Second})
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	defer func() { _ = s.Shutdown(context.Background()) }()
	var engines []*client.Client // so that equal prompts are requests of their own
	for i := range askers {
		c, err := client.Dial(t.Context(), s.Addrs()[0], client.WithTimeout(testTimeout), client.WithPoolName(""),
			client.WithClientInfo(map[string]any{"process": strconv.Itoa(i)}))
		require.NoError(t, err)
		defer c.Close()
		engines = append(engines, c)
	}
	prefix := service.Coordinator().KeyPrefix(0, service.Coordinator().Ranks(0)[0])
	hit, asked, failed := int64(0), int64(0), 0
	for i, ids := range prompts {
		if len(ids) == 0 {
			continue
		}
		hashes, keys := make([]byte, 0, 32*len(ids)), []string(nil)
		for _, id := range ids {
			var h [32]byte
			for k := range 4 {
				binary.BigEndian.PutUint64(h[8*k:], (id+1)*(0x9E3779B97F4A7C15+2*uint64(k)))
			}
			hashes, keys = append(hashes, h[:]...), append(keys, prefix+hex.EncodeToString(h[:]))
		}
		got, err := engines[i%askers].Lookup(t.Context(), int64(block*len(ids)), coordinator.NewHashes(hashes, 32))
		require.NoError(t, err)
		hit, asked = hit+got.Tokens/block, asked+int64(len(ids))
		var missing []string
		for k, is := range node.Exist(keys...) { // as vLLM's connector asks before it saves
			if is != 1 {
				missing = append(missing, keys[k])
			}
		}
		if len(missing) > 0 && node.TryPut(nil, storetest.NodeBytes/blocks, missing...) != 0 {
			failed++
		}
	}
	time.Sleep(5 * time.Second) // until the last requests are counted
	stat := s.Stat()
	require.Len(t, stat.Curve, 6, "the size is known: %+v", stat.PoolTokens)
	measured = float64(hit) / float64(asked)
	require.InDelta(t, measured, *stat.MeasuredHitShare, 0.01)
	t.Logf("%d puts failed; %v", failed, stat.Tokens)
	return stat.Curve[2].HitShare, stat.Curve[3].HitShare, measured
}
