package server

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/internal/histogram"
	"github.com/hitline/hitline/netproto"
	"github.com/hitline/hitline/simd"
)

// Stat returns the counters of the server, and those of its own pool.
func (s *Server) Stat() api.Stat { return s.statOf(s.pools.ownPool()) }

// PoolStats returns the counters of the pools by name, "" for the server's own, without those of the
// server. There are at most Config.MaxPools described ones at a time, so that many names.
func (s *Server) PoolStats() map[string]api.Stat {
	stats := map[string]api.Stat{}
	for _, p := range s.pools.list() {
		st := p.service.Stat()
		st.PoolTokens = s.tokensOf(p)
		stats[p.name] = st
	}
	return stats
}

// statFor returns what the peer is told, about its pool, which may be nil. A tenant is told of no other pool, and
// nothing that other peers change. Who asks is told to those whom the server knows.
func (s *shared) statFor(peer net.Addr, c *access.Credential, p *pool) api.Stat {
	st := s.poolStat(p)
	if !c.IsTenant() {
		st = s.statOf(p)
	}
	if t := st.PoolTokens; t != nil {
		t.LostMost = nil
		if !isKnown(peer, c) {
			t.Askers, t.OtherAskers = nil, nil
		}
	}
	if !c.IsTenant() {
		return st
	}
	st.Pools, st.PoolNames = s.pools.names(c)
	st.Closed = map[string]int64{}
	return st
}

// statOf returns the counters of the server and of a pool, which may be nil.
func (s *shared) statOf(p *pool) api.Stat {
	st := s.poolStat(p)
	st.Pools, st.PoolNames = s.pools.names(nil)
	st.Connections = s.connections.Load()
	st.Memory, _, st.MemoryRefused = s.memoryAccount.Usage()
	st.Requests, st.Closed, st.NotAllowed = map[string]int64{}, map[string]int64{}, map[string]int64{}
	for _, m := range s.loops.metrics() {
		addCounts(st.Requests, m.requests[:], tagName)
		st.Memory += m.held.Load()
		st.RequestsRefused += m.refused.Load()
		st.Busy += m.busy.Load()
		st.AfterFIN += m.afterFIN.Load()
	}
	st.InFlight, st.AcceptErrors = s.inFlight.Load(), s.acceptErrors.Load()
	addCounts(st.Closed, s.peers.closed[:], func(r int) string { return closeReason(r).String() })
	addCounts(st.NotAllowed, s.peers.notAllowed[:], tagName)
	st.AuthFailures = s.peers.authFailures.Load()
	return st
}

// poolStat returns the counters of a pool, which may be nil, and what of the server does not change.
func (s *shared) poolStat(p *pool) api.Stat {
	st := api.Stat{Version: s.instance.Version, Kernel: simd.Kernel(), Backend: "memory"}
	if s.backend != nil {
		st.Backend, st.BackendState = s.backend.Name(), s.backend.State()
		if err := s.backend.Failure(); err != nil {
			st.BackendError = err.Error()
		}
	}
	if p != nil {
		st = p.service.Stat()
		st.Pool, st.PoolTokens = p.name, s.tokensOf(p)
	}
	st.Instance, st.StartTime = s.instance.ID, s.instance.StartTime
	st.MaxConnections = int64(s.limits.Load().MaxConnections)
	_, st.MaxMemory, _ = s.memoryAccount.Usage()
	return st
}

// addCounts adds the counters that are not 0 to counts, by name.
func addCounts(counts map[string]int64, counters []atomic.Int64, nameOf func(i int) string) {
	for i := range counters {
		if n := counters[i].Load(); n > 0 {
			counts[nameOf(i)] += n
		}
	}
}

// LookupDurations returns a histogram of the durations in seconds of the answered lookups:
// from the read in which the first byte arrived until the replies of its turn were written, or until a worker's answer
// had come. The caller owns it.
func (s *Server) LookupDurations() api.Histogram {
	durations := func(m *loopMetrics) *histogram.Counts { return &m.durations }
	return histogram.Merge(durationBounds[:], float64(time.Second), s.loops.histograms(durations)...)
}

// LookupHashes returns a histogram of the number of hashes of those lookups. The caller owns
// it.
func (s *Server) LookupHashes() api.Histogram {
	hashes := func(m *loopMetrics) *histogram.Counts { return &m.hashes }
	return histogram.Merge(hashBounds[:], 1, s.loops.histograms(hashes)...)
}

// BackendCalls returns histograms of the durations in seconds of the calls of the backend: see
// lookup.SharedBackend.CallDurations. It is nil over the memory index.
func (s *Server) BackendCalls() map[string]api.Histogram {
	if s.backend == nil {
		return nil
	}
	return s.backend.CallDurations()
}

// histograms returns one histogram of each loop: the one that of selects.
func (ls *eventLoops) histograms(of func(m *loopMetrics) *histogram.Counts) []*histogram.Counts {
	var all []*histogram.Counts
	for _, m := range ls.metrics() {
		all = append(all, of(m))
	}
	return all
}

// tokensOf returns where the tokens of a pool went, nil if that is not known.
func (s *shared) tokensOf(p *pool) *api.PoolTokens { return s.accounts.Status(p.account) }

// Instance returns the instance that pings and stats name. Each Server is another one. PromptAlignment, which is of a
// connection's pool, is 0, and Draining is false. The caller must not modify Requests.
func (s *Server) Instance() api.Instance { return s.identity() }

// statBytes bounds the reply to a stat.
func statBytes(j *job) int {
	const counters, quotes = 40 << 10, 3 // with the askers of a pool
	return counters + min(j.session.shared.pools.number(), api.MaxPoolNames)*(MaxPoolName+quotes)
}

func runStat(_ context.Context, j *job) error {
	return j.doneJSON(j.session.shared.statFor(j.session.conn.peer, j.credential, j.pool))
}

// RequestTags returns the keys that Stat.Requests may have. The caller owns the result.
func RequestTags() (names []string) {
	for tag := range netproto.Tag(netproto.NumTags) {
		names = append(names, tag.String())
	}
	return names
}

// RequestNames returns the keys that Stat.NotAllowed may have. The caller owns the result.
func RequestNames() (names []string) {
	for tag := range netproto.Tag(netproto.NumTags) {
		if !access.Permissions(0).Allows(tag) {
			names = append(names, tag.String())
		}
	}
	return names
}

// tagName returns the name of a request.
func tagName(tag int) string { return netproto.Tag(tag).String() }
