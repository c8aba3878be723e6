package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitline/hitline/bench/load"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/bench/workload"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/cmd/internal/connectflags"
)

// runFlags are the flags of hitbench run; written by cobra.
type runFlags struct {
	o             load.Options
	connections   []int
	requests      int
	workload      string
	hashes        string
	conversations workload.ConversationOptions
	pool          poolFlags
	start         bool
	hitline       string
	loops         []int
	sweep         bool
	rounds        int
	cores         coresFlags
	hdr           string
	secure        connectflags.Flags
	json          bool
}

// The workloads.
const (
	randomChains  = "random"
	conversations = "conversations"
)

// sweepEntries is what a sweep stores by default, for each of its points anew.
const sweepEntries = 100_000

// runCommand returns the command.
func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Put load on a server, measure it and check every answer",
		Long: `Put load on a server, measure it and check every answer. What is looked up is
stored first, under a salt of this run, so the server need not be empty; it must
have room for it. It stays there: with --start it goes with the server, at yours
hitline reset removes it, with all else in the pool.

By default each connection sends its next request when an answer has come (a
closed loop). It asks nothing while it waits, so latency is corrected to what a
clock would see that asks as often as the median takes. With --rate requests
fall due whether or not answers come, and latency counts from then (an open
loop); what could not be sent at all counts as what it had waited by the end,
and figures that hang on it have a ≥. Several rates are measured one after the
other, each with figures of its own.

--workload random looks up chains of random hashes; with --stores and --evicts
connections also change chains of their own, and look each up afterwards.
--workload conversations is the load of schedulers: each connection is an
engine. Its prompts begin with one of --prefixes that all engines share, chosen
by Zipf's law, and grow turn by turn; half of a conversation's --hashes are its
prefix. When a lookup is answered, the engine stores what is new; when a
conversation has had its --turns, the engine evicts it and begins another. A
--rate is one of prompts then, while "a second" also counts stores and evicts,
about twice as many; --arrivals are poisson.

"a second" counts what was answered while measuring, "unsent" what fell due then
and was never sent. At a rate far above what the server carries all of it may be
unsent, as what fell due during the warm-up comes first. In brackets after p50
are the least and the largest p50 of stretches of a second or less, never
corrected. "spread" is the standard deviation of their requests a second over
the mean. Percentiles are exact to 0.1 %.

Several numbers of --connections or --loops make a sweep, which --start serves:
each point is measured once in every round, in an order that is drawn for the
round, and figures are medians of the rounds. For each number of loops the best
throughput is compared with that of the fewest loops; the slope is what a
further loop adds, fitted, and is 1 at best. It takes two cores for the server,
and so three in all. --sweep goes over the usual numbers in about 40 s.

Where both sides run moves the figures severalfold. With --start each gets half
of the cores, unless --client-cores or --server-cores is given: then a side
without one gets any. To measure a server of your own, start it on some cores
(taskset) and give --client-cores the others.

What must be hit is computed from the server's pool. One full-attention group
needs no flags; describe any other by --config or --groups.

At a tls:// address goroutines of this program carry all bytes, which takes time
that is measured as the server's.

Linux only. The first wrong or refused answers are described on standard error.

Exit codes: 0 every answer was right; 1 one was wrong or refused, or the run was
interrupted; 2 wrong usage; 3 no connection, it was lost, or an answer was late.`,
		Example: `  hitbench run --connect 127.0.0.1:7557 -c 16 -d 30
  hitbench run --start -c 16 -d 5
  hitbench run --start -c 8 -P 16 --hashes 64-4096 -d 5
  hitbench run --start -c 16 -r 1000,2000,4000 -d 2 --json
  hitbench run --start -c 16 --workload conversations -r 5000 -d 5
  hitbench run --start -c 1,64 --loops 1,2 --rounds 3 -d 500ms`,
		Args: cli.NoArgs,
	}
	f.addFlags(cmd.Flags())
	cli.Complete(cmd, "workload", randomChains, conversations)
	cli.Complete(cmd, "arrivals", load.Even, load.Poisson)
	cli.Complete(cmd, "dialect", wire.Raw, wire.ZMTP)
	completeMissAt(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.load(cmd.Context(), f, cmd.Flags())
	}
	return cmd
}

func (f *runFlags) addFlags(flags *pflag.FlagSet) {
	flags.SortFlags = false
	connectionsListFlag(flags, &f.connections, []int{1}, ", which makes a sweep")
	pipelineFlag(flags, &f.o.Pipeline, 1, "")
	durationFlag(flags, &f.o.Duration, 10*time.Second, ", each rate or point (default 10s; of a sweep so that all takes about 40 s)")
	requestsFlag(flags, &f.requests, 0, " to measure, each rate or point, instead of --duration")
	flags.DurationVar(&f.o.Warmup, "warmup", time.Second, "time before that, not measured (default 1s; of a sweep by the connections)")
	ofSweep(flags, "duration", "warmup")
	rateFlag(flags, &f.o.Rates, "; none: a closed loop")
	flags.StringVar((*string)(&f.o.Arrivals), "arrivals", "", "when requests of --rate fall due: even or poisson (default even; of conversations poisson)")
	timeoutFlag(flags, &f.o.Timeout, 10*time.Second, "")
	seedFlag(flags, &f.o.Seed, 0, "")
	hdrFlag(flags, &f.hdr)
	jsonFlag(flags, &f.json)
	cli.FlagGroup(flags, "Requests", f.addRequestFlags)
	cli.FlagGroup(flags, "Server that is started", func(group *pflag.FlagSet) {
		group.BoolVar(&f.start, "start", false, "start a server for this run, and stop it at the end")
		group.IntSliceVar(&f.loops, "loops", nil, "event `loops` of the server, a number or a list, which makes a sweep (default as the server has)")
		replaceList(group, "loops")
		group.BoolVar(&f.sweep, "sweep", false, "sweep over 1, 2, 4, … 4096 connections and 1, 2, 4, … loops; implies --start")
		roundsFlag(group, &f.rounds, 3, ", of a sweep")
		hitlineFlag(group, &f.hitline, "")
		f.cores.add(group, " (default with --start half of them, else any)", " (default the other half)")
	})
	serverFlags(flags, &f.secure)
}

func (f *runFlags) addRequestFlags(group *pflag.FlagSet) {
	group.StringVar(&f.workload, "workload", randomChains, "what is asked: random or conversations")
	group.StringVar(&f.hashes, "hashes", "64", "hashes of a lookup, or of a conversation: a `number`, LEAST-MOST, or trace:FILE, the lengths of a trace")
	entriesFlag(group, &f.o.Entries, 1_000_000, fmt.Sprintf(" (default 1000000; of a sweep %d)", sweepEntries))
	missFlags(group, &f.o.HitShare, (*string)(&f.o.MissAt), 0.9, " (default 0.9; of a sweep 1)")
	ofSweep(group, "entries", "hit-share")
	group.Float64Var(&f.o.Stores, "stores", 0, "share of operations that store a chain")
	group.Float64Var(&f.o.Evicts, "evicts", 0, "share of operations that evict one; a chain is stored where there is none")
	group.IntVar(&f.conversations.Prefixes, "prefixes", 0, "prefixes of conversations (default as many as --entries needs)")
	group.Float64Var(&f.conversations.Zipf, "zipf", 1.1, "`exponent` of the popularity of prefixes, above 1")
	group.IntVar(&f.conversations.Turns, "turns", 8, "turns of a conversation")
	group.StringVar((*string)(&f.o.Dialect), "dialect", "raw", "dialect: raw or zmtp")
	group.BoolVar(&f.o.Reset, "reset", false, "have the server forget everything first")
	f.pool.addFlags(group)
}

// load runs the command and prints the report, be it a partial one.
func (a *app) load(ctx context.Context, f runFlags, flags *pflag.FlagSet) error {
	if err := f.fill(ctx, a, flags); err != nil {
		return err
	}
	if f.isSweep(flags) {
		return a.loadSweep(ctx, f, flags)
	}
	f.o.Connections = f.connections[0]
	if err := f.o.Validate(); err != nil {
		return err
	}
	hdr, err := a.openHDR(f.hdr, "")
	if err != nil {
		return err
	}
	defer hdr.close()
	if err := f.chooseCores(); err != nil {
		return err
	}
	if f.start {
		o, err := f.server()
		if err != nil {
			return err
		}
		server, err := load.StartServer(ctx, o)
		if err != nil {
			return err
		}
		defer server.Stop()
		f.o.Connect = server.Addr()
	}
	report, err := a.watchLoad(ctx, f.o)
	if len(report.Steps) == 0 && err != nil { // nothing was measured
		return err
	}
	return a.finish(report, f.json, cmp.Or(err, hdr.write(report.WriteHDR)), answers{report.Wrong, report.Refused, report.Requests})
}

// isSweep tells whether several points are measured.
func (f *runFlags) isSweep(flags *pflag.FlagSet) bool {
	return f.sweep || len(f.connections) > 1 || len(f.loops) > 1 || flags.Changed("rounds")
}

// loadSweep measures several points.
func (a *app) loadSweep(ctx context.Context, f runFlags, flags *pflag.FlagSet) error {
	for _, name := range []string{"rate", "hdr", "reset"} {
		if flags.Changed(name) {
			return cli.Usagef("--%s does not go with a sweep over connections and loops", name)
		}
	}
	if !f.start {
		return cli.Usagef("a sweep over connections and loops starts its servers; add --start, or give one number of --connections")
	}
	o := load.SweepOptions{Load: f.o, Loops: f.loops, Connections: f.connections, Rounds: f.rounds}
	if f.sweep && !flags.Changed("connections") {
		o.Connections = nil
	}
	for flag, unset := range map[string]func(){
		"duration": func() { o.Load.Duration = 0 }, "warmup": func() { o.Load.Warmup = 0 },
		"entries": func() { o.Load.Entries = sweepEntries }, "hit-share": func() { o.Load.HitShare = 1 },
	} {
		if !flags.Changed(flag) {
			unset()
		}
	}
	if err := o.Validate(); err != nil {
		return err
	}
	if err := f.chooseCores(); err != nil {
		return err
	}
	o.Load.ClientCores, o.Load.ServerCores = f.o.ClientCores, f.o.ServerCores
	if !f.sweep && len(o.Loops) == 0 {
		o.Loops = []int{max(len(f.o.ServerCores), 1)} // what a server on them has
	}
	var err error
	if o.Server, err = f.server(); err != nil {
		return err
	}
	report, err := watch(a, func(p *progress) (load.SweepReport, error) {
		o.OnStep, o.OnNote = p.step, p.note
		o.Load.OnProblem = p.loadProblem
		return load.Sweep(ctx, o)
	})
	if len(report.Points) == 0 && err != nil {
		return err
	}
	return a.finish(report, f.json, err, answers{wrong: report.Wrong, refused: report.Refused})
}

// fill makes options of those flags that are text.
func (f *runFlags) fill(ctx context.Context, a *app, flags *pflag.FlagSet) error {
	f.start = f.start || f.sweep
	if err := f.checkFlags(flags); err != nil {
		return err
	}
	if f.requests > 0 {
		f.o.Requests, f.o.Duration = int64(f.requests), 0
	}
	var secure connectflags.Connection // of --start: none
	if !f.start {
		var err error
		if f.o.Connect, secure, err = a.server(&f.secure); err != nil {
			return err
		}
		f.o.Token, f.o.TLS = secure.Token, secure.TLS
	}
	if f.workload == conversations {
		f.o.Conversations = &f.conversations
	}
	var err error
	if f.o.Pool, err = f.pool.pool(); err != nil {
		return err
	}
	f.o.Hashes, err = a.lengths(ctx, f.hashes, f.o.Pool)
	return err
}

// checkFlags refuses flags that do not go together, which options cannot tell.
func (f *runFlags) checkFlags(flags *pflag.FlagSet) error {
	if f.workload != randomChains && f.workload != conversations {
		return cli.Usagef("--workload %q; write %s or %s", f.workload, randomChains, conversations)
	}
	if f.start {
		if flags.Changed("connect") {
			return cli.Usagef("--start and --connect name two servers; give one")
		}
		if given := f.secure.Given(); given != "" {
			return cli.Usagef("--%s is for --connect; a server of --start needs none", given)
		}
	}
	for _, group := range []struct {
		needs string
		given bool
		names []string
	}{
		{"--start", f.start, []string{"hitline", "server-cores", "loops"}},
		{"--workload " + conversations, f.workload == conversations, []string{"prefixes", "zipf", "turns"}},
		{"--workload " + randomChains, f.workload == randomChains, []string{"hit-share", "miss-at", "stores", "evicts"}},
		{"--rate", len(f.o.Rates) > 0, []string{"arrivals"}},
	} {
		for _, name := range group.names {
			if !group.given && flags.Changed(name) {
				return cli.Usagef("--%s only has a meaning with %s", name, group.needs)
			}
		}
	}
	if f.hdr != "" && len(f.o.Rates) > 1 {
		return cli.Usagef("--hdr takes the latencies of one rate; give one, not %d", len(f.o.Rates))
	}
	for _, name := range []string{"pipeline", "entries", "timeout", "prefixes", "zipf", "turns", "requests", "duration"} {
		if text := flags.Lookup(name).Value.String(); flags.Changed(name) && (text == "0" || text == "0s") { // not the library's default
			return cli.Usagef("--%s %s; give more than 0", name, text)
		}
	}
	if slices.Contains(f.connections, 0) || len(f.connections) == 0 {
		return cli.Usagef("--connections %v; give more than 0", f.connections)
	}
	if f.requests < 0 {
		return cli.Usagef("--requests %d; give more than 0", f.requests)
	}
	if len(f.loops) == 1 && f.loops[0] < 1 { // those of a sweep are its options
		return cli.Usagef("--loops %v; give more than 0", f.loops)
	}
	if f.requests != 0 && flags.Changed("duration") {
		return cli.Usagef("--requests and --duration both say when to end; give one")
	}
	return nil
}

// chooseCores chooses the cores of both sides. With --start each gets half of them unless
// a flag says otherwise; then a side without a flag gets any.
func (f *runFlags) chooseCores() (err error) {
	if f.start && !f.cores.given() {
		f.o.ClientCores, f.o.ServerCores, err = load.Halves()
		return err
	}
	f.o.ClientCores, f.o.ServerCores, err = f.cores.parse()
	if f.cores.client == process.AnyCore { // which is not the same as to be kept to all
		f.o.ClientCores = nil
	}
	if f.cores.server == process.AnyCore {
		f.o.ServerCores = nil
	}
	return err
}

// server returns what --start starts.
func (f *runFlags) server() (o load.ServerOptions, err error) {
	o = load.ServerOptions{
		BlockTokens: f.pool.blockSize, Config: f.pool.config, Groups: f.pool.groups,
		Entries: 2 * f.o.Entries, Connections: f.o.Connections, Cores: f.o.ServerCores, Timeout: f.o.Timeout,
	}
	if len(f.loops) > 0 {
		o.Loops = f.loops[0]
	}
	o.Hitline, err = findHitline(f.hitline)
	return o, err
}

// watchLoad runs with a line that says how it goes, and describes the first problems.
func (a *app) watchLoad(ctx context.Context, o load.Options) (load.Report, error) {
	return watch(a, func(p *progress) (load.Report, error) {
		o.OnPhase = func(name string, total int) { p.setStatus(fmt.Sprintf("%s: %d", name, total)) }
		o.OnSample = func(s load.Sample) {
			p.setStatus(fmt.Sprintf("%5.0f s  %9.0f requests/s  p50 %.1f us  p99 %.1f us  wrong %d",
				s.Elapsed, s.RequestsPerSecond, s.P50us, s.P99us, s.Wrong+s.Refused))
		}
		o.OnProblem = p.loadProblem
		return load.Run(ctx, o)
	})
}

// loadProblem describes a problem of a run, if it is one of the first of its kind.
func (p *progress) loadProblem(problem *load.Problem) {
	kind := "wrong"
	if problem.Refused {
		kind = "refused"
	}
	p.problem(kind, problem.Error())
}
