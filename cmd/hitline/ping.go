package main

import (
	"context"
	"fmt"
	"math"
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

With --requests it makes several round trips, a line each, over one connection.
At the end, or at an interrupt (Ctrl-C), it prints how many were lost, and the
least, mean, median, 99th percentile and most time of the others, to three
digits. Lost are those without a connection, or without an answer within
--timeout; it then connects anew. It exits with 1 if any was lost.

With --json: {"round_trip_us": microseconds}. With --requests one line at the
end: {"requests": n, "lost": n, "min_us": …, "mean_us": …, "p50_us": …,
"p99_us": …, "max_us": …, "error": text if any was lost, "exit": code}. The
times are left out if all were lost.`,
		Example: "  hitline ping --timeout 1s\n  hitline ping -n 10 -i 100ms",
		Args:    cli.NoArgs,
	}
	requests := requestsFlag(cmd, "`number` of round trips, 0 for no end (default one, printed alone)")
	interval := intervalFlag(cmd)
	t.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := t.check(); err != nil {
			return err
		}
		switch {
		case *interval < 0:
			return usagef("--interval is %v, must not be negative", *interval)
		case cmd.Flags().Changed("requests"):
			return t.pingRepeatedly(cmd, *requests, *interval)
		case cmd.Flags().Changed("interval"):
			return usagef("--interval is of no use without --requests")
		}
		s := session{target: &t}
		defer s.close()
		roundTrip, err := s.ping(cmd.Context())
		if err != nil {
			return err
		}
		return cli.PrintResult(cmd, t.json, map[string]float64{"round_trip_us": inMicroseconds(roundTrip.Nanoseconds())}, roundTrip.String())
	}
	return cmd
}

// requestsFlag defines the flag of how many requests a command makes that repeats one. 0 is for no
// end.
func requestsFlag(cmd *cobra.Command, usage string) *uint {
	return cmd.Flags().UintP("requests", "n", 0, usage)
}

// intervalFlag defines the flag of the time between such requests.
func intervalFlag(cmd *cobra.Command) *time.Duration {
	interval := new(time.Duration)
	cli.SecondsVarP(cmd.Flags(), interval, "interval", "i", time.Second, "`time` from one request to the next, if the answer has come by then")
	return interval
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

// pingRepeatedly pings as often as requests says, or for ever if that is 0, and prints the round
// trips and a summary.
func (t *target) pingRepeatedly(cmd *cobra.Command, requests uint, interval time.Duration) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
	defer stop()
	s := session{target: t}
	defer s.close()
	stats := newPingStats()
	for next := time.Now(); (requests == 0 || stats.requests < requests) && waitUntil(ctx, next); {
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
		line := fmt.Sprintf("%d  %v", stats.requests, roundTrip)
		if err != nil {
			line = fmt.Sprintf("%d  lost: %s", stats.requests, cli.Printable(err.Error()))
		}
		if err := printText(cmd, line); err != nil {
			return err
		}
	}
	return stats.print(cmd, t.json)
}

// pingStats sums up round trips. Its memory does not grow with their number.
type pingStats struct {
	requests, lost uint
	times          *hdrhistogram.Histogram // nanoseconds
}

// newPingStats returns the summary of no round trips.
func newPingStats() *pingStats {
	const longest, digits = int64(time.Hour), 3 // nobody waits longer for an answer
	return &pingStats{times: hdrhistogram.New(1, longest, digits)}
}

// add counts one round trip, which is lost if err is not nil.
func (p *pingStats) add(roundTrip time.Duration, err error) {
	p.requests++
	if err != nil {
		p.lost++
		return
	}
	_ = p.times.RecordValue(min(max(int64(roundTrip), 1), p.times.HighestTrackableValue())) // in range
}

// pingTimes are round trips in microseconds.
type pingTimes struct {
	Min  float64 `json:"min_us"`
	Mean float64 `json:"mean_us"`
	P50  float64 `json:"p50_us"`
	P99  float64 `json:"p99_us"`
	Max  float64 `json:"max_us"`
}

// summary returns the times, nil if there was no answer.
func (p *pingStats) summary() *pingTimes {
	if p.requests == p.lost {
		return nil
	}
	at := func(percentile float64) float64 { return inMicroseconds(p.times.ValueAtQuantile(percentile)) }
	return &pingTimes{inMicroseconds(p.times.Min()), inMicroseconds(int64(p.times.Mean())), at(50), at(99), inMicroseconds(p.times.Max())}
}

// inMicroseconds converts nanoseconds.
func inMicroseconds(ns int64) float64 { return float64(ns) / 1e3 }

// print prints the summary and returns an error if any was lost.
func (p *pingStats) print(cmd *cobra.Command, asJSON bool) error {
	result := struct {
		Requests   uint   `json:"requests"`
		Lost       uint   `json:"lost"`
		*pingTimes        // nil, and left out, if there was no answer
		Error      string `json:"error,omitempty"`
		Exit       int    `json:"exit"`
	}{Requests: p.requests, Lost: p.lost, pingTimes: p.summary()}
	text := fmt.Sprintf("%d requests, %d lost", p.requests, p.lost)
	if r := result.pingTimes; r != nil {
		text += fmt.Sprintf(": min %v, mean %v, p50 %v, p99 %v, max %v", shortDuration(r.Min), shortDuration(r.Mean), shortDuration(r.P50), shortDuration(r.P99), shortDuration(r.Max))
	}
	var err error
	if p.lost > 0 {
		err = cli.WithClass(fmt.Errorf("%d of %d round trips lost", p.lost, p.requests), cli.ErrReported)
	}
	if result.Exit = exitCode(err); err != nil {
		result.Error = err.Error()
	}
	if printErr := cli.PrintResult(cmd, asJSON, result, text); printErr != nil {
		return printErr
	}
	return err
}

// shortDuration returns microseconds as a duration of three digits.
func shortDuration(us float64) time.Duration {
	ns, unit := int64(math.Round(us*1e3)), int64(1)
	for ns/unit >= 1000 {
		unit *= 10
	}
	return time.Duration(ns).Round(time.Duration(unit))
}
