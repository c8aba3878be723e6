package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/replay"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/cmd/internal/connectflags"
	"github.com/hitline/hitline/lookup/client"
)

// replayFlags are the flags of hitbench replay; written by cobra.
type replayFlags struct {
	o      replay.Options // all but its trace
	trace  string
	json   bool
	server connectflags.Flags
}

// replayCommand returns the command.
func (a *app) replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay --trace FILE",
		Short: "Replay a recorded trace and check every answer",
		Long: `Replay a trace in the Mooncake format (JSON lines with hash_ids). Each request
looks up all of its blocks, checks the answer against a model, and then stores
the blocks. Begin with a fresh server or a reset one, whose pool has one
full-attention group.

Each request follows the answer to the one before.

Exit codes: 0 every answer was right; 1 one was wrong or refused, or the replay
was interrupted; 2 wrong usage or a bad trace; 3 no connection, or it was lost.`,
		Example: "  hitbench replay --trace trace.jsonl",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.replay(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.trace, "trace", "", "`file` of a trace, plain or gzip")
	flags.IntVarP(&f.o.Requests, "requests", "n", 0, "`number` of requests, the first ones; 0 for all")
	flags.BoolVar(&f.o.AllowEvicted, "allow-evicted", false, "the index is bounded: accept answers below the model")
	timeoutFlag(flags, &f.o.Timeout, 10*time.Second, "")
	cli.JSONFlag(flags, &f.json)
	serverFlags(flags, &f.server)
	_ = cmd.MarkFlagRequired("trace") // fails for an unknown flag only
	return cmd
}

// replay runs the command and prints the report, be it a partial one.
func (a *app) replay(ctx context.Context, f replayFlags) error {
	o := f.o
	o.Trace, o.BlockSize = workload.Trace(f.trace), workload.BlockTokens // until the server is asked
	if err := o.Validate(); err != nil {
		return err
	}
	info, err := os.Stat(f.trace)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file; name a file of JSON lines, plain or gzip", f.trace)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", workload.ErrTrace, err)
	}
	total, err := o.CountRequests(ctx) // a bad trace shows before anything is stored
	if err != nil {
		return err
	}
	address, secure, err := a.server(&f.server)
	if err != nil {
		return err
	}
	target, pool, err := connect(ctx, address, secure, o.Timeout)
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }() // nobody waits on it
	o.BlockSize, o.LeavesLast = pool.BlockSize, pool.LeavesLast
	report, err := a.watchReplay(ctx, o, target, total)
	return a.finish(report, f.json, err, answers{report.Wrong, report.Refused, report.Requests})
}

// connect connects to a server and asks it for its pool, for at most timeout. The caller closes the
// connection.
func connect(ctx context.Context, addr string, secure connectflags.Connection, timeout time.Duration) (c clientConn, pool workload.Pool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if c.Client, err = client.Dial(ctx, addr, secure.Options()...); err != nil {
		return c, pool, dialError(addr, fmt.Errorf("connecting to %s: %w", addr, err))
	}
	pool, err = c.learn(ctx)
	if err == nil && workload.BlockTokens%pool.BlockSize != 0 {
		err = measure.BadOptions("a hash covers %d tokens at the server; a trace needs a number that divides %d", pool.BlockSize, workload.BlockTokens)
	}
	if err != nil {
		_ = c.Close()
		return c, pool, dialError(addr, fmt.Errorf("asking for the block size: %w", err))
	}
	return c, pool, nil
}

// watchReplay replays with a line that says how it goes, and describes the first problems.
func (a *app) watchReplay(ctx context.Context, o replay.Options, target replay.Target, total int) (replay.Report, error) {
	return watch(a, func(p *progress) (replay.Report, error) {
		done := 0
		o.OnRequest = func() {
			done++
			p.step("replay", done, total)
		}
		o.OnProblem = func(problem error) {
			kind := "refused"
			if _, wrong := errors.AsType[*replay.WrongError](problem); wrong {
				kind = "wrong"
			}
			p.problem(kind, problem.Error())
		}
		return replay.Run(ctx, o, target)
	})
}
