package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hitline/hitline/bench/load"
	"github.com/hitline/hitline/bench/process"
	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/cmd/internal/cli"
	"github.com/hitline/hitline/cmd/internal/connectflags"
)

// runFlags are the flags of hitbench run; written by cobra.
type runFlags struct {
	o        load.Options
	requests int
	hashes   string
	pool     poolFlags
	start    bool
	hitline  string
	loops    int
	cores    coresFlags
	secure   connectflags.Flags
	json     bool
}

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
closed loop). It asks nothing while it waits, so a pause of the server is one
slow lookup: a closed loop tells what the server can carry, not what users see.
With --rate requests fall due whether or not answers come, and latency counts
from then (an open loop). What could not be sent counts as what it had waited by
the end, and figures that depend on it have a ≥. Several rates are measured one
after the other, each with figures of its own.

Chains of random hashes are looked up. With --stores and --evicts connections
also change chains of their own, and look each up afterwards.

round trip: latency in a closed loop, from request to answer. with stalls: that
in an open loop. requests/s: answered during the measurement. unsent: due in it
but not sent, because the server was overloaded. In brackets after p50: the
lowest and highest p50 of samples of a second or less. spread: the standard
deviation of the samples' requests a second, divided by the mean. Percentiles
are exact to 0.1 %.

Which cores both sides run on changes the figures severalfold. With --start each
gets half of them, or the others where only one of --client-cores and
--server-cores is given. To measure a server of your own, start it on some cores
(taskset) and give --client-cores the others.

What must be hit is computed from the server's pool, which it is asked for.

At a tls:// address goroutines of this program carry all bytes; the time that
takes is measured as the server's.

Linux only. The first wrong or refused answers are described on standard error.

Exit codes: 0 every answer was right; 1 one was wrong or refused, or the run was
interrupted; 2 wrong usage; 3 no connection, it was lost, or an answer was late.`,
		Example: `  hitbench run --connect 127.0.0.1:7557 -c 16 -d 30
  hitbench run --start -c 16 -d 5
  hitbench run --start -c 8 -P 16 --hashes 64-4096 -d 5
  hitbench run --start -c 16 -r 1000,2000,4000 -d 2 --json`,
		Args: cli.NoArgs,
	}
	f.addFlags(cmd.Flags())
	cli.Complete(cmd, "dialect", wire.Raw, wire.ZMTP)
	completeMissAt(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.load(cmd.Context(), f, cmd.Flags())
	}
	return cmd
}

func (f *runFlags) addFlags(flags *pflag.FlagSet) {
	flags.SortFlags = false
	connectionsFlag(flags, &f.o.Connections, 1, "")
	flags.IntVarP(&f.o.Pipeline, "pipeline", "P", 1, "requests under way on each connection")
	durationFlag(flags, &f.o.Duration, 10*time.Second, ", each rate")
	requestsFlag(flags, &f.requests, " to measure, each rate, instead of --duration")
	cli.DurationVarP(flags, &f.o.Warmup, "warmup", "", time.Second, "time before that, not measured")
	flags.Float64SliceVarP(&f.o.Rates, "rate", "r", nil, "requests a second over all connections, one or more `rates`; none: a closed loop")
	replaceList(flags, "rate")
	timeoutFlag(flags, &f.o.Timeout, 10*time.Second, "")
	seedFlag(flags, &f.o.Seed, 0)
	jsonFlag(flags, &f.json)
	cli.FlagGroup(flags, "Requests", f.addRequestFlags)
	cli.FlagGroup(flags, "Server that is started", func(group *pflag.FlagSet) {
		group.BoolVar(&f.start, "start", false, "start a server for this run, and stop it at the end")
		f.pool.addFlags(group)
		group.IntVar(&f.loops, "loops", 0, "event loops of the server; 0 for its default")
		hitlineFlag(group, &f.hitline)
		f.cores.add(group, " (default with --start half of them, else any)", " (default the others)")
	})
	serverFlags(flags, &f.secure)
}

func (f *runFlags) addRequestFlags(group *pflag.FlagSet) {
	group.StringVar(&f.hashes, "hashes", "64", "hashes of a lookup: a `number`, or LEAST-MOST")
	entriesFlag(group, &f.o.Entries, 1_000_000, "")
	missFlags(group, &f.o.HitShare, (*string)(&f.o.MissAt), 0.9)
	group.Float64Var(&f.o.Stores, "stores", 0, "share of operations that store a chain")
	group.Float64Var(&f.o.Evicts, "evicts", 0, "share of operations that evict one; a chain is stored where there is none")
	group.StringVar((*string)(&f.o.Dialect), "dialect", "raw", "dialect: raw or zmtp")
	group.BoolVar(&f.o.Reset, "reset", false, "have the server forget everything first")
}

// load runs the command and prints the report, be it a partial one.
func (a *app) load(ctx context.Context, f runFlags, flags *pflag.FlagSet) error {
	if err := f.fill(a, flags); err != nil {
		return err
	}
	if err := f.o.Validate(); err != nil {
		return err
	}
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
	return a.finish(report, f.json, err, answers{report.Wrong, report.Refused, report.Requests})
}

// fill makes options of those flags that are text.
func (f *runFlags) fill(a *app, flags *pflag.FlagSet) error {
	if err := f.checkFlags(flags); err != nil {
		return err
	}
	if f.requests > 0 {
		f.o.Requests, f.o.Duration = int64(f.requests), 0
	}
	if !f.start {
		addr, secure, err := a.server(&f.secure)
		if err != nil {
			return err
		}
		f.o.Connect, f.o.Token, f.o.TLS = addr, secure.Token, secure.TLS
	}
	var err error
	f.o.Hashes, err = parseLengths(f.hashes)
	return err
}

// checkFlags refuses flags that do not go together, which options cannot tell.
func (f *runFlags) checkFlags(flags *pflag.FlagSet) error {
	if f.start {
		if flags.Changed("connect") {
			return cli.Usagef("--start and --connect name two servers; give one")
		}
		if given := f.secure.Given(); given != "" {
			return cli.Usagef("--%s is for --connect; a server of --start needs none", given)
		}
		if f.pool.config != "" && (f.pool.groups != "" || f.pool.blockSize != 0) {
			return cli.Usagef("--config describes the whole pool; leave --groups and --block-size out")
		}
	} else if err := refuse(flags.Changed, "--%s only has a meaning with --start", "hitline", "server-cores", "loops", "config", "groups", "block-size"); err != nil {
		return err
	}
	for _, name := range []string{"connections", "pipeline", "entries", "timeout", "requests", "duration"} {
		if text := flags.Lookup(name).Value.String(); flags.Changed(name) && (text == "0" || text == "0s") { // not the library's default
			return cli.Usagef("--%s %s; give more than 0", name, text)
		}
	}
	if f.requests < 0 {
		return cli.Usagef("--requests %d; give more than 0", f.requests)
	}
	if f.loops < 0 {
		return cli.Usagef("--loops %d; give 0 or more", f.loops)
	}
	if f.requests != 0 && flags.Changed("duration") {
		return cli.Usagef("--requests and --duration both say when to end; give one")
	}
	return nil
}

// chooseCores chooses the cores of both sides, of which only those of a server that is started are
// known here.
func (f *runFlags) chooseCores() error {
	client, server, err := f.cores.parse()
	if err != nil {
		return err
	}
	allowed, err := process.Cores()
	if err != nil {
		return err
	}
	if f.start {
		p, err := process.Place(client, server, allowed, process.SystemCPUs())
		f.o.ClientCores, f.o.ServerCores = p.ClientCores(), p.ServerCores()
		return err
	}
	if len(client) < len(allowed) { // any is not the same as to be kept to all
		f.o.ClientCores = client
	}
	return nil
}

// server returns what --start starts.
func (f *runFlags) server() (o load.ServerOptions, err error) {
	o = load.ServerOptions{
		BlockTokens: f.pool.blockSize, Config: f.pool.config, Groups: f.pool.groups, Loops: f.loops,
		Entries: 2 * f.o.Entries, Connections: f.o.Connections, Cores: f.o.ServerCores, Timeout: f.o.Timeout,
	}
	o.Hitline, err = findHitline(f.hitline)
	return o, err
}

// watchLoad runs with a line that says how it goes, and describes the first problems.
func (a *app) watchLoad(ctx context.Context, o load.Options) (load.Report, error) {
	return watch(a, func(p *progress) (load.Report, error) {
		o.OnPhase = func(name string, total int) { p.status(name, fmt.Sprintf("%s: %d", name, total)) }
		o.OnSample = func(s load.Sample) {
			p.status("measure", fmt.Sprintf("%5.0f s  %9.0f requests/s  %s p50 %.1f us  p99 %.1f us  wrong %d",
				s.Elapsed, s.RequestsPerSecond, o.LatencyName(), s.P50us, s.P99us, s.Wrong+s.Refused))
		}
		o.OnProblem = func(problem *load.Problem) {
			kind := "wrong"
			if problem.Refused {
				kind = "refused"
			}
			p.problem(kind, problem.Error())
		}
		return load.Run(ctx, o)
	})
}
