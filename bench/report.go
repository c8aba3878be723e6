package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// Report is the result of a replay, summed over its connections.
type Report struct {
	Trace           string `json:"trace"`
	Conns           int    `json:"conns"`
	HashBlockTokens int    `json:"hash_block_tokens"` // tokens one hash covers

	Requests   int64 `json:"requests"`   // lookups that were answered or refused
	Blocks     int64 `json:"blocks"`     // hash blocks in those lookups
	HitBlocks  int64 `json:"hit_blocks"` // HitTokens in whole hash blocks
	HitTokens  int64 `json:"hit_tokens"` // sum of the answers, as given, right or wrong
	Mismatches int64 `json:"mismatches"` // answers that the model contradicts
	Errors     int64 `json:"errors"`     // lookups and stores that were refused or failed

	Seconds     float64 `json:"seconds"`       // from the first request to the last answer
	LookupP50us float64 `json:"lookup_p50_us"` // microseconds a lookup took, to 0.1; 0 without any
	LookupP99us float64 `json:"lookup_p99_us"`

	Partial bool `json:"partial,omitempty"` // the replay ended before the trace did
}

// WriteJSON writes the report as one line of JSON.
func (r Report) WriteJSON(w io.Writer) error {
	return json.NewEncoder(w).Encode(r)
}

// WriteTable writes the report as lines of name and value, for people.
func (r Report) WriteTable(w io.Writer) error {
	name := r.Trace
	if r.Partial {
		name += " (in part)"
	}
	rows := [][2]string{
		{"trace", name},
		{"connections", grouped(int64(r.Conns))},
		{"hash block", fmt.Sprintf("%d tokens", r.HashBlockTokens)},
		{"requests", grouped(r.Requests) + ratio(", %.0f a second", float64(r.Requests), r.Seconds)},
		{"blocks", grouped(r.Blocks)},
		{"hit blocks", grouped(r.HitBlocks) + ratio(", %.1f %%", 100*float64(r.HitBlocks), float64(r.Blocks))},
		{"hit tokens", grouped(r.HitTokens)},
		{"mismatches", grouped(r.Mismatches)},
		{"errors", grouped(r.Errors)},
		{"time", fmt.Sprintf("%.3f s", r.Seconds)},
		{"lookup p50", fmt.Sprintf("%.1f us", r.LookupP50us)},
		{"lookup p99", fmt.Sprintf("%.1f us", r.LookupP99us)},
	}
	var text strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&text, "%-12s %s\n", row[0], row[1])
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// ratio formats a/b, or nothing where there is no b.
func ratio(format string, a, b float64) string {
	if b == 0 {
		return ""
	}
	return fmt.Sprintf(format, a/b)
}

// grouped formats n, which is not negative, with a comma before every three digits.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// micros returns ns in microseconds, to 0.1: finer than a socket can be timed.
func micros(ns int64) float64 {
	return math.Round(float64(ns)/100) / 10
}

// seconds returns d in seconds, to the microsecond.
func seconds(d time.Duration) float64 {
	return math.Round(float64(d)/1e3) / 1e6
}
