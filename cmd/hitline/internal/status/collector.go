package status

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/router"
)

// Collector takes the Status of a server, and logs summaries of it. Safe for concurrent use.
type Collector struct {
	server *server.Server
	router *router.Service // nil if there is none
	began  time.Time

	mu        sync.Mutex
	histories *histories
	durations []durationsAt // of lookups since the start, one a step; the oldest first
	counted   counted       // since the start, by the latest sample
	log       summaryLog
}

// durationsAt are the durations of lookups up to the begin of a step.
type durationsAt struct {
	step int64
	api.Histogram
}

// latencyTime is the time of Status.Latency.
const latencyTime = 5 * time.Minute

// NewCollector returns a collector, whose Run must be called for it to remember anything. router is nil if there is none.
func NewCollector(server *server.Server, router *router.Service, logger *slog.Logger) *Collector {
	c := &Collector{server: server, router: router, began: time.Now(), histories: newHistories()}
	c.log = summaryLog{logger: logger, served: c.servedAttrs}
	return c
}

// Run takes a sample each step until ctx ends, and logs a summary every logEvery.
func (c *Collector) Run(ctx context.Context) {
	tick := time.NewTicker(fineStep)
	defer tick.Stop()
	for {
		c.mu.Lock()
		c.sample()
		c.log.step(c.counted)
		c.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sample adds what was counted since the last sample to the histories. It returns what the server counts now. mu is held.
func (c *Collector) sample() (stats map[string]api.Stat, durations api.Histogram) {
	stats, durations = c.server.PoolStats(), c.server.LookupDurations()
	at := time.Since(c.began)
	c.histories.add(at, stats)
	c.counted = counted{at, c.histories.total, durations}
	step := int64(at / fineStep)
	if n := len(c.durations); n == 0 || c.durations[n-1].step < step {
		c.durations = append(c.durations, durationsAt{step, durations})
	}
	oldest := step - int64(latencyTime/fineStep)
	c.durations = slices.DeleteFunc(c.durations, func(d durationsAt) bool { return d.step < oldest })
	return stats, durations
}

// Status returns the status now.
func (c *Collector) Status() Status {
	st := Status{Time: time.Now().UTC(), Stat: c.server.Stat(), Pools: []Pool{}}
	if err := c.server.Ready(); err != nil {
		st.NotReadyReason = strings.TrimPrefix(err.Error(), server.ErrNotReady.Error()+": ")
	}
	st.Ready = st.NotReadyReason == ""
	pools := c.server.Pools()
	c.mu.Lock()
	defer c.mu.Unlock()
	stats, durations := c.sample()
	st.Rates = ratesOf(c.histories.all, time.Since(c.began))
	st.HalfMinutes = c.histories.all.halfMinutes()
	st.Latency = latencyOf(minus(durations, c.durations[0].Histogram))
	for _, pool := range pools[:min(len(pools), maxListed)] {
		of := pool.Service.Pool()
		told := Pool{pool.Name, pool.Described, of.ModelName, of.HashBlockSize, stats[pool.Name], nil}
		if h := c.histories.ofPools[pool.Name]; h != nil {
			told.Rates = ratesOf(h, time.Since(c.began))
		}
		st.Pools = append(st.Pools, told)
	}
	if calls := c.server.BackendCalls(); calls != nil {
		st.Store = &Store{Name: st.Stat.Backend, State: st.Stat.BackendState, Error: st.Stat.BackendError, Calls: map[string]Latency{}}
		for kind, h := range calls {
			st.Store.Calls[kind] = latencyOf(h)
		}
	}
	if c.router != nil {
		st.Router = newRouter(c.router.Models(), c.router.Status())
	}
	return st
}

// minus returns what a histogram has grown by since before.
func minus(h, before api.Histogram) api.Histogram {
	h.Counts = slices.Clone(h.Counts)
	for i, n := range before.Counts {
		h.Counts[i] -= n
	}
	return h
}

// newRouter returns what is told of models, and of sources, which are by name.
func newRouter(models []router.ModelStatus, sources []router.SourceStatus) *Router {
	r := &Router{Models: []Model{}, TotalSources: len(sources), Sources: []router.SourceStatus{}}
	for _, m := range models {
		r.Models = append(r.Models, Model{m, len(m.Holders), m.NumStale()})
	}
	for _, useless := range []bool{true, false} {
		for _, of := range sources {
			if isUseless := of.Stale || of.Hashes == router.HashesDiffer; isUseless != useless {
				continue
			}
			if !useless {
				r.LiveSources++
			}
			if len(r.Sources) < maxListed {
				r.Sources = append(r.Sources, of)
			}
		}
	}
	return r
}
