package statuspage

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/hitline/hitline/internal/requesterror"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
)

const (
	// sampleInterval is the time between two samples, and so the width of a column of the chart.
	sampleInterval = time.Minute
	// maxSamples bounds the samples: the chart shows one hour.
	maxSamples = 60
	// recentSamples is how many of the last samples rates and latency go back: five to six minutes.
	recentSamples = 6
)

// sampler samples the counters of a server every sampleInterval. Safe for concurrent use.
type sampler struct {
	server *server.Server
	logger *slog.Logger
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has returned

	mu      sync.Mutex
	samples []sample // at least one, oldest first
}

// sample is the counters of a server at one time. A pool that is not in it was added later: its counters were 0.
type sample struct {
	time      time.Time
	pools     map[poolKey]counters
	durations []uint64 // counts of the histogram of the lookups' durations
}

// poolKey tells pools apart. A described pool may be removed, and another one with new counters may get its
// name. The pointer does not keep the index of a removed pool alive.
type poolKey = weak.Pointer[lookup.Service]

type counters struct {
	lookups, hit, miss int64 // hit and miss in tokens
}

func countersOf(st *api.Stat) counters { return counters{st.Lookups, st.HitTokens, st.MissTokens} }

// since returns what was counted since before. Nothing is negative: c may have been read before the last sample.
func (c counters) since(before counters) counters {
	return counters{max(c.lookups-before.lookups, 0), max(c.hit-before.hit, 0), max(c.miss-before.miss, 0)}
}

// startSampler returns a sampler that has its first sample. The caller closes it.
func startSampler(srv *server.Server, logger *slog.Logger) *sampler {
	ctx, cancel := context.WithCancel(context.Background())
	s := &sampler{server: srv, logger: cmp.Or(logger, slog.New(slog.DiscardHandler)), cancel: cancel, done: make(chan struct{})}
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
			if err := requesterror.Run(s.sample); err != nil {
				s.logger.Error("the status page lacks a sample", "error", err)
			}
		}
	}
}

func (s *sampler) close() {
	s.cancel()
	<-s.done
}

// sample adds a sample, and drops the oldest one if there are too many.
func (s *sampler) sample() {
	next := sample{time: time.Now(), pools: map[poolKey]counters{}, durations: s.server.LookupDurations().Counts}
	for _, p := range s.server.Pools() {
		st := p.Service.Stat()
		next.pools[weak.Make(p.Service)] = countersOf(&st)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = append(slices.Delete(s.samples, 0, max(len(s.samples)+1-maxSamples, 0)), next)
}

// recentSample returns the sample where rates and latency begin. The caller holds mu.
func (s *sampler) recentSample() sample {
	return s.samples[max(len(s.samples)-recentSamples, 0)]
}

// recent is what a pool did in the last minutes. Rates are nil in the first second, and the ratio if no token
// was looked up.
type recent struct {
	HitRatio         *float64 `json:"hit_ratio"`
	TokensPerSecond  *float64 `json:"tokens_per_second"` // looked up, found or not
	LookupsPerSecond *float64 `json:"lookups_per_second"`
}

// minute has the tokens of the lookups of one minute. The last minute may be shorter: it ends now.
type minute struct {
	End        time.Time `json:"end"`
	HitTokens  int64     `json:"hit_tokens"`
	MissTokens int64     `json:"miss_tokens"`
}

// pool returns what a pool did, by its current counters. The minutes are at most an hour, the oldest first.
func (s *sampler) pool(service *lookup.Service, now counters) (recent, []minute) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, out := weak.Make(service), recent{}
	first := s.recentSample()
	done := now.since(first.pools[key])
	if tokens := done.hit + done.miss; tokens > 0 {
		out.HitRatio = new(float64(done.hit) / float64(tokens))
	}
	if seconds := time.Since(first.time).Seconds(); seconds >= 1 {
		out.TokensPerSecond = new(float64(done.hit+done.miss) / seconds)
		out.LookupsPerSecond = new(float64(done.lookups) / seconds)
	}
	minutes := make([]minute, len(s.samples))
	for i, begin := range s.samples {
		end, at := now, time.Now()
		if i+1 < len(s.samples) {
			end, at = s.samples[i+1].pools[key], s.samples[i+1].time
		}
		d := end.since(begin.pools[key])
		minutes[i] = minute{at.UTC().Truncate(time.Second), d.hit, d.miss}
	}
	return out, minutes
}

// latency returns the quantiles of the durations of the last lookups.
func (s *sampler) latency() latency {
	durations := s.server.LookupDurations()
	s.mu.Lock()
	defer s.mu.Unlock()
	return latencySince(s.recentSample().durations, durations)
}
