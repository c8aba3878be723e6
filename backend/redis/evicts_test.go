package redis

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/internal/storetest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/lookup/server"
)

// A server that is too small evicts keys, not blocks: many prompts end on a block of which some ranks are there. All puts were done, so
// they are evicted, and not partial. HITLINE_TEST_PACE is the time between two prompts, such as 40ms.
func TestEvictedInPart(t *testing.T) {
	text := os.Getenv("HITLINE_TEST_PACE")
	if text == "" {
		t.Skip("HITLINE_TEST_PACE is not set: it takes minutes")
	}
	pace, err := time.ParseDuration(text)
	require.NoError(t, err)
	const prompts, blocks, ranks, passes = 1_500, 24, 8, 3
	redis := storetest.StartRedis(t, "--maxmemory", "32mb", "--maxmemory-policy", "allkeys-lru")
	pool := coordinator.Pool{ModelName: "m", HashBlockSize: 16, TPSize: ranks, NumKVHead: ranks}
	coord, err := coordinator.New(pool)
	require.NoError(t, err)
	store, err := New(Config{URL: "redis://" + redis.Addr, KeyPrefix: PoolPrefix(coord), DialTimeout: testTimeout, IOTimeout: testTimeout})
	require.NoError(t, err)
	defer store.Close()
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: pool, Backend: store, Remote: lookup.RemoteConfig{Timeout: testTimeout, WriteTimeout: testTimeout}})
	require.NoError(t, err)
	s, err := server.New(service, server.Config{Listeners: []server.Listener{{Address: "tcp://127.0.0.1:0"}}, FirstLook: time.Second, SecondLook: 10 * time.Second})
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	defer func() { _ = s.Shutdown(context.Background()) }()
	c, err := client.Dial(t.Context(), s.Addrs()[0], client.WithTimeout(testTimeout))
	require.NoError(t, err)
	defer c.Close()

	inPart := 0
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for range passes {
		for i := range prompts {
			hashes := coordinator.NewHashes(lookuptest.Chain(strconv.Itoa(i), blocks, 32), 32)
			hit, err := c.Lookup(t.Context(), 16*blocks, hashes)
			require.NoError(t, err)
			if end := int(hit.Tokens / 16); end < blocks {
				on, err := service.Backend().Look(t.Context(), []int{0}, coordinator.NewHashes(hashes.At(end), 32))
				require.NoError(t, err)
				if on[0] > 0 {
					inPart++
				}
			}
			for rank := range uint16(ranks) {
				require.NoError(t, service.Store(t.Context(), coordinator.GroupRank{TPRank: rank}, hashes))
			}
			<-tick.C
		}
		t.Log(s.Stat().Tokens, time.Duration(s.Stat().RetentionSeconds*float64(time.Second)))
	}
	keys, err := redis.Client(t).DBSize(t.Context()).Result()
	require.NoError(t, err)
	tokens, total := s.Stat().Tokens, int64(0)
	for _, n := range tokens {
		total += n
	}
	t.Logf("%d of %d keys; %d lookups ended on a block that was there in part; %v", keys, prompts*blocks*ranks, inPart, tokens)
	require.Greater(t, inPart, prompts/4)
	require.LessOrEqual(t, float64(tokens["partial"])/float64(total), 0.01)
}
