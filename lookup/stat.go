package lookup

import (
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/simd"
)

// Stat returns the service's counters.
func (s *Service) Stat() api.Stat {
	if s.remote != nil {
		return s.remoteStat()
	}
	x := s.index.Stats()
	stat := api.Stat{
		Version: s.version, VLLM: s.pool.FittingReleases(), Kernel: simd.Kernel(), Backend: "memory",
		Entries: x.Entries, MaxEntries: x.MaxEntries, Bytes: x.Bytes, MaxBytes: x.MaxBytes,
		Stored: x.Stored, Evicted: x.Evicted, StoresRefused: x.Refused,
		Closed: map[string]int64{},
	}
	stat.Lookups = s.counters.lookups()
	return stat
}

// remoteStat is Stat over a backend, which alone knows what it holds.
func (s *Service) remoteStat() api.Stat {
	r := s.remote
	stat := api.Stat{
		Version: s.version, VLLM: s.pool.FittingReleases(), Kernel: simd.Kernel(), Backend: r.store.Name(),
		Stored: r.stored.Load(), Evicted: r.evicted.Load(),
		BackendErrors: r.failed.Load(), BackendTimeouts: r.timeouts.Load(), BackendRejected: r.rejected.Load(),
		BackendRounds: r.rounds.Load(), BackendKeys: r.keys.Load(),
		RenewedKeys: r.renewedKeys.Load(), RenewalsDropped: r.renewalsDropped.Load(), RememberedLookups: r.rememberedLookups.Load(),
		BackendState: r.State(), BackendError: errorText(r.Failure()),
		Closed: map[string]int64{},
	}
	stat.Lookups = s.counters.lookups()
	return stat
}

// errorText returns the text of an error, "" without one.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
