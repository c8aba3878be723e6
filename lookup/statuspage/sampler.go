package statuspage

import (
	"context"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
)

const (
	// sampleInterval is the time between two samples of a counter.
	sampleInterval = 10 * time.Second
	// maxAge is how old the oldest sample gets: rates are over the last hour.
	maxAge = time.Hour
	// maxSamples bounds the samples of a counter, also if the clock jumps: one for each interval
	// of maxAge, and one at its beginning.
	maxSamples = int(maxAge/sampleInterval) + 1
	// perPoint is how many intervals a point of a chart has, and maxPoints how many points.
	perPoint  = int(time.Minute / sampleInterval)
	maxPoints = int(maxAge / time.Minute)
	// maxPools bounds the pools that are sampled and listed. With 48 bytes a sample, and slices that
	// have grown by doubling, they take 2.5 MB.
	maxPools = 100
)

// source is what is sampled of a server.Server.
type source interface {
	Pools() []server.ServedPool
	LookupDurations() api.Histogram
}

// sampler samples the counters of a server every sampleInterval. Safe for concurrent use.
type sampler struct {
	source source
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has returned

	mu        sync.Mutex
	pools     map[poolKey]history
	all       bool             // the last sample has every pool: one that is not in it has begun since
	durations []durationCounts // oldest first, at most maxSamples
}

// poolKey tells pools apart. A described pool may go, and another one, or the same with new counters, come under
// its name. The pointer does not keep the index of one that is gone.
type poolKey struct {
	name    string
	service weak.Pointer[lookup.Service]
}

func keyOf(p *server.ServedPool) poolKey { return poolKey{p.Name, weak.Make(p.Service)} }

// history is samples of the counters of one pool, oldest first, at most maxSamples.
type history []sample

// sample is the counters of a pool at a time.
type sample struct {
	time               time.Time
	lookups, hit, miss int64 // hit and miss in tokens
}

func sampleOf(now time.Time, st *api.Stat) sample {
	return sample{now, st.Lookups, st.HitTokens, st.MissTokens}
}

// startSampler returns a sampler that has its first sample. The caller closes it.
func startSampler(of source) *sampler {
	ctx, cancel := context.WithCancel(context.Background())
	s := &sampler{source: of, cancel: cancel, done: make(chan struct{}), pools: map[poolKey]history{}}
	s.sample()
	go s.run(ctx)
	return s
}

func (s *sampler) run(ctx context.Context) {
	defer close(s.done)
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.sample()
		}
	}
}

func (s *sampler) close() {
	s.cancel()
	<-s.done
}

// listed returns the pools that are sampled and listed.
func (s *sampler) listed() []server.ServedPool {
	pools := s.source.Pools()
	return pools[:min(len(pools), maxPools)]
}

// historyOf returns the samples of a pool. One that has begun since the last sample had counters of 0 then.
// The caller holds mu.
func (s *sampler) historyOf(key poolKey) history {
	h, ok := s.pools[key]
	if !ok && s.all {
		h = history{{time: s.durations[len(s.durations)-1].time}}
	}
	return h
}

// sample takes one sample of every counter, and drops those of pools that are gone.
func (s *sampler) sample() {
	served, counts := s.source.Pools(), s.source.LookupDurations().Counts
	pools := served[:min(len(served), maxPools)]
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[poolKey]history, len(pools))
	for _, p := range pools {
		st, key := p.Service.Stat(), keyOf(&p)
		next[key] = s.historyOf(key).add(sampleOf(now, &st))
	}
	s.pools, s.all = next, len(pools) == len(served)
	s.durations = append(s.durations, durationCounts{now, counts})
	s.durations = slices.Delete(s.durations, 0, outdated(len(s.durations), now, func(i int) time.Time { return s.durations[i].time }))
}

// add returns the history with one more sample.
func (h history) add(c sample) history {
	h = append(h, c)
	return slices.Delete(h, 0, outdated(len(h), c.time, func(i int) time.Time { return h[i].time }))
}

// outdated returns how many of the oldest of n samples are of no use any more. The first sample that stays
// is the newest one that is at least maxAge old, if there is one.
func outdated(n int, now time.Time, at func(i int) time.Time) int {
	drop := max(n-maxSamples, 0)
	for drop+1 < n && now.Sub(at(drop+1)) >= maxAge {
		drop++
	}
	return drop
}

// hour is what a pool has done in the last hour, or since it began. Rates are nil
// before a second has passed, and the ratio if no token was asked for.
type hour struct {
	HitRatio         *float64 `json:"hit_ratio"`
	TokensPerSecond  *float64 `json:"tokens_per_second"` // that were asked for, found or not
	LookupsPerSecond *float64 `json:"lookups_per_second"`
	Points           []point  `json:"points"`
}

// point has the tokens of the lookups of one minute. The first minute may be shorter. The last one ends
// now, and is 50 to 60 seconds long.
type point struct {
	Time       time.Time `json:"time"` // end of the minute
	HitTokens  int64     `json:"hit_tokens"`
	MissTokens int64     `json:"miss_tokens"`
}

// lastHour returns what a pool has done since its oldest sample. now is its counters, which may be older than
// the last sample.
func (s *sampler) lastHour(p *server.ServedPool, now sample) hour {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.historyOf(keyOf(p))
	out := hour{Points: []point{}}
	if len(h) == 0 {
		return out
	}
	if last := h[len(h)-1]; now.lookups < last.lookups || now.time.Before(last.time) {
		now = last
	}
	first := h[0]
	tokens := now.hit + now.miss - first.hit - first.miss
	if tokens > 0 {
		out.HitRatio = new(float64(now.hit-first.hit) / float64(tokens))
	}
	if seconds := now.time.Sub(first.time).Seconds(); seconds >= 1 {
		out.TokensPerSecond = new(float64(tokens) / seconds)
		out.LookupsPerSecond = new(float64(now.lookups-first.lookups) / seconds)
	}
	out.Points = h.points(now)
	return out
}

// points returns one point for each minute, the oldest first.
func (h history) points(now sample) []point {
	points, end := []point{}, now
	for i := len(h) - perPoint; len(points) < maxPoints; i -= perPoint {
		begin := h[max(i, 0)]
		points = append(points, point{end.time.UTC().Truncate(time.Second), end.hit - begin.hit, end.miss - begin.miss})
		if end = begin; i <= 0 {
			break
		}
	}
	slices.Reverse(points)
	return points
}

// latencyOf returns the quantiles of the last lookups, from the last sample that is as old as age,
// or the oldest.
func (s *sampler) latencyOf(age time.Duration, now time.Time, durations api.Histogram) latency {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := 0
	for first+1 < len(s.durations) && now.Sub(s.durations[first+1].time) >= age {
		first++
	}
	return latencySince(s.durations[first].counts, durations)
}
