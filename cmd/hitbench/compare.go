package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/hitline/hitline/backend/redis"
	"github.com/hitline/hitline/bench/compare"
	"github.com/hitline/hitline/bench/load"
	"github.com/hitline/hitline/cmd/internal/cli"
)

// compareFlags are the flags of hitbench compare; written by cobra.
type compareFlags struct {
	o       compare.Options
	seconds float64
	rotate  int64  // MiB
	cores   string // of the servers
	json    bool
	vllm    vllmFlags
	holders holdersFlags
}

// compareServer is the hidden command that is a Go map behind a socket.
const compareServer = "compare-server"

// compareCommand returns the command.
func (a *app) compareCommand() *cobra.Command {
	var f compareFlags
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Measure the same lookups at hitline and at its rivals",
		Long: `Measure the round trip of the same lookups at hitline and at what a user would
otherwise take: a Python set of the store's keys behind ZeroMQ, as engines have
it, and one of the bare hashes; a Go map behind ZeroMQ, and behind a plain
socket; Redis and Valkey, by SMISMEMBER on a set and by pipelined EXISTS;
Mooncake's batch existence call; and, as the least there can be, a raw-socket
server that looks nothing up.

Each rival is asked in two ways, and a ratio is to hitline asked in the same
way: prepared, by bytes made before on a raw socket, which shows the server;
and usual, by the client that its users have, whose work counts: lookup/client
for hitline, by anchors from 4,096 hashes on; pyzmq for what speaks ZeroMQ;
go-redis for Redis and Valkey. A ratio above 1 says that the rival takes longer.
The column zmtp is the ratio to hitline over ZeroMQ, asked by the same client.

All servers are started here, new ones for each number of hashes, and stopped.
The client has one core; the servers have all others but its hyper-threads. On
a machine of two cores they have one, which is hard on a server with several
threads, such as pyzmq's. As a client pyzmq has two threads on the client's one.

One client asks, one request at a time, and every answer is checked. Requests
rotate over 20 chains or more, and over more than --rotate MiB, so that none is
still in a cache; each that misses asks for another absent hash. The same
--seed sends the same requests to all. Percentiles are of all requests of all
rounds; a ratio is the median of the rounds' ratios of medians, with the least
and the largest. What is not on this machine, or would not fit its memory, is
left out, and the report says why; what is missing is an error with --only.

With --vllm RELEASE the only rival is that release's own lookup client and
server. Both are asked from Python, as an engine asks, over one Mooncake master
with keys of prompts that are stored whole, by half, or without their first
block. Flags for other rivals, cores and hits do not go with it. Python needs
    python3 -m pip install pyzmq mooncake-transfer-engine-non-cuda

With --holders N the only rival is llm-d's in-memory index: which of N engines
has the longest prefix of a prompt? Package fleet, in this process, and llm-d's
index, in hitbench-llmd, are asked in turn on one core (--client-core), without
a network. A ratio is how many times as long as fleet llm-d takes; "llm-d
lookup" is its lookup without the scorer, which alone tells no prefix. All
answers are compared with what was stored. Prompts share system prompts and, by
Zipf's law, prefixes: "hit" is one that some engine has whole, "miss" one that
nobody has from some block on, "shared" one that all have whole.

Linux only. Leave the machine alone while it runs.

Exit codes: 0 every answer was right; 1 one was wrong or refused, or the run was
interrupted; 2 wrong usage; 3 a server did not start, or was lost.`,
		Example: "  hitbench compare\n  hitbench compare --hashes 512 --rounds 3 --json",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("vllm") { // also if it is empty, which is an error
				return a.compareVLLM(cmd.Context(), f, cmd.Flags().Changed)
			}
			if err := unusedVLLM(cmd.Flags().Changed); err != nil {
				return err
			}
			if cmd.Flags().Changed("holders") {
				return a.compareHolders(cmd.Context(), f, cmd.Flags().Changed)
			}
			if err := unusedHolders(cmd.Flags().Changed); err != nil {
				return err
			}
			return a.compare(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntSliceVar(&f.o.Hashes, "hashes", []int{64, 512, 8192, 131072}, "hashes a request (with --vllm 16,256,1875,16384,131072, with --holders 512,8192)")
	flags.Float64Var(&f.seconds, "seconds", 0.5, "seconds for each rival and way at each number of hashes, about (with --vllm 3)")
	flags.IntVar(&f.o.Rounds, "rounds", 5, "rounds")
	flags.IntVar(&f.o.Entries, "entries", 0, "least number of hashes stored for each number of hashes; --rotate needs 2 million (with --holders in all, 1 million)")
	flags.Int64Var(&f.rotate, "rotate", 64, "`MiB` that the requests of each number of hashes exceed together")
	flags.Uint64Var(&f.o.Seed, "seed", 1, "of hashes, order and misses; 0 for a random one, which the report has")
	flags.Float64Var(&f.o.HitShare, "hit-share", 1, "share of the chains that hit whole")
	flags.StringVar(&f.o.MissAt, "miss-at", compare.MissRandom, "where the others miss: first, middle, tail or random")
	flags.StringSliceVar(&f.o.Only, "only", nil, "`rivals` to measure beside hitline; a list")
	flags.StringSliceVar(&f.o.Ways, "ways", nil, "ways to ask: prepared, usual (default both)")
	flags.StringVar(&f.o.Hitline, "hitline", "", "`path` of hitline (default beside this program, then on PATH)")
	flags.StringVar(&f.o.Python, "python", "", "`path` of a Python with pyzmq, with --vllm also with Mooncake (default python3 on PATH)")
	flags.StringVar(&f.o.GoMap, "gomap", "", "`path` of hitbench-gomap (default beside this program, then on PATH)")
	flags.StringVar(&f.o.RedisServer, "redis-server", "", "`path` of redis-server (default on PATH)")
	flags.StringVar(&f.o.ValkeyServer, "valkey-server", "", "`path` of valkey-server (default on PATH)")
	flags.StringVar(&f.o.MooncakeMaster, "mooncake-master", "", "`path` of mooncake_master; left out by default (with --vllm that of the Python)")
	flags.IntVar(&f.o.ClientCore, "client-core", -1, "core of the client (default the first it may run on)")
	flags.Lookup("client-core").DefValue = "0" // help does not show a zero
	flags.StringVar(&f.cores, "server-cores", "", "`list` of the servers' cores, such as 0,2-3 (default all but the client's and its hyper-threads)")
	flags.IntVar(&f.o.HashTokens, "hash-block-tokens", 16, "tokens that one hash covers")
	flags.DurationVar(&f.o.Timeout, "timeout", 20*time.Second, "longest wait for a start, a connection or an answer (with --vllm 3m)")
	flags.BoolVar(&f.json, "json", false, "print the report as one line of JSON")
	f.vllm.add(flags)
	f.holders.add(flags)
	return cmd
}

// compareServerCommand returns the command that compare runs as a server.
func (a *app) compareServerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    compareServer + " TOKENS",
		Short:  "Serve a Go map of hashes that cover so many tokens",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			tokens, err := strconv.Atoi(args[0])
			if err != nil || tokens < 1 {
				return cli.Usagef("%q is no number of tokens", args[0])
			}
			return compare.ServeMap(a.stderr, tokens)
		},
	}
}

// compare runs the command and prints the report.
func (a *app) compare(ctx context.Context, f compareFlags) error {
	o := f.o
	o.TimePerRival = time.Duration(f.seconds * float64(time.Second))
	o.Rotate = f.rotate << 20
	if f.cores != "" {
		var err error
		if o.ServerCores, err = load.ParseCores(f.cores); err != nil {
			return err
		}
	}
	if err := o.Validate(); err != nil {
		return err
	}
	self, err := executable()
	if err != nil {
		return err
	}
	if o.Hitline, err = findHitline(o.Hitline, self); err != nil {
		return err
	}
	if beside := filepath.Join(filepath.Dir(self), "hitbench-gomap"); o.GoMap == "" {
		if path, err := exec.LookPath(beside); err == nil {
			o.GoMap = path
		}
	}
	o.FloorServer = []string{self, floorServer}
	o.MapServer = []string{self, compareServer}
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
