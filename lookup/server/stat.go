package server

import (
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/simd"
)

// Stat returns the counters of the server, and those of its own pool.
func (s *Server) Stat() api.Stat { return s.statOf(s.pools.own) }

// PoolStats returns the counters of each pool, with those of the server, the own pool first
// and then by name.
func (s *Server) PoolStats() []api.Stat {
	var stats []api.Stat
	for _, p := range s.pools.snapshot() {
		stats = append(stats, s.statOf(p))
	}
	return stats
}

// stat returns the counters for the connection: of the server and of its pool.
func (s *session) stat() api.Stat { return s.server.statOf(s.pool) }

// statOf returns the counters of the server and of a pool, which may be nil.
func (s *Server) statOf(p *pool) api.Stat {
	st := api.Stat{Kernel: simd.Kernel(), Backend: "memory"}
	if s.backend != nil {
		st.Backend = s.backend.Name()
	}
	if p != nil {
		st = p.service.Stat()
		st.Pool = p.name
	}
	st.Pools = int64(len(s.pools.snapshot()))
	st.Connections, st.MaxConnections = s.connections.Load(), int64(s.cfg.Limits.MaxConnections)
	st.Failed, st.Dropped, st.BytesCopied = s.failed.Load(), s.dropped.Load(), s.copied.Load()
	st.CommandsIgnored = s.ignored.Load()
	st.Anchored, st.AnchoredUndetermined, st.AnchoredFallbacks = s.anchored.Load(), s.undetermined.Load(), s.fallbacks.Load()
	st.InFlight, st.AcceptErrors = s.inFlight.Load(), s.acceptErrors.Load()
	st.Closed = s.closed.snapshot()
	return st
}
