package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitline/hitline/backend/redis"
	"github.com/hitline/hitline/bench/compare"
	"github.com/hitline/hitline/bench/holders"
	"github.com/hitline/hitline/bench/vllm"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// compareFlags are the flags of hitbench compare; written by cobra.
type compareFlags struct {
	o       compare.Options
	rotate  int64 // MiB
	missAt  string
	cores   coresFlags
	json    bool
	vllm    vllm.Options
	holders holders.Options
}

// rawServer is the hidden command that is the rival which looks nothing up.
const rawServer = "raw-server"

// compareCommand returns the command.
func (a *app) compareCommand() *cobra.Command {
	var f compareFlags
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Measure the same lookups at hitline and at its rivals",
		Long: `Measure the round trip of the same lookups at hitline and at what a user would
otherwise take: a Python set of the store's keys behind ZeroMQ, as engines have
it, and one of the bare hashes; Redis and Valkey, by SMISMEMBER on a set and by
pipelined EXISTS; and, as the least there can be, raw: a server on a socket that
reads as many bytes and looks nothing up.

Each is asked by bytes made before, on a raw socket, which shows the server and
not a client's library. A ratio above 1 says that the rival takes longer. The
column zmtp is the ratio to hitline over ZeroMQ, and "to raw" that to raw in the
same rounds. "cpu us" is the CPU time of the server for a request.

All servers are started here, new ones for each number of hashes, and stopped.
Programs are looked for beside this one, then on PATH. Missing rivals are
skipped and reported, as are those that would not fit into memory; with --only
they are errors. The servers have half of the cores, the client one of the
others. On a machine of two cores they have one, which is hard on a server with
several threads, such as pyzmq's.

One client asks, one request at a time, and every answer is checked. Requests
rotate over 20 chains or more, and over more than --rotate MiB, so that none is
still in a cache; each that misses asks for another absent hash. The same
--seed sends the same requests to all. Percentiles are of all requests of all
rounds; a ratio is the median of the rounds' ratios of medians, with the lowest
and the highest. Interrupted, it reports the numbers of hashes that are done.

With --vllm RELEASE the only rival is that release's own lookup client and
server. Both are asked from Python, as an engine asks, over one Mooncake master
in turn, lookup by lookup, each for keys of its own: of prompts that are stored
whole, in part, or without their first block. They are asked for with nothing
remembered and again, and so are prompts that grow. "bytes" is the master's own
time for the keys. Flags for other rivals, cores and hits do not go with it.
Python needs
    python3 -m pip install pyzmq mooncake-transfer-engine-non-cuda

With --holders N the rivals are the indexes of routers, llm-d's and Dynamo's:
which of N engines has the longest prefix of a prompt? Package fleet, in this
process, and the others, in theirs (make rivals builds them), are asked query by
query in turn on one core, or on --client-cores, without a network. A ratio is
how many times as long as fleet the rival takes. All answers are compared with
what was stored. Prompts share system prompts and, by Zipf's law, prefixes:
"hit" is one that some engine has whole, "miss" one that nobody has from some
block on, "shared" one that all have whole. --only fleet measures it alone.

Linux only. Leave the machine alone while it runs.

Exit codes: 0 every answer was right; 1 one was wrong or refused, or the run was
interrupted; 2 wrong usage; 3 a server did not start, or was lost.`,
		Example: "  hitbench compare\n  hitbench compare --hashes 512 --rounds 3 --json",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			changed := cmd.Flags().Changed
			if changed("vllm") { // also if it is empty, which is an error
				return a.compareVLLM(cmd.Context(), f, changed)
			}
			if err := refuse(changed, "--%s needs --vllm", "tp", "store-keys", "grouped", "held-hashes", "hybrid-hashes", "before", "mooncake-master"); err != nil {
				return err
			}
			if changed("holders") {
				return a.compareHolders(cmd.Context(), f, changed)
			}
			if err := refuse(changed, "--%s needs --holders", "queries"); err != nil {
				return err
			}
			return a.compare(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntSliceVar(&f.o.Hashes, "hashes", []int{64, 512, 8192, 131072}, "`hashes` of a lookup, a number or a list, one after the other (with --vllm 16,1875, with --holders 512,8192)")
	replaceList(flags, "hashes")
	durationFlag(flags, &f.o.TimePerRival, 500*time.Millisecond, ": each rival at each number of hashes, about (with --vllm all sides of a row, 4s)")
	entriesFlag(flags, &f.o.Entries, 0, " for each number of hashes; --rotate needs 2 million (with --holders in all, 1 million)")
	flags.IntVar(&f.o.Rounds, "rounds", 5, "rounds, over which figures are medians")
	requestsFlag(flags, &f.o.Requests, " to each rival in a round; 0 for what --duration is enough for")
	flags.IntVarP(&f.o.Pipeline, "pipeline", "P", 0, "requests under way in further rounds that measure requests a second; 0 for none")
	seedFlag(flags, &f.o.Seed, 1)
	missFlags(flags, &f.o.HitShare, &f.missAt, 1)
	flags.Int64Var(&f.rotate, "rotate", 64, "`MiB` that the requests of each number of hashes exceed together; an index holds as many")
	blockSizeFlag(flags, &f.o.BlockSize, 16, "")
	f.cores.add(flags, " (default one of half of them)", " (default the other half)")
	timeoutFlag(flags, &f.o.Timeout, 20*time.Second, " (with --vllm 3m)")
	jsonFlag(flags, &f.json)
	cli.FlagGroup(flags, "Rivals", func(group *pflag.FlagSet) {
		group.StringSliceVar(&f.o.Only, "only", nil, "`rivals` to measure beside hitline, a list (default all that are here)")
		hitlineFlag(group, &f.o.Hitline)
		group.StringVar(&f.o.Python, "python", "", "`path` of a Python with pyzmq, with --vllm also with Mooncake (default python3)")
		group.StringVar(&f.o.RedisServer, "redis-server", "", "`path` of redis-server")
		group.StringVar(&f.o.ValkeyServer, "valkey-server", "", "`path` of valkey-server")
	})
	addVLLM(flags, &f.vllm)
	addHolders(flags, &f.holders)
	completeMissAt(cmd)
	cli.Complete(cmd, "only", compare.Rivals()...)
	return cmd
}

// rawServerCommand returns the command that compare runs as the rival raw.
func (a *app) rawServerCommand() *cobra.Command {
	return &cobra.Command{
		Use: rawServer + " BYTES", Short: "Answer 4 bytes for each BYTES bytes", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			size, err := strconv.Atoi(args[0])
			if err != nil || size < 1 {
				return cli.Usagef("%q is no number above 0", args[0])
			}
			return compare.ServeRaw(a.stderr, size)
		},
	}
}

// options returns those of the flags.
func (f compareFlags) options() (o compare.Options, err error) {
	o = f.o
	o.Rotate, o.MissAt = bytesOf(f.rotate), workload.MissAt(f.missAt)
	if o.ClientCores, o.ServerCores, err = f.cores.parse(); err != nil {
		return o, err
	}
	if err := o.Validate(); err != nil {
		return o, err
	}
	self, err := os.Executable()
	if err != nil {
		return o, fmt.Errorf("cannot tell where this program is: %w", err)
	}
	o.RawServer = []string{self, rawServer}
	o.Hitline, err = findHitline(o.Hitline)
	return o, err
}

// compare runs the command and prints the report.
func (a *app) compare(ctx context.Context, f compareFlags) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	redis.DiscardDriverLog() // what it logs is in its errors
	report, err := watch(a, func(p *progress) (compare.Report, error) {
		o.OnStep, o.OnNote = p.step, p.note
		return compare.Run(ctx, o)
	})
	if err != nil && len(report.Rows) == 0 {
		return err
	}
	return a.finish(report, f.json, err, answers{wrong: int64(report.Wrong)})
}

// bytesOf returns the bytes of a number of MiB. One beyond all bounds stays beyond them: its bytes
// would overflow.
func bytesOf(mib int64) int64 { return max(-1, min(mib, 1<<40)) << 20 }
