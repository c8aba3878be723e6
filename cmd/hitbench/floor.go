package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/bench/compare"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// floorBatch is the default of Options.Batch in floor: with small batches both servers have the
// same noise.
const floorBatch = 64

// floorCommand returns the command: compare with the raw socket alone, and other defaults.
func (a *app) floorCommand() *cobra.Command {
	var f compareFlags
	cmd := &cobra.Command{
		Use:   "floor",
		Short: "Measure round trips beside the least a server on a socket needs",
		Long: `Measure the round trip of a lookup at hitline beside that of the floor: a
blocking raw-socket server that only reads the same bytes and answers 4. Both
servers are started here and stopped at the end; the client is pinned to one
core and they to another. Requests rotate over chains that, in requests and
index, together exceed 64 MiB, for most a last-level cache; --rotate changes
that. A tenth of the chains miss, and every answer is checked.

It is a short form of
  hitbench compare --only floor --ways prepared --hashes 512 --duration 2s
    --rotate 32 --entries 1000000 --hit-share 0.9 --batch 64 --idle
    --timeout 10s
with one core for the servers, and prints the same report. The figure to look at
is "to the floor": the median of the rounds' ratios of medians to the floor's,
with the least and the largest. Percentiles are of the round trips of all
rounds.

--pipeline adds rounds with many requests under way, and their number a second
at either server.

Linux only. Leave the machine alone while it runs.

Exit codes: 0 every answer was right; 1 one was wrong or refused, or the run was
interrupted; 2 wrong usage; 3 a server did not start, or was lost.`,
		Example: "  hitbench floor --hashes 64,8192\n  hitbench floor --pipeline 64",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.o.Only, f.o.Ways = []string{compare.Floor}, []string{compare.Prepared}
			f.o.Batch, f.o.Idle, f.o.OneServerCore = floorBatch, true, true
			return a.compare(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	hashesFlag(flags, &f.o.Hashes, []int{512}, ", one after the other")
	durationFlag(flags, &f.o.TimePerRival, 2*time.Second, ": each server at each number of hashes, about")
	entriesFlag(flags, &f.o.Entries, 1_000_000, "; more are stored if the chains need it")
	f.addLookups(flags, 0.9, 32)
	hitlineFlag(flags, &f.o.Hitline, "")
	jsonFlag(flags, &f.json)
	f.addPlaces(flags, "one that is no hyper-thread of the client's", 10*time.Second, "")
	completeMissAt(cmd)
	return cmd
}

// floorServerCommand returns the command that is the floor.
func (a *app) floorServerCommand() *cobra.Command {
	return serverCommand(floorServer+" BYTES [BUFFER]", "Answer 4 bytes for each BYTES bytes", compare.ReadBuffer,
		func(size, buffer int) error { return compare.ServeFloor(a.stderr, size, buffer) })
}
