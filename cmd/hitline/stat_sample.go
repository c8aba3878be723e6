package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// gauges are the numbers of api.Stat that do not only grow. Those with max_ before the name of
// another one are its bound.
var gauges = map[string]bool{
	"pools": true, "entries": true, "max_entries": true, "bytes": true, "max_bytes": true, "connections": true, "max_connections": true,
	"in_flight": true, "memory": true, "max_memory": true, "turn_share": true, "longest_turn": true, "longest_turn_us": true,
}

// statSample is one answer to stat.
type statSample struct {
	at     time.Time
	fields map[string]string // as flattenObject returns them
}

// readSample returns the sample of an answer that came at a time.
func readSample(stat json.RawMessage, at time.Time) (*statSample, error) {
	fields, err := flattenObject(stat)
	return &statSample{at: at, fields: fields}, err
}

// number returns a field that is a whole number. A missing counter is 0: the maps of api.Stat lack
// what has not occurred.
func (s *statSample) number(key string) (n int64, ok bool) {
	text, there := s.fields[key]
	if !there {
		return 0, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// format writes the counters that have changed since the sample before, and the gauges. Without a
// sample before these are all counters that are not 0.
func (s *statSample) format(before *statSample) string {
	var out strings.Builder
	fmt.Fprintln(&out, s.title())
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "counter\ttotal\ta second\n")
	for _, key := range slices.Sorted(maps.Keys(s.fields)) {
		if total, ok := s.number(key); ok && !gauges[key] {
			s.formatCounter(w, before, key, total)
		}
	}
	fmt.Fprintf(w, "gauge\tnow\n")
	for _, key := range slices.Sorted(maps.Keys(s.fields)) {
		if !gauges[key] || strings.HasPrefix(key, "max_") {
			continue
		}
		value := s.fields[key]
		if bound, ok := s.number("max_" + key); ok && bound > 0 {
			value += fmt.Sprintf(" of %d", bound)
		}
		fmt.Fprintf(w, "%s\t%s\n", key, value)
	}
	_ = w.Flush() // a Builder never fails
	return strings.TrimSuffix(out.String(), "\n")
}

// formatCounter writes the row of a counter, if it has changed.
func (s *statSample) formatCounter(w *tabwriter.Writer, before *statSample, key string, total int64) {
	if before == nil {
		if total != 0 {
			fmt.Fprintf(w, "%s\t%d\n", key, total)
		}
		return
	}
	previous, ok := before.number(key)
	switch elapsed := s.at.Sub(before.at).Seconds(); {
	case !ok || total == previous:
	case total < previous || elapsed <= 0: // a reset counter has no rate
		fmt.Fprintf(w, "%s\t%d\t-\n", key, total)
	default:
		fmt.Fprintf(w, "%s\t%d\t%s\n", key, total, formatRate(float64(total-previous)/elapsed))
	}
}

// formatRate writes a rate with three digits or all that are before the point.
func formatRate(rate float64) string {
	if rate >= 100 {
		return strconv.FormatFloat(rate, 'f', 0, 64)
	}
	return strconv.FormatFloat(rate, 'g', 3, 64)
}

// title returns when the sample was taken, and of which server and pool.
func (s *statSample) title() string {
	parts := []string{s.at.Format(time.DateTime), "hitline " + s.fields["version"]}
	if start, err := time.Parse(time.RFC3339, s.fields["start_time"]); err == nil {
		parts = append(parts, "up "+max(s.at.Sub(start), 0).Round(time.Second).String())
	}
	if pool := s.fields["pool"]; pool != "" {
		parts = append(parts, "pool "+pool)
	}
	backend := s.fields["backend"]
	if state := s.fields["backend_state"]; state != "" {
		backend += ", breaker " + state
	}
	return strings.Join(append(parts, backend), "  ")
}
