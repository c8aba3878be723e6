package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"

	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/lookup/client"
)

// newPingCmd returns the command that measures round trips.
func newPingCmd() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "ping",
		Short: "Measure round trips to the server",
		Long: `ping prints how long the server took to answer, connecting not included.

With --count it makes several round trips, a line each, over one connection. At
the end, or at an interrupt (Ctrl-C), it prints how many were lost, and the
least, average, median, 99th percentile and most time of the others, to three
digits. Lost are those without a connection, or without an answer within
--timeout; it then connects anew. It exits with 1 if any was lost.

With --json: {"round_trip_ns": nanoseconds}. With --count one line at the end:
{"sent": n, "lost": n, "round_trip_ns": {"min", "avg", "p50", "p99", "max"} or
null if all were lost, "error": text if any was lost, "exit": code}`,
		Example: "  hitline ping --timeout 1s\n  hitline ping --count 10 --interval 100ms",
		Args:    cli.NoArgs,
	}
	t.addFlags(cmd)
	count := cmd.Flags().Uint("count", 1, "`number` of round trips, 0 for no end\n(default one, printed alone)")
	cmd.Flags().Lookup("count").DefValue = "0" // pflag prints no default then; the text has it
	interval := cmd.Flags().Duration("interval", time.Second, "with --count: `time` from one to the next, if the\nanswer has come by then")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := t.check(); err != nil {
			return err
		}
		repeat := cmd.Flags().Changed("count")
		switch {
		case *interval < 0:
			return usagef("--interval is %v, must not be negative", *interval)
		case repeat:
			return t.pingRepeatedly(cmd, *count, *interval)
		case cmd.Flags().Changed("interval"):
			return usagef("--interval is of no use without --count")
		}
		s := session{target: &t}
		defer s.close()
		roundTrip, err := s.ping(cmd.Context())
		if err != nil {
			return err
		}
		return printResult(cmd, t.json, map[string]int64{"round_trip_ns": roundTrip.Nanoseconds()}, roundTrip.String())
	}
	return cmd
}

// ping returns the time of one round trip.
func (s *session) ping(ctx context.Context) (roundTrip time.Duration, err error) {
	err = s.do(ctx, func(ctx context.Context, c *client.Client) error {
		sent := time.Now()
		err := c.Ping(ctx)
		roundTrip = time.Since(sent)
		return err
	})
	return roundTrip, err
}

// pingRepeatedly pings count times, or for ever if count is 0, and prints the round trips and a
// summary.
func (t *target) pingRepeatedly(cmd *cobra.Command, count uint, interval time.Duration) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
	defer stop()
	s := session{target: t}
	defer s.close()
	stats := newPingStats()
	for next := time.Now(); (count == 0 || stats.sent < count) && waitUntil(ctx, next); {
		next = time.Now().Add(interval)
		roundTrip, err := s.ping(ctx)
		if err != nil && ctx.Err() != nil {
			break // interrupted: neither answered nor lost
		}
		if err != nil && !isLost(err) {
			return err // the server has answered, and would answer so again
		}
		stats.add(roundTrip, err)
		if t.json {
			continue
		}
		line := fmt.Sprintf("%d  %v", stats.sent, roundTrip)
		if err != nil {
			line = fmt.Sprintf("%d  lost: %s", stats.sent, cli.Printable(err.Error()))
		}
		if err := printText(cmd, line); err != nil {
			return err
		}
	}
	return stats.print(cmd, t.json)
}

// pingStats sums up round trips. Its memory does not grow with their number.
type pingStats struct {
	sent, lost uint
	times      *hdrhistogram.Histogram // nanoseconds
}

// newPingStats returns the summary of no round trips.
func newPingStats() *pingStats {
	const longest, digits = int64(time.Hour), 3 // nobody waits longer for an answer
	return &pingStats{times: hdrhistogram.New(1, longest, digits)}
}

// add counts one round trip, which is lost if err is not nil.
func (p *pingStats) add(roundTrip time.Duration, err error) {
	p.sent++
	if err != nil {
		p.lost++
		return
	}
	_ = p.times.RecordValue(min(max(int64(roundTrip), 1), p.times.HighestTrackableValue())) // in range
}

// pingTimes are round trips in nanoseconds.
type pingTimes struct {
	Min int64 `json:"min"`
	Avg int64 `json:"avg"`
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

// summary returns the times, nil if there was no answer.
func (p *pingStats) summary() *pingTimes {
	if p.sent == p.lost {
		return nil
	}
	at := p.times.ValueAtQuantile
	return &pingTimes{p.times.Min(), int64(p.times.Mean()), at(50), at(99), p.times.Max()}
}

// print prints the summary and returns an error if any was lost.
func (p *pingStats) print(cmd *cobra.Command, asJSON bool) error {
	result := struct {
		Sent      uint       `json:"sent"`
		Lost      uint       `json:"lost"`
		RoundTrip *pingTimes `json:"round_trip_ns"` // null if there was no answer
		Error     string     `json:"error,omitempty"`
		Exit      int        `json:"exit"`
	}{Sent: p.sent, Lost: p.lost, RoundTrip: p.summary()}
	text := fmt.Sprintf("%d sent, %d lost", p.sent, p.lost)
	if r := result.RoundTrip; r != nil {
		text += fmt.Sprintf(": min %v, avg %v, p50 %v, p99 %v, max %v", shortDuration(r.Min), shortDuration(r.Avg), shortDuration(r.P50), shortDuration(r.P99), shortDuration(r.Max))
	}
	var err error
	if p.lost > 0 {
		err = cli.WithClass(fmt.Errorf("%d of %d round trips lost", p.lost, p.sent), cli.ErrReported)
	}
	if result.Exit = exitCode(err); err != nil {
		result.Error = err.Error()
	}
	if printErr := printResult(cmd, asJSON, result, text); printErr != nil {
		return printErr
	}
	return err
}

// shortDuration returns nanoseconds as a duration of three digits.
func shortDuration(ns int64) time.Duration {
	unit := int64(1)
	for ns/unit >= 1000 {
		unit *= 10
	}
	return time.Duration(ns).Round(time.Duration(unit))
}
