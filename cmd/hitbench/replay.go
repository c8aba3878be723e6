package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/bench/replay"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/cmd/internal/connectflags"
	"github.com/hitline/hitline/lookup/api"
)

// maxDescribed is how many mismatches and how many refusals are described: enough
// to see a pattern without flooding a terminal.
const maxDescribed = 10

// replayFlags are the flags of hitbench replay; written by cobra.
type replayFlags struct {
	connect         string
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

// replayCommand returns the command, which leaves its error in failed.
func (a *app) replayCommand(failed *error) *cobra.Command {
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
		Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			*failed = a.replay(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.connect, "connect", api.DefaultListen, "`address` of the\nserver")
	flags.StringVar(&f.trace, "trace", "", "trace file, plain or gzip; - for standard input")
	flags.IntVar(&f.hashBlockTokens, "hash-block-tokens", workload.BlockTokens, "tokens a hash covers; divides 512")
	flags.IntVar(&f.conns, "conns", 1, "connections; each replays the whole trace with\nhashes of its own")
	flags.BoolVar(&f.split, "split", false, "the connections share one replay instead of\nmaking one each")
	flags.BoolVar(&f.anchored, "anchored", false, "look up by anchors, compare with all hashes, and\ncount the bytes of both; one connection")
	flags.Float64Var(&f.speed, "speed", 0, "times as fast as the trace: 1 as recorded, 100\ncompressed; 0 for flat out")
	flags.BoolVar(&f.allowEvicted, "allow-evicted", false, "the index is bounded: accept answers below the\nmodel")
	flags.IntVar(&f.limit, "limit", 0, "only the first `N` requests; 0 for all")
	flags.DurationVar(&f.timeout, "timeout", 10*time.Second, "longest wait for a connection or an\nanswer")
	flags.DurationVar(&f.interval, "interval", 0, "length of the windows of the report; 0 chooses\none that makes at most 100")
	flags.StringVar(&f.windows, "windows", "", "write hit ratio and latency over time to `FILE`,\nas CSV")
	flags.StringVar(&f.hdr, "hdr", "", "write the latencies to `FILE`, as HdrHistogram\npercentiles in microseconds")
	flags.BoolVar(&f.json, "json", false, "print the report as one line of JSON")
	f.secure.Add(flags)
	_ = cmd.MarkFlagRequired("trace") // fails for an unknown flag only
	return cmd
}

// replay runs the command and prints the report, be it a partial one.
func (a *app) replay(ctx context.Context, f replayFlags) error {
	if f.conns < 1 {
		return fmt.Errorf("%w: %d connections; give --conns 1 or more", errUsage, f.conns)
	}
	if f.anchored && f.conns > 1 {
		return fmt.Errorf("%w: --anchored compares two answers, between which no other connection may store; give --conns 1", errUsage)
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
	secure, err := a.connection(&f.secure, f.connect)
	if err != nil {
		return err
	}
	dial := a.dial
	if f.anchored {
		dial = dialBothWays
	}
	conns, err := dialAll(ctx, dial, f.connect, secure, f.conns, f.timeout)
	if err != nil {
		return err
	}
	defer closeAll(conns)
	report, err := a.watch(ctx, o, conns, total)
	fileErr := files.write(report)
	printErr := a.show(report, f.json)
	return cmp.Or(err, fileErr, printErr, verdict(report))
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

// watch replays with a progress bar and describes the first problems.
func (a *app) watch(ctx context.Context, o replay.ReplayOptions, conns []conn, total int) (replay.Report, error) {
	bar := newProgress(a.stderr, total)
	defer bar.finish()
	o.OnRequest = bar.step
	described := map[bool]int{} // by whether it is a mismatch
	o.OnProblem = func(problem error) {
		_, mismatch := errors.AsType[*replay.MismatchError](problem)
		described[mismatch]++
		switch n := described[mismatch]; {
		case n <= maxDescribed:
			bar.line("hitbench: " + problem.Error())
		case n == maxDescribed+1:
			bar.line("hitbench: further problems of this kind are counted, not described")
		}
	}
	targets := make([]replay.Target, len(conns))
	for i, c := range conns {
		targets[i] = c
	}
	return replay.Replay(ctx, o, targets...)
}

// verdict returns an error if, in a replay that came to its end, an answer was
// wrong or refused.
func verdict(r replay.Report) error {
	if r.Mismatches == 0 && r.Errors == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d answers contradict the model, %d requests were refused", r.Mismatches, r.Requests, r.Errors)
}
