package server

import "time"

// logEvictions logs once for each pool over memory that its index is full and evicts. At most one line comes a second. It
// is called once a second, and not by two goroutines at a time.
func (s *Server) logEvictions(now time.Time) {
	for _, p := range s.pools.list() {
		age, evicts := p.service.Memory().EvictionAge(now)
		if !evicts || p.evictionLogged {
			continue
		}
		if _, ok := s.evictionLog.Admit(now); !ok {
			continue // the next call logs it
		}
		p.evictionLogged = true
		stat := p.service.Stat()
		s.cfg.Logger.Warn("the memory index is full and evicts blocks: raise its bound if prompts come back later than unused_for",
			"pool", p.name, "unused_for", age.Round(time.Second), "entries", stat.Entries, "max_bytes", stat.MaxBytes, "max_entries", stat.MaxEntries)
	}
}
