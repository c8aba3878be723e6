//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// writeJSON writes a report as one line.
func writeJSON(w io.Writer, r report) error { return json.NewEncoder(w).Encode(r) }

// writeTable implements report.
func (r *loadReport) writeTable(w io.Writer) error {
	fmt.Fprintf(w, "setup   %s\n", r.Setup)
	fmt.Fprintf(w, "pairs   %d of %g s each; rows marked * must agree within %g %%\n", r.Pairs, r.Seconds, 100*r.Tolerance)
	if r.SharedCore {
		fmt.Fprintln(w, "note    server and clients share the only core")
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "connections\thashes\tfigure\tof\t\tbeside\t\tratio\tleast–most\t")
	for _, c := range r.Comparisons {
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%.2f\t%.2f–%.2f\t%s\n", c.Connections, c.Hashes, c.Figure, c.Of, short(c.Value),
			c.Beside, short(c.BesideValue), c.Ratio, c.RatioLeast, c.RatioMost, c.verdict())
	}
	return t.Flush()
}

// verdict is the last column.
func (c *comparison) verdict() string {
	switch {
	case !c.Judged:
		return ""
	case c.Agrees:
		return "*"
	}
	return "* DIFFERS"
}

// differences implements report.
func (r *loadReport) differences() (all []string) {
	for _, c := range r.Comparisons {
		if c.Judged && !c.Agrees {
			all = append(all, fmt.Sprintf("%d connections, %d hashes: %s of %s is %s, of %s %s: %.2f times", c.Connections, c.Hashes, c.Figure,
				c.Of, short(c.Value), c.Beside, short(c.BesideValue), c.Ratio))
		}
	}
	return all
}

// writeTable implements report.
func (r *stallReport) writeTable(w io.Writer) error {
	fmt.Fprintf(w, "setup   %s\n", r.Setup)
	fmt.Fprintf(w, "stalls  of a server while hitbench measures for %g s; every second, or once across the end\n", r.Seconds)
	fmt.Fprintf(w, "waits   in ms; p99 and maximum must agree within %g %% with the observer's\n\n", 100*r.Tolerance)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "row\trate\tstalls\tof ms\thitbench p50\tp99\tmaximum\tobserver p50\tp99\tmaximum\t")
	for _, s := range r.Stalls {
		rate := "closed"
		if s.Rate > 0 {
			rate = fmt.Sprintf("%.0f/s", s.Rate)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%.1f–%.1f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Row, rate, s.Stalls, s.StallLeast, s.StallMost,
			ms(s.Hitbench.P50us), ms(s.Hitbench.P99us), ms(s.Hitbench.Maxus),
			ms(s.Observer.P50us), ms(s.Observer.P99us), ms(s.Observer.Maxus), s.verdict())
	}
	return t.Flush()
}

// verdict is the last column.
func (s *stallResult) verdict() string {
	switch {
	case s.P99Agrees && s.MaxAgrees:
		return ""
	case s.MaxAgrees:
		return "p99 DIFFERS"
	case s.P99Agrees:
		return "maximum DIFFERS"
	}
	return "p99 and maximum DIFFER"
}

// differences implements report.
func (r *stallReport) differences() (all []string) {
	for _, s := range r.Stalls {
		if text := s.verdict(); text != "" {
			all = append(all, fmt.Sprintf("%s: %s: hitbench %s, %s ms; observer %s, %s ms", s.Row, text,
				ms(s.Hitbench.P99us), ms(s.Hitbench.Maxus), ms(s.Observer.P99us), ms(s.Observer.Maxus)))
		}
	}
	return all
}

// ms formats µs as milliseconds.
func ms(us float64) string { return fmt.Sprintf("%.2f", us/1e3) }

// short formats a figure with a digit behind the point if it is below 1,000.
func short(x float64) string {
	if x < 1000 {
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}
