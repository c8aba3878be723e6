//go:build linux

package crowd

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
)

// Way is how engines ask for hits.
type Way string

// Ways to ask.
const (
	None     Way = "none"          // no lookups, and no loads: what saving takes
	Own      Way = "vllm"          // vLLM's own lookup, at each step
	OwnAsync Way = "vllm-async"    // the same with lookup_async
	Shared   Way = "hitline"       // one hitline for all engines, as the plug-in asks it
	Each     Way = "hitline-each"  // a hitline for each engine
	Whole    Way = "hitline-whole" // one hitline, asked from token 0
	Patient  Way = "hitline-1s"    // one hitline, whose lookups may take a second in place of 100 ms
)

// Ways returns all ways.
func Ways() []Way { return []Way{None, Own, OwnAsync, Shared, Each, Whole, Patient} }

// ShortWays returns those that answer the most questions.
func ShortWays() []Way { return []Way{None, Own, Shared, Patient, Whole} }

// isHitline reports whether a hitline is asked.
func (w Way) isHitline() bool { return w == Shared || w == Each || w == Whole || w == Patient }

// Largest stands for the largest number of engines at which master and generator each take less than maxShare of a core.
const Largest = 0

const (
	maxShare = 0.5
	// maxStoreKeys bounds the keys of a store, and so the engines: a master takes half a kilobyte for each.
	maxStoreKeys = 6_000_000
	// maxHitlines bounds the engines with a hitline each.
	maxHitlines = 32
)

// Options says what to measure. OnNote and OnStep must be set.
type Options struct {
	Trace   workload.Trace
	Ways    map[int][]Way // by tensor-parallel size
	Engines []int         // numbers of engines, Largest last
	Rounds  int           // in each of which a cell is measured once

	Lead   time.Duration // for which turns run that do not count: longer than a lease
	Window time.Duration // for which those begin that count

	CacheTokens int // that an engine's own cache holds
	StoreTokens int // that the store holds for each engine
	Seed        uint64

	Hitline string // path of the hitline binary
	Python  string // path of a Python that has mooncake

	Timeout time.Duration                       // longest wait for a start or an answer
	OnNote  func(text string)                   // called with what limits the meaning of the figures
	OnStep  func(phase string, done, total int) // called before each cell
}

// Validate returns an error that wraps [measure.ErrOptions] unless the options make sense.
func (o Options) Validate() error {
	tps := slices.Sorted(maps.Keys(o.Ways))
	err := cmp.Or(
		workload.CheckTPs(tps),
		measure.CheckList("engines", o.Engines, Largest, 1000),
		measure.CheckRange("rounds", o.Rounds, 1, 100),
		measure.CheckRange("tokens of an engine's cache", o.CacheTokens, blockTokens, 1<<30),
		measure.CheckRange("tokens of the store for an engine", o.StoreTokens, 1000*blockTokens, 1<<30),
		measure.CheckPositive("a lead", o.Lead),
		measure.CheckPositive("a duration", o.Window),
		measure.CheckPositive("a timeout", o.Timeout),
	)
	if at := slices.Index(o.Engines, Largest); err == nil && at >= 0 && (at == 0 || at < len(o.Engines)-1) {
		err = measure.BadOptions("engines %v; %d, for the largest number, comes last and after another one", o.Engines, Largest)
	}
	for _, tp := range tps {
		if err == nil && len(o.Ways[tp]) == 0 {
			err = measure.BadOptions("no way to ask at TP %d", tp)
		}
		for _, w := range o.Ways[tp] {
			err = cmp.Or(err, measure.CheckOneOf("a way to ask", w, Ways()...))
			if err == nil && slices.Max(o.Engines) > o.maxEngines(tp, w) {
				err = measure.BadOptions("%d engines, TP %d, %s; give at most %d", slices.Max(o.Engines), tp, w, o.maxEngines(tp, w))
			}
		}
	}
	return err
}

// numCells returns how many cells are measured at most, all rounds.
func (o Options) numCells() (n int) {
	for _, ways := range o.Ways {
		n += len(ways) * len(o.Engines) * o.Rounds
	}
	return n
}

// maxEngines returns how many engines can be simulated.
func (o Options) maxEngines(tp int, way Way) int {
	most := maxStoreKeys / (o.StoreTokens / blockTokens * tp)
	if way == Each {
		most = min(most, maxHitlines)
	}
	return most
}
