//go:build linux

package crowd

import (
	"slices"
	"sync"
	"time"

	"github.com/hitline/hitline/bench/measure"
)

// Figures are those of the windows of a cell. Keys and leases are counted for each rank; a lease is a key that was asked for or
// loaded and was there.
type Figures struct {
	Turns   int     `json:"turns"` // that began in the window
	Seconds float64 `json:"seconds"`

	Lookups      int   `json:"lookups"` // questions of engines
	LookupKeys   int64 `json:"lookup_keys"`
	LookupLeases int64 `json:"lookup_leases"`
	Late         int64 `json:"late_calls"`    // of hitline, which the master did not answer in time
	Unasked      int64 `json:"unasked_calls"` // of hitline, in the second after five late ones

	SaveKeys   int64 `json:"save_keys"` // that were asked for before saving
	SaveLeases int64 `json:"save_leases"`
	Loads      int64 `json:"loads"` // keys
	LostLoads  int64 `json:"lost_loads"`
	Puts       int64 `json:"puts"` // keys
	FailedPuts int64 `json:"failed_puts"`

	Evictions      int64 `json:"evictions"`       // that the master began
	EmptyEvictions int64 `json:"empty_evictions"` // that found nothing
	EvictedKeys    int64 `json:"evicted_keys"`
	StoreKeys      int64 `json:"store_keys"` // at the end

	EngineTokens int64 `json:"engine_tokens"` // of prompts, that the engines had themselves
	PoolTokens   int64 `json:"pool_tokens"`   // that lookups have found behind these
	OtherTokens  int64 `json:"other_tokens"`  // of whole blocks, the rest

	MasterCPU    float64 `json:"master_cpu_s"`
	HitlineCPU   float64 `json:"hitline_cpu_s"`   // all processes
	GeneratorCPU float64 `json:"generator_cpu_s"` // hitbench and the clients of the store

	P50us float64 `json:"p50_us,omitempty"` // of lookups that an engine waits for; missing where GeneratorShare is too large
	P99us float64 `json:"p99_us,omitempty"`
}

// Leases returns the leases of all kinds.
func (f Figures) Leases() int64 { return f.LookupLeases + f.SaveLeases + f.Loads - f.LostLoads }

// HitShare returns the share of what the engines did not have themselves that the pool gave.
func (f Figures) HitShare() float64 {
	return float64(f.PoolTokens) / float64(max(1, f.PoolTokens+f.OtherTokens))
}

// MasterShare returns the share of a core that the master took.
func (f Figures) MasterShare() float64 { return f.MasterCPU / f.Seconds }

// GeneratorShare is MasterShare of hitbench and the clients of the store.
func (f Figures) GeneratorShare() float64 { return f.GeneratorCPU / f.Seconds }

// CPUPerTurn returns the master's CPU time.
func (f Figures) CPUPerTurn() time.Duration {
	return time.Duration(f.MasterCPU / float64(max(1, f.Turns)) * float64(time.Second))
}

// EnginesPerCore returns how many engines one core of a master carries, computed from its CPU time a turn.
func (f Figures) EnginesPerCore() float64 { return 1 / (f.CPUPerTurn().Seconds() * turnRate) }

// tally counts while turns run, of one window after the other. Safe for concurrent use.
type tally struct {
	mu    sync.Mutex
	f     Figures
	waits []time.Duration // of lookups that an engine has waited for
}

// add changes the figures.
func (t *tally) add(change func(f *Figures)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.f)
}

// save counts a turn with its hit in tokens, and what was loaded and saved.
func (t *tally) save(one turn, hit int, s saved) {
	t.add(func(f *Figures) {
		f.Turns++
		pool := int64(max(0, hit-one.start*blockTokens))
		f.EngineTokens += int64(one.start * blockTokens)
		f.PoolTokens += pool
		f.OtherTokens += int64((one.blocks()-one.start)*blockTokens) - pool
		f.SaveKeys += s.Asked
		f.SaveLeases += s.Found
		f.Loads += s.Loads
		f.LostLoads += s.Lost
		f.Puts += s.Puts
		f.FailedPuts += s.Failed
	})
}

// finish sets the times of lookups, those of all windows.
func (t *tally) finish() {
	t.f.P50us, t.f.P99us = 0, 0
	if slices.Sort(t.waits); len(t.waits) > 0 && t.f.GeneratorShare() < maxShare {
		t.f.P50us, t.f.P99us = measure.PercentileUs(t.waits, 50), measure.PercentileUs(t.waits, 99)
	}
}
