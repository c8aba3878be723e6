package status

import (
	"time"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/lookup/tokens"
	"github.com/hitline/hitline/router"
)

// maxListed bounds each list of a Status: there may be thousands of pools and sources.
const maxListed = 100

// Status is the reply to GET /status.
type Status struct {
	Ready          bool      `json:"ready"`
	NotReadyReason string    `json:"not_ready_reason"` // empty if it is ready
	Time           time.Time `json:"time"`
	Stat           api.Stat  `json:"stat"`    // of the server, and of its own pool
	Rates          Rates     `json:"rates"`   // of all pools together
	HalfMinutes    []sums    `json:"-"`       // of the last hour, of all pools together, the oldest first: for the page
	Latency        Latency   `json:"latency"` // of lookups in the last five minutes
	Pools          []Pool    `json:"pools"`   // at most maxListed; Stat.Pools has their number
	Store          *Store    `json:"store"`   // nil over memory
	Router         *Router   `json:"router"`  // nil if there is none
}

// Pool is one pool.
type Pool struct {
	Name          string   `json:"name"` // "" for the server's own
	Described     bool     `json:"described"`
	Model         string   `json:"model_name"`
	HashBlockSize int      `json:"hash_block_size"` // tokens of a hash
	Stat          api.Stat `json:"stat"`
	Rates         Rates    `json:"rates"` // absent for all but the busiest pools
}

// Rates tell of the last five minutes, hour and day, under the names of Windows.
type Rates map[string]Rate

// Windows are the keys of Rates, with how long each is.
var Windows = []struct {
	Name string
	Long time.Duration
}{{"5m", 5 * time.Minute}, {"1h", time.Hour}, {"24h", 24 * time.Hour}}

// Rate is what was counted in some time.
type Rate struct {
	Seconds  float64          `json:"seconds"` // how much of the time the server has seen
	Tokens   map[string]int64 `json:"tokens"`  // by place
	Prompts  int64            `json:"prompts"`
	Lookups  int64            `json:"lookups"`
	HitShare *float64         `json:"hit_share"` // of what a pool can be asked for; null if nothing was
}

// Latency is how long lookups take, in seconds, from the first byte until the reply was written.
type Latency struct {
	Lookups int64    `json:"lookups"`
	P50     *float64 `json:"p50_s"` // null without lookups
	P99     *float64 `json:"p99_s"`
}

// Store is what a server tells of its store.
type Store struct {
	Name  string             `json:"name"`
	State string             `json:"state"` // of the circuit breaker
	Error string             `json:"error"` // why the latest call failed, empty if it did not
	Calls map[string]Latency `json:"calls"` // since the start, by kind
}

// Router is what a router follows.
type Router struct {
	Models       []Model               `json:"models"`
	TotalSources int                   `json:"total_sources"`
	LiveSources  int                   `json:"live_sources"` // those whose blocks count
	Sources      []router.SourceStatus `json:"sources"`      // at most maxListed: first those that count for nothing
}

// Model is a model with numbers of its holders, which may be thousands.
type Model struct {
	router.ModelStatus
	Holders      int `json:"holders"`
	StaleHolders int `json:"stale_holders"`
}

// rateOf returns sums as a rate.
func rateOf(s sums, seen time.Duration) Rate {
	r := Rate{Seconds: seen.Seconds(), Tokens: map[string]int64{}, Prompts: s.prompts, Lookups: s.lookups}
	for p := range tokens.NumPlaces {
		r.Tokens[p.String()] = s.tokens[p]
	}
	if share, ok := api.HitShare(r.Tokens); ok {
		r.HitShare = &share
	}
	return r
}

// ratesOf returns the rates of a history of a server that began some time ago.
func ratesOf(h *history, age time.Duration) Rates {
	rates := Rates{}
	for _, w := range Windows {
		counted, seen := h.over(w.Long)
		rates[w.Name] = rateOf(counted, min(seen, age))
	}
	return rates
}

// quantile returns about the value below which a share of the observations lies, nil if there are none: the upper bound of
// its bucket.
func quantile(h api.Histogram, share float64) *float64 {
	total := uint64(0)
	for _, n := range h.Counts {
		total += n
	}
	if total == 0 {
		return nil
	}
	seen := uint64(0)
	for i, n := range h.Counts {
		if seen += n; float64(seen) >= share*float64(total) {
			bound := h.Bounds[min(i, len(h.Bounds)-1)]
			return &bound
		}
	}
	return nil
}

func latencyOf(h api.Histogram) (l Latency) {
	for _, n := range h.Counts {
		l.Lookups += int64(n)
	}
	l.P50, l.P99 = quantile(h, 0.5), quantile(h, 0.99)
	return l
}
