package lookup

import (
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/simd"
)

// Stat returns the service's counters.
func (s *Service) Stat() api.Stat {
	stat := api.Stat{
		Version: s.version, VLLM: s.pool.FittingReleases(), Kernel: simd.Kernel(), Backend: "memory",
		Lookups: s.counters.lookups(), Closed: map[string]int64{},
	}
	if s.remote != nil {
		s.remote.addStat(&stat)
		return stat
	}
	x := s.memory.index.Stats()
	stat.Entries, stat.MaxEntries, stat.Bytes, stat.MaxBytes = x.Entries, x.MaxEntries, x.Bytes, x.MaxBytes
	stat.Stored, stat.Evicted, stat.StoresRefused = x.Stored, x.Evicted, x.Refused
	return stat
}

// addStat sets what a backend alone knows.
func (p *PoolBackend) addStat(stat *api.Stat) {
	stat.Backend, stat.BackendState, stat.BackendError = p.shared.Name(), p.shared.State(), errorText(p.shared.Failure())
	stat.Stored, stat.Evicted = p.stored.Load(), p.evicted.Load()
	stat.BackendErrors, stat.BackendTimeouts = p.requests.failed.Load(), p.requests.timeouts.Load()
	stat.BackendRejected = p.requests.rejected.Load()
	stat.BackendRounds, stat.BackendKeys = p.rounds.Load(), p.keys.Load()
	stat.RenewedKeys, stat.RenewalsDropped = p.renewedKeys.Load(), p.renewalsDropped.Load()
	stat.RememberedLookups = p.rememberedLookups.Load()
}

// errorText returns the text of an error, "" without one.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
