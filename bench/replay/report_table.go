package replay

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// WriteTable writes the report for people: lines of name and value, and then what
// happened over time, in few windows.
func (r Report) WriteTable(w io.Writer) error {
	var text strings.Builder
	for _, row := range r.tableRows() {
		fmt.Fprintf(&text, "%-12s %s\n", row[0], row[1])
	}
	r.tableWindows(&text)
	_, err := io.WriteString(w, text.String())
	return err
}

// tableRows returns the lines of name and value.
func (r Report) tableRows() [][2]string {
	name := r.Trace
	if r.Partial {
		name += " (in part)"
	}
	rows := [][2]string{
		{"setup", r.Setup.String()},
		{"trace", name},
		{"connections", grouped(int64(r.Conns)) + r.dealt()},
		{"hash block", fmt.Sprintf("%d tokens", r.HashBlockTokens)},
		{"requests", grouped(r.Requests) + ratio(", %.0f a second", float64(r.Requests), r.Seconds)},
		{"blocks", grouped(r.Blocks)},
		{"hit blocks", grouped(r.HitBlocks) + ratio(", %.1f %%", 100*float64(r.HitBlocks), float64(r.Blocks))},
		{"hit tokens", grouped(r.HitTokens)},
		{"mismatches", grouped(r.Mismatches)},
		{"errors", grouped(r.Errors)},
		{"time", fmt.Sprintf("%.3f s", r.Seconds)},
	}
	if a := r.Anchored; a != nil {
		rows = append(rows, [2]string{"anchors", fmt.Sprintf("%s bytes in place of %s, %.1f times fewer", grouped(a.SentBytes), grouped(a.FullBytes), a.Fewer)})
	}
	if r.Speed > 0 {
		rows = append(rows,
			[2]string{"speed", fmt.Sprintf("%vx the trace's", r.Speed)},
			[2]string{"behind", fmt.Sprintf("%.3f ms at worst; latency counts from when a lookup was due", r.BehindMaxMs)},
		)
	}
	return append(rows,
		[2]string{"lookup p50", fmt.Sprintf("%.1f us", r.LookupP50us)},
		[2]string{"lookup p90", fmt.Sprintf("%.1f us", r.LookupP90us)},
		[2]string{"lookup p99", fmt.Sprintf("%.1f us", r.LookupP99us)},
		[2]string{"lookup p99.9", fmt.Sprintf("%.1f us", r.LookupP999us)},
		[2]string{"lookup max", fmt.Sprintf("%.1f us", r.LookupMaxus)},
	)
}

// dealt says how evenly a split trace fell on the connections.
func (r Report) dealt() string {
	if len(r.ConnRequests) == 0 {
		return ""
	}
	return fmt.Sprintf(", which split the trace; %s to %s requests each",
		grouped(slices.Min(r.ConnRequests)), grouped(slices.Max(r.ConnRequests)))
}

// tableWindows writes what happened over time, unless it is one window.
func (r Report) tableWindows(text *strings.Builder) {
	if len(r.rows) < 2 {
		return
	}
	clock := "time"
	if r.Speed > 0 {
		clock = "trace time"
	}
	fmt.Fprintf(text, "\n%12s %12s %12s %12s %12s\n", clock, "requests", "hit blocks", "lookup p50", "lookup p99")
	for _, v := range r.rows {
		fmt.Fprintf(text, "%10.*f s %12s %12s %9.1f us %9.1f us\n", r.decimals(), v.StartS, grouped(v.Requests),
			ratio("%.1f %%", 100*float64(v.HitBlocks), float64(v.Blocks)), v.P50us, v.P99us)
	}
}

// decimals returns how many digits after the point the starts of windows need, up
// to the microsecond.
func (r Report) decimals() int {
	most := 0
	for _, v := range r.rows {
		_, fraction, _ := strings.Cut(strconv.FormatFloat(v.StartS, 'f', -1, 64), ".")
		most = max(most, len(fraction))
	}
	return most
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
