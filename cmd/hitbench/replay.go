package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/bench/replay"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/cmd/internal/connectflags"
)

// replayFlags are the flags of hitbench replay; written by cobra.
type replayFlags struct {
	secure          connectflags.Flags
	trace           string
	hashBlockTokens int
	conns           int
	anchored        bool
	split           bool
	speed           float64
	limit           int
	timeout         time.Duration
	allowEvicted    bool
	interval        time.Duration
	windows, hdr    string // files to write
	json            bool
}

// replayCommand returns the command.
func (a *app) replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay --trace FILE",
		Short: "Replay a recorded trace and check every answer",
		Long: `Replay a trace in the Mooncake format (JSON lines with hash_ids). Each request
looks up all of its blocks, checks the answer against a model, and then stores
the blocks. The server's index must hold none of them at the start, so begin
with a fresh server or a reset one.

By default each request follows the answer to the one before. With --speed they
come at the trace's times, and a lookup's latency counts from when it was due:
what waits for a slow answer before it counts as slow too.

With --conns each connection replays the whole trace under hashes of its own.
With --split too, the connections make the requests of one replay together:
requests that share more than what all of them begin with go to one connection,
in order, so every answer is still checked and the hits are those of one
connection.

The report has hit ratio and latency over time: time of the trace with --speed,
else time since the replay began.

Exit codes: 0 every answer was right; 1 one was wrong or refused, or the replay
was interrupted; 2 wrong usage or a bad trace; 3 no connection, or it was lost.`,
		Example: "  hitbench replay --trace trace.jsonl\n  hitbench replay --trace trace.jsonl.gz --speed 100 --json",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.replay(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.trace, "trace", "", "trace file, plain or gzip; - for standard input")
	flags.IntVar(&f.hashBlockTokens, "hash-block-tokens", workload.BlockTokens, "tokens a hash covers; divides 512")
	flags.IntVar(&f.conns, "conns", 1, "connections; each replays the whole trace with hashes of its own")
	flags.BoolVar(&f.split, "split", false, "the connections share one replay instead of making one each")
	flags.BoolVar(&f.anchored, "anchored", false, "look up by anchors, compare with all hashes, and count the bytes of both; one connection")
	flags.Float64Var(&f.speed, "speed", 0, "times as fast as the trace: 1 as recorded, 100 compressed; 0 for flat out")
	flags.BoolVar(&f.allowEvicted, "allow-evicted", false, "the index is bounded: accept answers below the model")
	flags.IntVar(&f.limit, "limit", 0, "only the first `N` requests; 0 for all")
	flags.DurationVar(&f.timeout, "timeout", 10*time.Second, "longest wait for a connection or an answer")
	flags.DurationVar(&f.interval, "interval", 0, "length of the windows of the report; 0 chooses one that makes at most 100")
	flags.StringVar(&f.windows, "windows", "", "write hit ratio and latency over time to `FILE`, as CSV")
	flags.StringVar(&f.hdr, "hdr", "", "write the latencies to `FILE`, as HdrHistogram percentiles in microseconds")
	flags.BoolVar(&f.json, "json", false, "print the report as one line of JSON")
	serverFlags(flags, &f.secure)
	_ = cmd.MarkFlagRequired("trace") // fails for an unknown flag only
	return cmd
}

// replay runs the command and prints the report, be it a partial one.
func (a *app) replay(ctx context.Context, f replayFlags) error {
	if f.conns < 1 {
		return cli.Usagef("%d connections; give --conns 1 or more", f.conns)
	}
	if f.anchored && f.conns > 1 {
		return cli.Usagef("--anchored compares two answers, between which no other connection may store; give --conns 1")
	}
	o, total, err := a.replayInput(ctx, f)
	if err != nil {
		return err
	}
	files, err := f.createFiles()
	if err != nil {
		return err
	}
	defer files.close()
	addr, secure, err := a.server(&f.secure)
	if err != nil {
		return err
	}
	dial := a.dial
	if f.anchored {
		dial = dialBothWays
	}
	conns, err := dialAll(ctx, dial, addr, secure, f.conns, f.timeout)
	if err != nil {
		return err
	}
	defer closeAll(conns)
	report, err := a.watchReplay(ctx, o, conns, total)
	return a.finish(report, f.json, cmp.Or(err, files.write(report)), answers{report.Mismatches, report.Errors, report.Requests})
}

// replayInput returns what to replay and how many requests that makes, or -1 if
// the trace can be read only once. A bad trace else shows before anything is stored.
func (a *app) replayInput(ctx context.Context, f replayFlags) (replay.ReplayOptions, int, error) {
	readers, replays := f.conns, f.conns
	if f.split { // the trace is read twice, whatever the connections
		readers, replays = 2, 1
	}
	in, err := a.openInput(ctx, f.trace, readers)
	if err != nil {
		return replay.ReplayOptions{}, 0, err
	}
	o := replay.ReplayOptions{
		Trace: in.trace, HashBlockTokens: f.hashBlockTokens, Limit: f.limit, Timeout: f.timeout, AllowEvicted: f.allowEvicted,
		Speed: f.speed, Split: f.split, Interval: f.interval,
	}
	if err := o.Validate(); err != nil {
		return o, 0, err
	}
	if in.once {
		return o, -1, nil
	}
	n, err := o.CountRequests(ctx)
	return o, n * replays, err
}

// watchReplay replays with a progress bar and describes the first problems.
func (a *app) watchReplay(ctx context.Context, o replay.ReplayOptions, conns []conn, total int) (replay.Report, error) {
	targets := make([]replay.Target, len(conns))
	for i, c := range conns {
		targets[i] = c
	}
	return watch(a, func(p *progress) (replay.Report, error) {
		var done atomic.Int64
		o.OnRequest = func(at time.Duration) {

			p.step("replay", int(done.Add(1)), total)
			p.describe(replayPhase(at))
		}
		o.OnProblem = func(problem error) {
			kind := "refused"
			if _, wrong := errors.AsType[*replay.MismatchError](problem); wrong {
				kind = "wrong"
			}
			p.problem(kind, problem.Error())
		}
		return replay.Replay(ctx, o, targets...)
	})
}

// replayPhase says where in the trace a replay is, in hours, minutes and seconds.
func replayPhase(at time.Duration) string {
	if at == 0 {
		return "replay"
	}
	s := int(at.Seconds())
	return fmt.Sprintf("replay, at %d:%02d:%02d", s/3600, s/60%60, s%60)
}
