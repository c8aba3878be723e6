package replay

import (
	"io"

	"github.com/hitline/hitline/bench/measure"
)

// Report is the result of a replay. Times of lookups are in microseconds, to 0.01, and 0 without an
// answer.
type Report struct {
	Setup     measure.Setup `json:"setup"` // its Seed is 0: nothing is drawn
	Trace     string        `json:"trace"`
	BlockSize int           `json:"block_size"` // tokens that one hash covers

	Requests  int64   `json:"requests"`   // lookups that were answered or refused
	Blocks    int64   `json:"blocks"`     // in those lookups
	HitBlocks int64   `json:"hit_blocks"` // HitTokens in whole blocks
	HitTokens int64   `json:"hit_tokens"` // sum of the answers, as given, right or wrong
	HitRatio  float64 `json:"hit_ratio"`  // HitBlocks / Blocks, 0 without blocks
	Wrong     int64   `json:"wrong"`      // answers that the model contradicts
	Refused   int64   `json:"refused"`    // lookups and stores

	Seconds      float64 `json:"seconds"`        // from the first request to the last answer
	RequestsPerS float64 `json:"requests_per_s"` // Requests / Seconds, to 0.1
	measure.Latency

	Partial bool `json:"partial,omitempty"` // the replay ended before the trace did
}

// WriteTable writes the report for people.
func (r Report) WriteTable(w io.Writer) error {
	var t measure.Table
	name := r.Trace
	if r.Partial {
		name += " (in part)"
	}
	t.Line("setup", "%v", r.Setup)
	t.Line("trace", "%s", name)
	t.Line("block size", "%d tokens", r.BlockSize)
	t.Line("requests", "%s, %.0f a second", measure.Grouped(r.Requests), r.RequestsPerS)
	t.Line("blocks", "%s", measure.Grouped(r.Blocks))
	t.Line("hit blocks", "%s, %.1f %%", measure.Grouped(r.HitBlocks), 100*r.HitRatio)
	t.Line("hit tokens", "%s", measure.Grouped(r.HitTokens))
	t.Line("wrong", "%s", measure.Grouped(r.Wrong))
	t.Line("refused", "%s", measure.Grouped(r.Refused))
	t.Line("time", "%.3f s", r.Seconds)
	t.Line("lookup", "p50 %.1f us, p90 %.1f, p99 %.1f, p99.9 %.1f, at most %.1f", r.P50us, r.P90us, r.P99us, r.P999us, r.MaxUs)
	return t.Write(w)
}
