package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/replay"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/cmd/internal/connectflags"
)

// replayFlags are the flags of hitbench replay; written by cobra.
type replayFlags struct {
	o           replay.Options // all but its trace
	trace       string
	connections int
	json        bool
	server      connectflags.Flags
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

With --connections each connection replays the whole trace under hashes of its
own.

The report has hit ratio and latency over time: time of the trace with --speed,
else time since the replay began.

Exit codes: 0 every answer was right; 1 one was wrong or refused, or the replay
was interrupted; 2 wrong usage or a bad trace; 3 no connection, or it was lost.`,
		Example: "  hitbench replay --trace trace.jsonl\n  hitbench replay --trace trace.jsonl.gz --speed 100 -c 4",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.replay(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.trace, "trace", "", "`file` of a trace, plain or gzip")
	connectionsFlag(flags, &f.connections, 1, "; each replays the whole trace with hashes of its own")
	requestsFlag(flags, &f.o.Requests, ", the first ones; 0 for all")
	blockSizeFlag(flags, &f.o.BlockSize, 0, "; divides 512; 0 asks the server, with one full-attention group")
	flags.Float64Var(&f.o.Speed, "speed", 0, "times as fast as the trace: 1 as recorded, 100 compressed; 0 for flat out")
	flags.BoolVar(&f.o.AllowEvicted, "allow-evicted", false, "the index is bounded: accept answers below the model")
	timeoutFlag(flags, &f.o.Timeout, 10*time.Second, "")
	jsonFlag(flags, &f.json)
	serverFlags(flags, &f.server)
	_ = cmd.MarkFlagRequired("trace") // fails for an unknown flag only
	return cmd
}

// replay runs the command and prints the report, be it a partial one.
func (a *app) replay(ctx context.Context, f replayFlags) error {
	if f.connections < 1 {
		return cli.Usagef("%d connections; give 1 or more", f.connections)
	}
	f.o.OnNote = func(text string) { fmt.Fprintf(a.stderr, "hitbench: note: %s\n", cli.Printable(text)) }
	o, total, err := f.options(ctx)
	if err != nil {
		return err
	}
	address, secure, err := a.server(&f.server)
	if err != nil {
		return err
	}
	conns, err := dialAll(ctx, a.dial, address, secure, f.connections, o.Timeout)
	if err != nil {
		return err
	}
	defer closeAll(conns)
	if f.o.BlockSize == 0 {
		pool, err := learnPool(ctx, conns[0], o.Timeout)
		if err != nil {
			return err
		}
		o.BlockSize, o.LeavesLast = pool.blockSize, pool.leavesLast
	}
	report, err := a.watchReplay(ctx, o, conns, total)
	return a.finish(report, f.json, err, answers{report.Wrong, report.Refused, report.Requests})
}

// learnPool asks the server for its pool, for at most timeout.
func learnPool(ctx context.Context, c conn, timeout time.Duration) (serverPool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	pool, err := c.learn(ctx)
	if err == nil && workload.BlockTokens%pool.blockSize != 0 {
		err = measure.BadOptions("a hash covers %d tokens at the server; a trace needs a number that divides %d", pool.blockSize, workload.BlockTokens)
	}
	if err != nil {
		return pool, fmt.Errorf("asking for the block size: %w", err)
	}
	return pool, nil
}

// options returns what to replay, and how many requests that makes. A bad trace shows before anything
// is stored.
func (f replayFlags) options(ctx context.Context) (o replay.Options, total int, err error) {
	o = f.o
	info, err := os.Stat(f.trace)
	switch {
	case err != nil:
		return o, 0, fmt.Errorf("%w: %w", workload.ErrTrace, err)
	case !info.Mode().IsRegular(): // each connection reads it from the start
		return o, 0, fmt.Errorf("%w: %s is no regular file; name a file of JSON lines, plain or gzip", workload.ErrTrace, f.trace)
	}
	o.Trace = workload.Trace(f.trace)
	if o.BlockSize == 0 { // until the server is asked; the number of requests is the same
		o.BlockSize = workload.BlockTokens
	}
	if err := o.Validate(); err != nil {
		return o, 0, err
	}
	n, err := o.CountRequests(ctx)
	return o, n * f.connections, err
}

// watchReplay replays with a line that says how it goes, and describes the first problems.
func (a *app) watchReplay(ctx context.Context, o replay.Options, conns []conn, total int) (replay.Report, error) {
	targets := make([]replay.Target, len(conns))
	for i, c := range conns {
		targets[i] = c
	}
	return watch(a, func(p *progress) (replay.Report, error) {
		var done atomic.Int64
		o.OnRequest = func(at time.Duration) {
			p.status("replay", replayStatus(done.Add(1), total, at))
		}
		o.OnProblem = func(problem error) {
			kind := "refused"
			if _, wrong := errors.AsType[*replay.WrongError](problem); wrong {
				kind = "wrong"
			}
			p.problem(kind, problem.Error())
		}
		return replay.Run(ctx, o, targets...)
	})
}

// replayStatus says how many requests are done, and where in the trace a replay is, in hours, minutes
// and seconds.
func replayStatus(done int64, total int, at time.Duration) string {
	text := fmt.Sprintf("replay: %d of %d", done, total)
	if at == 0 {
		return text
	}
	s := int(at.Seconds())
	return text + fmt.Sprintf(", at %d:%02d:%02d", s/3600, s/60%60, s%60)
}
