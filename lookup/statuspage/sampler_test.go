package statuspage

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
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

// A server without lookups has no ratio, and no rate in its first second.
func TestHourWithoutData(t *testing.T) {
	inBubble(t, func(t *testing.T, p *Page, _ *lookup.Service) {
		got := statusOf(t, p).Pools[0].Hour
		assert.Nil(t, got.HitRatio)
		assert.Nil(t, got.TokensPerSecond)
		assert.Nil(t, got.LookupsPerSecond)
		assert.Equal(t, []point{{Time: time.Now().UTC()}}, got.Points)
		sleep(time.Second - 1)
		assert.Nil(t, statusOf(t, p).Pools[0].Hour.LookupsPerSecond)
		sleep(1)
		got = statusOf(t, p).Pools[0].Hour
		assert.Nil(t, got.HitRatio)
		assert.Zero(t, *got.TokensPerSecond)
		assert.Zero(t, *got.LookupsPerSecond)
	})
}

// Rates are those of the time since the start, and after an hour of the last hour.
func TestHour(t *testing.T) {
	inBubble(t, func(t *testing.T, p *Page, service *lookup.Service) {
		store(t, service, 3)
		lookUp(t, service, 4) // hits 48 of 64 tokens
		sleep(4 * time.Second)
		got := statusOf(t, p).Pools[0].Hour
		assert.Equal(t, 0.75, *got.HitRatio)
		assert.Equal(t, 16.0, *got.TokensPerSecond)
		assert.Equal(t, 0.25, *got.LookupsPerSecond)
		assert.Equal(t, []point{{time.Now().UTC(), 48, 16}}, got.Points, "what no sample has yet is in, too")

		sleep(56 * time.Second)
		lookUp(t, service, 5) // after the sample of this second
		lookUp(t, service, 5)
		sleep(59*time.Minute - time.Second)
		got = statusOf(t, p).Pools[0].Hour
		assert.Equal(t, 144.0/224, *got.HitRatio)
		assert.Equal(t, 3.0/3599, *got.LookupsPerSecond)

		sleep(11 * time.Second) // the first sample that has the first lookup is now the oldest
		got = statusOf(t, p).Pools[0].Hour
		assert.Equal(t, 96.0/160, *got.HitRatio)
		assert.Equal(t, 2.0/3600, *got.LookupsPerSecond)
		assert.Equal(t, 160.0/3600, *got.TokensPerSecond)

		sleep(2 * time.Hour)
		got = statusOf(t, p).Pools[0].Hour
		assert.Nil(t, got.HitRatio, "all lookups are older than an hour")
		assert.Zero(t, *got.LookupsPerSecond)
		assert.EqualValues(t, 3, statusOf(t, p).Pools[0].Lookups)
	})
}

// A point has the tokens of one minute. Together they have all tokens of the hour.
func TestPoints(t *testing.T) {
	inBubble(t, func(t *testing.T, p *Page, service *lookup.Service) {
		begin := time.Now().UTC()
		for i := range 90 {
			for range i {
				lookUp(t, service, 1)
			}
			sleep(time.Minute)
			pool := statusOf(t, p).Pools[0]
			points := pool.Hour.Points
			var tokens int64
			for j, point := range points {
				tokens += point.MissTokens
				if j > 0 {
					assert.LessOrEqual(t, point.Time.Sub(points[j-1].Time), time.Minute)
				}
			}
			assert.LessOrEqual(t, len(points), maxPoints)
			assert.Equal(t, time.Now().UTC(), points[len(points)-1].Time)
			assert.Zero(t, points[len(points)-1].HitTokens)
			if i < 59 {
				assert.Equal(t, pool.MissTokens, tokens, "after %v", time.Since(begin))
			}
		}
		points := statusOf(t, p).Pools[0].Hour.Points
		require.Len(t, points, maxPoints)
		for j := 1; j < maxPoints; j++ {
			want := time.Minute
			if j == maxPoints-1 {
				want = 50 * time.Second // up to now, from the sample that makes it at most a minute
			}
			assert.Equal(t, want, points[j].Time.Sub(points[j-1].Time), "%d", j)
		}
	})
}

// A sampler keeps an hour of samples, whatever happens.
func TestSamplesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, p *Page, _ *lookup.Service) {
		sleep(5 * time.Hour)
		require.Len(t, p.sampler.pools, 1)
		for _, h := range p.sampler.pools {
			assert.Len(t, h, maxSamples)
			assert.LessOrEqual(t, cap(h), 2*maxSamples)
			assert.Equal(t, maxAge, h[len(h)-1].time.Sub(h[0].time))
		}
		assert.Len(t, p.sampler.durations, maxSamples)
	})
	var h history
	now := time.Now()
	for range 3 * maxSamples {
		h = h.add(sample{time: now})
	}
	assert.Len(t, h, maxSamples, "a clock that stands still")
	for i := range 10 {
		h = h.add(sample{time: now.Add(time.Duration(i+1) * 2 * maxAge)})
	}
	assert.Len(t, h, 2, "a clock that jumps: one that is old enough, and the last")
}

// changing is a server whose pools come and go.
type changing struct {
	*server.Server
	pools atomic.Pointer[[]server.ServedPool]
}

func (c *changing) set(pools ...server.ServedPool) { c.pools.Store(&pools) }

func (c *changing) Pools() []server.ServedPool {
	if pools := c.pools.Load(); pools != nil {
		return *pools
	}
	return nil
}

func describedPool(t *testing.T, name string) server.ServedPool {
	return server.ServedPool{Name: name, Described: true, Service: newService(t, lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}})}
}

// A pool that comes later counts from its beginning, one that goes is forgotten, and one that comes again
// under its name begins anew, even if no sample was taken meanwhile.
func TestPoolsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := changing{Server: newServer(t)}
		p := newPage(srv.Server, &srv, Options{})
		defer p.Close()
		assert.Empty(t, statusOf(t, p).Pools)
		describe := func(name string) *lookup.Service {
			srv.set(describedPool(t, name))
			return srv.Pools()[0].Service
		}
		first := describe("a")
		store(t, first, 4)
		lookUp(t, first, 4)
		got := statusOf(t, p).Pools[0]
		assert.True(t, got.Described)
		assert.Equal(t, "a", got.Name)
		assert.Equal(t, 1.0, *got.Hour.HitRatio, "before its first sample")
		assert.Equal(t, []point{{time.Now().UTC(), 64, 0}}, got.Hour.Points)
		sleep(sampleInterval)
		lookUp(t, first, 8)
		assert.Equal(t, 128.0/192, *statusOf(t, p).Pools[0].Hour.HitRatio)

		describe("b") // in the place of a
		sleep(sampleInterval)
		assert.Len(t, p.sampler.pools, 1)
		again := describe("a")
		lookUp(t, again, 2)
		sleep(sampleInterval)
		lookUp(t, again, 2)
		assert.Zero(t, *statusOf(t, p).Pools[0].Hour.HitRatio)

		describe("b")
		again = describe("a")
		lookUp(t, again, 9)
		lookUp(t, again, 9)
		lookUp(t, again, 9)
		sleep(time.Second)
		got = statusOf(t, p).Pools[0]
		assert.EqualValues(t, 3, got.Lookups)
		assert.Equal(t, []point{{time.Now().UTC(), 0, 27 * 16}}, got.Hour.Points)
	})
}

// Counters that were read before a sample, and are told of after it, are no reason to tell nothing.
func TestCountersOlderThanASample(t *testing.T) {
	inBubble(t, func(t *testing.T, p *Page, service *lookup.Service) {
		pool, before := p.server.Pools()[0], service.Stat()
		now := sampleOf(time.Now(), &before)
		lookUp(t, service, 3)
		sleep(sampleInterval)
		got := p.sampler.lastHour(&pool, now)
		assert.Zero(t, *got.HitRatio)
		assert.EqualValues(t, 48, got.Points[0].MissTokens)
	})
}

// Where not all pools are sampled, one that is new among them may have counters from before.
func TestPoolsBeyondTheBoundCountFromTheirFirstSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := changing{Server: newServer(t)}
		p := newPage(srv.Server, &srv, Options{})
		defer p.Close()
		var described []server.ServedPool
		for i := range maxPools {
			described = append(described, describedPool(t, fmt.Sprintf("a%03d", i)))
		}
		last := describedPool(t, "b")
		described = append(described, last)
		srv.set(described...)
		lookUp(t, last.Service, 1)
		sleep(2 * sampleInterval)
		srv.set(described[1:]...) // so that b is told of
		pools := statusOf(t, p).Pools
		assert.Equal(t, "b", pools[maxPools-1].Name)
		assert.Nil(t, pools[maxPools-1].Hour.HitRatio)
	})
}

// However many pools there are, some are sampled and told of.
func TestPoolsAreBounded(t *testing.T) {
	cfg := server.Config{}
	for i := range maxPools + 5 {
		name := string(rune('A'+i/26)) + string(rune('a'+i%26))
		cfg.Pools = append(cfg.Pools, server.NamedPool{Name: name, Service: newService(t, lookup.ServiceConfig{Pool: lookuptest.Blocks16})})
	}
	p := pageOf(t, newService(t, lookup.ServiceConfig{Pool: lookuptest.Blocks16}), cfg, Options{})
	st := statusOf(t, p)
	assert.Len(t, st.Pools, maxPools)
	assert.Empty(t, st.Pools[0].Name)
	assert.EqualValues(t, maxPools+6, st.Stat.Pools)
	assert.Len(t, p.sampler.pools, maxPools)
}

// The latency of a time is that since the last sample before it.
func TestLatencyOfTimes(t *testing.T) {
	s := &sampler{}
	now := time.Now()
	bounds := []float64{1, 2}
	for _, sample := range []struct {
		ago    time.Duration
		counts []uint64
	}{{time.Hour, []uint64{1, 0, 0}}, {6 * time.Minute, []uint64{5, 0, 0}}, {5 * time.Minute, []uint64{5, 2, 0}}, {time.Second, []uint64{5, 9, 0}}} {
		s.durations = append(s.durations, durationCounts{now.Add(-sample.ago), sample.counts})
	}
	histogram := api.Histogram{Bounds: bounds, Counts: []uint64{5, 10, 0}}
	for age, want := range map[time.Duration]uint64{2 * time.Hour: 14, time.Hour: 14, 5 * time.Minute: 8, time.Minute: 8, time.Second: 1, 0: 1} {
		assert.Equal(t, want, s.latencyOf(age, now, histogram).Count, age)
	}
}

func TestCloseEndsSampling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := server.New(newService(t, lookup.ServiceConfig{Pool: lookuptest.Blocks16}), server.Config{})
		require.NoError(t, err)
		p := New(srv, Options{})
		p.Close()
		select {
		case <-p.sampler.done:
		default:
			t.Error("Close has not waited for the goroutine")
		}
		p.Close()
		sleep(time.Hour)
		assert.Len(t, p.sampler.durations, 1)
		assert.Len(t, statusOf(t, p).Pools, 1, "requests are answered still")
	})
}
