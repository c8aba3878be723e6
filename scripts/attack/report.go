//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// rowResult is a row of the table: all rounds of an attack against one binary.
type rowResult struct {
	Attack string `json:"attack"`
	Binary string `json:"binary"`
	Rounds int    `json:"rounds"`

	// In milliseconds. Medians of the rounds, and the longest of all.
	P50            float64 `json:"p50_ms"`
	P99            float64 `json:"p99_ms"`
	Longest        float64 `json:"longest_ms"`
	LongestOfAll   float64 `json:"longest_of_all_ms"`
	ControlP50     float64 `json:"control_p50_ms"`
	ControlLongest float64 `json:"control_longest_ms"`
	ControlOfAll   float64 `json:"control_longest_of_all_ms"`

	RSSBefore   int   `json:"rss_before_mib"` // the greatest of the rounds
	RSSPeak     int   `json:"rss_peak_mib"`
	Connections int64 `json:"connections_open_at_end"` // those of the attack that the server still has

	Counters map[string]int64 `json:"counters"` // that changed, in the last round
	Asked    int              `json:"asked"`    // by the innocent, in all rounds and controls
	Wrong    int              `json:"wrong"`
	Refused  int              `json:"refused"`
	Unheard  int              `json:"unanswered"`
	Died     string           `json:"died,omitempty"`
	Error    string           `json:"error,omitempty"` // of the attack, which then was not complete
	Sent     sentReport       `json:"sent"`            // in the last round
}

// failed says whether the row shows a fault of the server.
func (r *rowResult) failed() bool { return r.Wrong > 0 || r.Unheard > 0 || r.Died != "" }

// newRow makes a row of rounds, each an attack and its control.
func newRow(name, binary string, attacks, controls []half) rowResult {
	row := rowResult{Attack: name, Binary: binary, Rounds: len(attacks)}
	field := func(halves []half, get func(stats) time.Duration) (middle, longest float64) {
		var values []time.Duration
		for _, h := range halves {
			values = append(values, get(h.stats))
		}
		return ms(median(values)), ms(slices.Max(values))
	}
	row.P50, _ = field(attacks, func(s stats) time.Duration { return s.P50 })
	row.P99, _ = field(attacks, func(s stats) time.Duration { return s.P99 })
	row.Longest, row.LongestOfAll = field(attacks, func(s stats) time.Duration { return s.Longest })
	row.ControlP50, _ = field(controls, func(s stats) time.Duration { return s.P50 })
	row.ControlLongest, row.ControlOfAll = field(controls, func(s stats) time.Duration { return s.Longest })
	for _, h := range slices.Concat(controls, attacks) {
		row.Asked += h.stats.Asked
		row.Wrong += h.stats.Results[wrong]
		row.Refused += h.stats.Results[refused]
		row.Unheard += h.stats.Results[unheard]
		row.Died, row.Error = cmp.Or(row.Died, h.died), cmp.Or(row.Error, h.attackError)
	}
	for _, h := range attacks {
		row.RSSBefore, row.RSSPeak = max(row.RSSBefore, h.rssBefore), max(row.RSSPeak, h.rssPeak)
		row.Connections, row.Counters, row.Sent = h.connections, h.counters, h.sent
	}
	return row
}

// ms returns d in milliseconds, to a hundredth.
func ms(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

// printTable prints the rows.
func printTable(w io.Writer, rows []rowResult, manyBinaries bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "attack\tp50 ms\tp99 ms\tlongest ms\tof all\tcontrol ms\tof all\tRSS MiB\topen\twrong\tcounters that changed")
	for _, r := range rows {
		name := r.Attack
		if manyBinaries {
			name += " " + r.Binary
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d to %d\t%d\t%s\t%s\n", name, short(r.P50), short(r.P99),
			short(r.Longest), short(r.LongestOfAll), short(r.ControlLongest), short(r.ControlOfAll),
			r.RSSBefore, r.RSSPeak, r.Connections, r.faults(), r.changed())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nWhat was sent, in the last round:")
	for _, r := range rows {
		name := r.Attack
		if manyBinaries {
			name += " " + r.Binary
		}
		fmt.Fprintf(w, "  %s: %s\n", name, r.Sent)
		if r.Died != "" {
			fmt.Fprintf(w, "    a server died: %s\n", r.Died)
		}
		if r.Error != "" {
			fmt.Fprintf(w, "    the attack was not complete: %s\n", r.Error)
		}
	}
	return nil
}

// faults describes the answers that were not right.
func (r *rowResult) faults() string {
	text := []string{strconv.Itoa(r.Wrong)}
	if r.Refused > 0 {
		text = append(text, fmt.Sprintf("%d refused", r.Refused))
	}
	if r.Unheard > 0 {
		text = append(text, fmt.Sprintf("%d unanswered", r.Unheard))
	}
	if r.Died != "" {
		text = append(text, "SERVER DIED")
	}
	if r.Error != "" {
		text = append(text, "NOT COMPLETE")
	}
	return strings.Join(text, ", ")
}

// changed lists the counters.
func (r *rowResult) changed() string {
	var text []string
	for _, name := range slices.Sorted(maps.Keys(r.Counters)) {
		text = append(text, fmt.Sprintf("%s %+d", name, r.Counters[name]))
	}
	return strings.Join(text, ", ")
}

// String describes what was sent.
func (s sentReport) String() string {
	text := fmt.Sprintf("%d connections, %d requests, %.1f KiB, %d replies", s.Opened, s.Requests, float64(s.Bytes)/kib, s.Replies)
	if s.Note != "" {
		text += "; " + s.Note
	}
	return text
}

// short prints milliseconds with three significant digits; 0 is no measurement.
func short(ms float64) string {
	digits := 2
	switch {
	case ms == 0:
		return "-"
	case ms >= 100:
		digits = 0
	case ms >= 10:
		digits = 1
	}
	return strconv.FormatFloat(ms, 'f', digits, 64)
}

// printJSON prints the rows as one line.
func printJSON(w io.Writer, rows []rowResult) error {
	return json.NewEncoder(w).Encode(map[string]any{"rows": rows})
}
