package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitline/hitline/bench/floor"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/cmd/internal/connectflags"
	"github.com/hitline/hitline/lookup/client"
)

// floorFlags are the flags of hitbench floor; written by cobra.
type floorFlags struct {
	o       floor.Options
	secure  connectflags.Flags
	dialect string
	cache   int64 // MiB
	json    bool
}

// floorServer is the hidden command that is the server to compare with.
const floorServer = "floor-server"

// floorCommand returns the command.
func (a *app) floorCommand() *cobra.Command {
	var f floorFlags
	cmd := &cobra.Command{
		Use:   "floor",
		Short: "Measure round trips beside the least a server on a socket needs",
		Long: `Measure the round trip of a lookup at hitline beside that of a blocking
raw-socket server that only reads the same bytes and answers 4. Both servers are
started here and stopped at the end; the client is pinned to one core and they
to another. Requests rotate over chains that together exceed the last-level
cache, a tenth of them cut at a missing block, and every answer is checked.
Percentiles are those of the round trips of all rounds; a ratio is the median of
the rounds' ratios, with the least and the largest. --pipeline adds rounds with
many requests in flight, and their number a second at either server. --anchored
asks hitline by a few of the hashes, while the raw-socket server still reads all
of them.

Linux only. Leave the machine alone while it runs.

Exit codes: 0 every answer was right; 1 one was wrong or refused, or the run was
interrupted; 2 wrong usage; 3 a server did not start, or was lost.`,
		Example: "  hitbench floor\n  hitbench floor --hashes 8192 --anchored --json",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.floor(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVar(&f.o.Hashes, "hashes", 512, "hashes a request")
	flags.IntVar(&f.o.Entries, "entries", 1_000_000, "hashes in the index; more are stored if the chains need it")
	flags.IntVar(&f.o.Rounds, "rounds", 5, "rounds")
	flags.IntVarP(&f.o.Requests, "requests", "n", 0, "requests a round and server; 0 chooses by their size")
	flags.IntVarP(&f.o.Pipeline, "pipeline", "P", 0, "requests in flight in further rounds; 0 for none")
	flags.BoolVar(&f.o.Anchored, "anchored", false, "ask hitline by anchors; half of the chains are cut at a random block")
	flags.StringVar(&f.dialect, "dialect", "raw", "dialect; only raw")
	flags.IntVar(&f.o.ClientCore, "client-core", 0, "core of the client, counted from 0 among those it may run on (default 0)")
	flags.IntVar(&f.o.ServerCore, "server-core", 1, "core of both servers, likewise")
	flags.StringVar(&f.o.Hitline, "hitline", "", "`path` of hitline (default beside this program, then on PATH)")
	flags.IntVar(&f.o.HashTokens, "hash-block-tokens", 16, "tokens that one hash covers, as the server has it")
	flags.Int64Var(&f.cache, "max-cache", 64, "`MiB` to take the last-level cache for at most; virtual machines report the host's")
	flags.Uint64Var(&f.o.Seed, "seed", 1, "of the requests; 0 for a random one, which the report has")
	flags.DurationVar(&f.o.Timeout, "timeout", 10*time.Second, "longest wait for a start, a connection or an answer")
	cli.FlagGroup(flags, "Connection", func(group *pflag.FlagSet) {
		group.StringVar(&f.o.Connect, "connect", "", "`address` of a server to measure instead of starting one")
		f.secure.Add(group)
	})
	flags.BoolVar(&f.json, "json", false, "print the report as one line of JSON")
	return cmd
}

// floorServerCommand returns the command that floor runs as the server.
func (a *app) floorServerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    floorServer + " BYTES [BUFFER]",
		Short:  "Answer 4 bytes for each so many bytes",
		Hidden: true,
		Args:   cobra.RangeArgs(1, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			numbers := [2]int{0, floor.ReadBuffer}
			for i, text := range args {
				n, err := strconv.Atoi(text)
				if err != nil || n < 1 {
					return cli.Usagef("%q is no size in bytes", text)
				}
				numbers[i] = n
			}
			return floor.ServeFloor(a.stderr, numbers[0], numbers[1])
		},
	}
}

// floor runs the command and prints the report.
func (a *app) floor(ctx context.Context, f floorFlags) error {
	if f.dialect != "raw" {
		return cli.Usagef("dialect %q; only raw is measured", f.dialect)
	}
	o := f.o
	o.MaxCache = f.cache << 20
	if err := o.Validate(); err != nil {
		return err
	}
	self, err := executable()
	if err != nil {
		return err
	}
	o.FloorServer = []string{self, floorServer}
	if o.Connect == "" {
		if o.Hitline, err = findHitline(o.Hitline, self); err != nil {
			return err
		}
	}
	var secure connectflags.Connection // of a server that is started here: none
	if o.Connect != "" {
		if o.Connect, secure, err = a.server(&f.secure); err != nil {
			return err
		}
		o.Token = secure.Token
	} else if given := f.secure.Given(); given != "" {
		return cli.Usagef("--%s is of no use without --connect", given)
	}
	o.Dial = func(ctx context.Context, addr string) (floor.Storer, error) {
		if o.Anchored {
			return dialAnchored(ctx, addr, secure, client.WithDialer(floor.DialBlocking(o.Timeout)))
		}
		return a.dial(ctx, addr, secure)
	}
	report, err := watch(a, func(p *progress) (floor.Report, error) {
		o.OnStep, o.OnNote = p.step, p.note
		return floor.Run(ctx, o)
	})
	if err != nil {
		return err
	}
	return a.finish(report, f.json, nil, answers{wrong: int64(report.Wrong)})
}

// executable returns the path of this program.
func executable() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cannot tell where this program is: %w", err)
	}
	return self, nil
}

// findHitline returns the path of the hitline binary: the one that was named, or
// that beside this program, or that on PATH.
func findHitline(named, self string) (string, error) {
	if named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", cli.Usagef("--hitline: %w", err)
		}
		return path, nil
	}
	beside := filepath.Join(filepath.Dir(self), "hitline")
	for _, name := range []string{beside, "hitline"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", cli.Usagef("there is no hitline at %s, nor on PATH; build it, or name it with --hitline", beside)
}
