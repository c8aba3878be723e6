package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hitline/hitline/bench/measure"
)

// Report is the result of a replay, summed over its connections. Times of lookups
// are in microseconds, to 0.1, and 0 without an answer; percentiles are those of all
// connections' lookups.
type Report struct {
	Setup           measure.Setup `json:"setup"` // its Seed is 0: nothing is drawn
	Trace           string        `json:"trace"`
	Conns           int           `json:"conns"`
	Split           bool          `json:"split"`             // the connections shared the trace, else each replayed it
	HashBlockTokens int           `json:"hash_block_tokens"` // tokens one hash covers
	Speed           float64       `json:"speed"`             // times that of the trace; 0 for flat out

	Requests   int64   `json:"requests"`   // lookups that were answered or refused
	Blocks     int64   `json:"blocks"`     // hash blocks in those lookups
	HitBlocks  int64   `json:"hit_blocks"` // HitTokens in whole hash blocks
	HitTokens  int64   `json:"hit_tokens"` // sum of the answers, as given, right or wrong
	HitRatio   float64 `json:"hit_ratio"`  // HitBlocks / Blocks, 0 without blocks
	Mismatches int64   `json:"mismatches"` // answers that the model contradicts
	Errors     int64   `json:"errors"`     // lookups and stores that were refused or failed

	Seconds      float64 `json:"seconds"`        // from the first request to the last answer
	RequestsPerS float64 `json:"requests_per_s"` // Requests / Seconds, to 0.1
	BehindMaxMs  float64 `json:"behind_max_ms"`  // the most that a lookup was sent after it was due; 0 flat out
	LookupP50us  float64 `json:"lookup_p50_us"`  // from when it was due, or flat out from when it was sent
	LookupP90us  float64 `json:"lookup_p90_us"`
	LookupP99us  float64 `json:"lookup_p99_us"`
	LookupP999us float64 `json:"lookup_p999_us"`
	LookupMaxus  float64 `json:"lookup_max_us"`

	Anchored *AnchoredReport `json:"anchored,omitempty"` // where lookups were made both ways

	ConnRequests []int64 `json:"conn_requests,omitempty"` // of each connection, where they split the trace

	// Windows is the same over time: that of the trace with a speed, when a lookup
	// counts where it was due, and else that since the replay began, when it counts
	// where it was sent. Windows without requests are left out.
	IntervalS float64  `json:"interval_s"` // seconds a window
	Windows   []Window `json:"windows"`

	Partial bool `json:"partial,omitempty"` // the replay ended before the trace did

	latency *hdrhistogram.Histogram // of lookups, in nanoseconds; nil in a report that was read
	rows    []Window                // Windows in few, for the table
}

// AnchoredReport compares lookups by anchors with lookups by all hashes.
type AnchoredReport struct {
	SentBytes int64   `json:"sent_bytes"` // by anchors
	FullBytes int64   `json:"full_bytes"` // by all hashes
	Fewer     float64 `json:"fewer"`      // FullBytes / SentBytes, to 0.01
}

// sum adds up what the players counted and timed in a replay that took so long.
func sum(o ReplayOptions, players []*player, took time.Duration) Report {
	total := Report{
		Trace: o.Trace.Name, Conns: len(players), Split: o.Split, HashBlockTokens: o.HashBlockTokens, Speed: o.Speed,
		latency: hdrhistogram.New(1, maxLatency, 3),
	}
	behind := time.Duration(0)
	for _, p := range players {
		t := &p.totals
		total.Requests += t.Requests
		total.Blocks += t.Blocks
		total.HitTokens += t.HitTokens
		total.Mismatches += t.Mismatches
		total.Errors += t.Errors
		total.HitBlocks += t.HitTokens / int64(o.HashBlockTokens)
		total.latency.Merge(p.latency)
		behind = max(behind, p.behind)
		if target, ok := p.target.(AnchoredTarget); ok {
			sent, full := target.Sent()
			total.Anchored = &AnchoredReport{SentBytes: sent, FullBytes: full, Fewer: math.Round(100*float64(full)/max(float64(sent), 1)) / 100}
		}
		if o.Split {
			total.ConnRequests = append(total.ConnRequests, t.Requests)
		}
	}
	total.HitRatio = share(total.HitBlocks, total.Blocks)
	total.Seconds = seconds(took)
	total.RequestsPerS = math.Round(10*float64(total.Requests)/max(took.Seconds(), 1e-9)) / 10
	total.BehindMaxMs = math.Round(float64(behind)/1e3) / 1e3
	total.addLatency()
	return total
}

// addLatency fills in the percentiles.
func (r *Report) addLatency() {
	for _, at := range []struct {
		percentile float64
		us         *float64
	}{{50, &r.LookupP50us}, {90, &r.LookupP90us}, {99, &r.LookupP99us}, {99.9, &r.LookupP999us}, {100, &r.LookupMaxus}} {
		*at.us = micros(measure.OfHistogram(r.latency, at.percentile))
	}
}

// WriteJSON writes the report as one line of JSON.
func (r Report) WriteJSON(w io.Writer) error {
	return json.NewEncoder(w).Encode(r)
}

// WriteHDR writes the latencies of the lookups, in microseconds, as percentiles in
// the text format of HdrHistogram.
func (r Report) WriteHDR(w io.Writer) error {
	if r.latency == nil {
		return errors.New("bench: this report holds no histogram; only one that Replay returned does")
	}
	_, err := r.latency.PercentilesPrint(w, 5, float64(time.Microsecond))
	return err
}

// WriteWindows writes the windows as CSV, under the names they have in JSON.
func (r Report) WriteWindows(w io.Writer) error {
	var text strings.Builder
	text.WriteString("start_s,requests,blocks,hit_blocks,hit_ratio,p50_us,p99_us\n")
	for _, v := range r.Windows {
		fmt.Fprintf(&text, "%v,%d,%d,%d,%v,%v,%v\n", v.StartS, v.Requests, v.Blocks, v.HitBlocks, v.HitRatio, v.P50us, v.P99us)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// micros returns ns in microseconds, to 0.1: finer than a socket can be timed.
func micros(ns int64) float64 {
	return math.Round(float64(ns)/100) / 10
}

// seconds returns d in seconds, to the microsecond.
func seconds(d time.Duration) float64 {
	return math.Round(float64(d)/1e3) / 1e6
}

// share returns part / whole, to a millionth, and 0 where there is no whole.
func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return math.Round(1e6*float64(part)/float64(whole)) / 1e6
}
