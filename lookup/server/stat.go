package server

import "github.com/hitline/hitline/lookup/api"

// Stat returns the counters of the server and its service.
func (s *Server) Stat() api.Stat {
	st := s.service.Stat()
	st.Connections, st.MaxConnections = s.connections.Load(), int64(s.cfg.Limits.MaxConnections)
	st.Failed, st.Dropped, st.BytesCopied = s.failed.Load(), s.dropped.Load(), s.copied.Load()
	st.CommandsIgnored = s.ignored.Load()
	st.Anchored, st.AnchoredUndetermined, st.AnchoredFallbacks = s.anchored.Load(), s.undetermined.Load(), s.fallbacks.Load()
	st.InFlight, st.AcceptErrors = s.inFlight.Load(), s.acceptErrors.Load()
	st.Closed = s.closed.snapshot()
	return st
}
