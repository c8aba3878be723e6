package statuspage

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
)

// inBubble runs a test with a page whose time is that of a bubble.
func inBubble(t *testing.T, test func(t *testing.T, p *Page, service *lookup.Service)) {
	synctest.Test(t, func(t *testing.T) {
		p, service := plainPage(t)
		test(t, p, service)
	})
}

// sleep sleeps, and then until samples that are due have been taken.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Ratio and rates are those of the last five to six minutes, or since the start.
func TestRecent(t *testing.T) {
	inBubble(t, func(t *testing.T, p *Page, service *lookup.Service) {
		assert.Equal(t, recent{}, statusOf(t, p).Pools[0].Recent, "no rate in the first second")
		store(t, service, 3)
		lookUp(t, service, 4) // hits 48 of 64 tokens
		sleep(4 * time.Second)
		got := statusOf(t, p).Pools[0].Recent
		assert.Equal(t, []float64{0.75, 16, 0.25}, []float64{*got.HitRatio, *got.TokensPerSecond, *got.LookupsPerSecond})

		sleep(time.Minute)
		lookUp(t, service, 6) // hits 48 of 96
		sleep(5*time.Minute - 5*time.Second)
		got = statusOf(t, p).Pools[0].Recent
		assert.Equal(t, 96.0/160, *got.HitRatio)
		sleep(2 * time.Second) // the sample of the start is not recent any more
		got = statusOf(t, p).Pools[0].Recent
		assert.Equal(t, 0.5, *got.HitRatio)
		assert.Equal(t, 1.0/301, *got.LookupsPerSecond)

		sleep(time.Minute)
		got = statusOf(t, p).Pools[0].Recent
		assert.Nil(t, got.HitRatio)
		assert.Zero(t, *got.LookupsPerSecond)
	})
}

// Each minute of the last hour has its tokens, and together they have all of them.
func TestMinutes(t *testing.T) {
	inBubble(t, func(t *testing.T, p *Page, service *lookup.Service) {
		for i := range 90 {
			for range i {
				lookUp(t, service, 1)
			}
			pool := statusOf(t, p).Pools[0]
			require.Len(t, pool.Minutes, min(i+1, 60))
			assert.Equal(t, minute{time.Now().UTC(), 0, int64(16 * i)}, pool.Minutes[len(pool.Minutes)-1], "what no sample has yet is in, too")
			var tokens int64
			for _, m := range pool.Minutes {
				tokens += m.MissTokens
			}
			if i < 60 {
				assert.Equal(t, pool.MissTokens, tokens)
			}
			sleep(time.Minute)
		}
	})
}

// A pool that no sample has was added since: its counters began at 0. Another one with its name has its own.
func TestNewPool(t *testing.T) {
	inBubble(t, func(t *testing.T, p *Page, service *lookup.Service) {
		lookUp(t, service, 3)
		sleep(90 * time.Second)
		other := newService(t, lookup.ServiceConfig{Pool: lookuptest.Blocks16})
		got, minutes := p.sampler.pool(other, counters{lookups: 9, hit: 27, miss: 9})
		assert.Equal(t, 0.75, *got.HitRatio)
		assert.Equal(t, 0.1, *got.LookupsPerSecond)
		assert.Equal(t, []int64{0, 27}, []int64{minutes[0].HitTokens, minutes[1].HitTokens})
	})
}

// Counters that were read before the last sample make nothing negative.
func TestCountersOlderThanASample(t *testing.T) {
	inBubble(t, func(t *testing.T, p *Page, service *lookup.Service) {
		before := service.Stat()
		lookUp(t, service, 3)
		sleep(sampleInterval)
		_, minutes := p.sampler.pool(service, countersOf(&before))
		assert.EqualValues(t, 48, minutes[0].MissTokens)
		assert.Zero(t, minutes[1].MissTokens)
	})
}

func TestCloseEndsSampling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := server.New(newService(t, lookup.ServiceConfig{Pool: lookuptest.Blocks16}), server.Config{})
		require.NoError(t, err)
		p := New(srv, Options{})
		p.Close()
		p.Close()
		sleep(time.Hour)
		assert.Len(t, p.sampler.samples, 1)
		assert.Len(t, statusOf(t, p).Pools, 1, "requests are answered still")
	})
}
