package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
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
	dialect  string
	missAt   string
	hashes   string
	pool     poolFlags
	start    bool
	hitline  string
	client   string // cores
	server   string // cores, of --start
	hdr      string
	anchored bool
	secure   connectflags.Flags
	json     bool
}

// runCommand returns the command.
func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Put load on a server, measure it and check every answer",
		Long: `Put load on a server, measure it and check every answer. Chains of random
hashes are stored first, under a salt of this run, so the server need not be
empty; it must have room for them.

By default each connection sends its next request when an answer has come (a
closed loop). It asks nothing while it waits, so latency is corrected to what a
clock would see that asks as often as the median takes. With --rate requests
fall due at a fixed rate and latency counts from then, whether or not they could
be sent in time (an open loop); what could not be sent at all counts as what it
had waited by the end, and figures that hang on it have a ≥. Several rates are
measured one after the other, each with figures of its own. With --stores and
--evicts connections also change chains of their own, and look each up
afterwards.

"a second" counts what was answered while measuring, "unsent" what fell due then
and was never sent. At a rate far above what the server carries all of it may be
unsent, as what fell due during the warm-up comes first. In brackets after p50
are the least and the largest p50 of stretches of a second or less, never
corrected. "spread" is the standard deviation of their requests a second over
the mean. Percentiles are exact to 0.1 %.

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
		Example: "  hitbench run\n  hitbench run --connections 8 --pipeline 16 --hashes 64-4096\n  hitbench run --rate 1000,2000,4000 --json",
		Args:    cli.NoArgs,
	}
	f.addFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.load(cmd.Context(), f, cmd.Flags())
	}
	return cmd
}

func (f *runFlags) addFlags(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.BoolVar(&f.start, "start", false, "start a server for this run, and stop it at the end")
	flags.StringVar(&f.hitline, "hitline", "", "`path` of hitline, with --start (default beside this program, then on PATH)")
	flags.StringVar(&f.client, "client-cores", "", "`cores` for this program, such as 0,2-3, or \"any\" (default with --start half of them, else any)")
	flags.StringVar(&f.server, "server-cores", "", "`cores` for the server of --start, or \"any\" (default the other half)")
	flags.StringVar(&f.dialect, "dialect", "raw", "dialect: raw or zmtp")
	flags.IntVar(&f.o.Connections, "connections", 1, "connections")
	flags.IntVar(&f.o.Pipeline, "pipeline", 1, "requests in flight on each connection")
	flags.Float64SliceVar(&f.o.Rates, "rate", nil, "requests a second over all connections, one or more `rates`; none: a closed loop")
	flags.StringVar(&f.hashes, "hashes", "64", "hashes of a lookup: a `number`, LEAST-MOST, or trace:FILE, the lengths of a trace")
	flags.Float64Var(&f.o.HitShare, "hit-share", 0.9, "share of lookups that hit whole")
	flags.StringVar(&f.missAt, "miss-at", "random", "block at which the others miss: first, middle, tail or random")
	flags.IntVar(&f.o.Entries, "entries", 1_000_000, "hashes to store first, at least")
	flags.Float64Var(&f.o.Stores, "stores", 0, "share of operations that store a chain")
	flags.Float64Var(&f.o.Evicts, "evicts", 0, "share of operations that evict one; a chain is stored where there is none")
	flags.BoolVar(&f.anchored, "anchored", false, "look up by anchors, whatever the length: closed loop, lookups only, none pipelined")
	flags.DurationVar(&f.o.Duration, "duration", 10*time.Second, "how long to measure, each rate")
	flags.Int64Var(&f.o.Count, "count", 0, "requests to measure, each rate, instead of --duration")
	flags.DurationVar(&f.o.Warmup, "warmup", time.Second, "time before that, not measured")
	flags.DurationVar(&f.o.Timeout, "timeout", 10*time.Second, "longest wait for a start, a connection or an answer")
	f.pool.addFlags(flags)
	serverFlags(flags, &f.secure)
	flags.BoolVar(&f.o.Reset, "reset", false, "have the server forget everything first")
	flags.Uint64Var(&f.o.Seed, "seed", 0, "of hashes and order: the same requests again for the same one; 0: random")
	flags.StringVar(&f.hdr, "hdr", "", "`file` for the distribution of latencies, as plotters of HdrHistogram read it; - for standard error")
	flags.BoolVar(&f.json, "json", false, "print the report as one line of JSON")
}

// load runs the command and prints the report, be it a partial one.
func (a *app) load(ctx context.Context, f runFlags, flags *pflag.FlagSet) error {
	if err := f.fill(ctx, a, flags); err != nil {
		return err
	}
	if err := f.o.Validate(); err != nil {
		return err
	}
	hdr, err := a.openHDR(f.hdr)
	if err != nil {
		return err
	}
	defer hdr.Close() // of no consequence: what was written is closed by writeHDR
	if err := f.chooseCores(); err != nil {
		return err
	}
	if f.start {
		server, err := f.serve(ctx)
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
	return a.finish(report, f.json, cmp.Or(err, writeHDR(report, hdr)), answers{int64(report.Wrong), int64(report.Errors), int64(report.Requests)})
}

// fill makes options of those flags that are text.
func (f *runFlags) fill(ctx context.Context, a *app, flags *pflag.FlagSet) error {
	if f.start && flags.Changed("connect") {
		return cli.Usagef("--start and --connect name two servers; give one")
	}
	if given := f.secure.Given(); f.start && given != "" {
		return cli.Usagef("--%s is for --connect; a server of --start needs none", given)
	}
	for name, text := range map[string]string{"hitline": f.hitline, "server-cores": f.server} {
		if text != "" && !f.start {
			return cli.Usagef("--%s only has a meaning with --start", name)
		}
	}
	if f.hdr != "" && len(f.o.Rates) > 1 {
		return cli.Usagef("--hdr takes the latencies of one rate; give one, not %d", len(f.o.Rates))
	}
	for _, name := range []string{"connections", "pipeline", "entries", "timeout"} {
		if text := flags.Lookup(name).Value.String(); text == "0" || text == "0s" { // not the library's default
			return cli.Usagef("--%s %s; give more than 0", name, text)
		}
	}
	if f.o.Count > 0 {
		if flags.Changed("duration") {
			return cli.Usagef("--count and --duration both say when to end; give one")
		}
		f.o.Duration = 0
	}
	var secure connectflags.Connection // of --start: none
	if !f.start {
		var err error
		if f.o.Connect, secure, err = a.server(&f.secure); err != nil {
			return err
		}
		f.o.Token, f.o.TLS = secure.Token, secure.TLS
	}
	if f.anchored {
		f.o.Anchored = func(ctx context.Context, addr string) (load.Anchorer, error) { return dialAnchored(ctx, addr, secure) }
	}
	f.o.Dialect, f.o.MissAt = wire.Dialect(f.dialect), load.MissAt(f.missAt)
	var err error
	if f.o.Pool, err = f.pool.pool(); err != nil {
		return err
	}
	f.o.Hashes, err = a.lengths(ctx, f.hashes, f.o.Pool)
	return err
}

// chooseCores chooses the cores of both sides. With --start each gets half of them unless
// a flag says otherwise; then a side without a flag gets any.
func (f *runFlags) chooseCores() error {
	if f.start && f.client == "" && f.server == "" {
		var err error
		f.o.ClientCores, f.o.ServerCores, err = load.Halves()
		return err
	}
	for _, side := range []struct {
		flag, list string
		cores      *[]int
	}{{"client-cores", f.client, &f.o.ClientCores}, {"server-cores", f.server, &f.o.ServerCores}} {
		if side.list == "" || side.list == process.AnyCore {
			continue
		}
		var err error
		if *side.cores, err = load.ParseCores(side.list); err != nil {
			return fmt.Errorf("--%s: %w", side.flag, err)
		}
	}
	for _, core := range f.o.ServerCores {
		if slices.Contains(f.o.ClientCores, core) {
			return cli.Usagef("core %d is in both --client-cores and --server-cores; give each side cores of its own, or \"any\"", core)
		}
	}
	return nil
}

// serve starts the server of --start.
func (f *runFlags) serve(ctx context.Context) (*load.Server, error) {
	self, err := executable()
	if err != nil {
		return nil, err
	}
	path, err := findHitline(f.hitline, self)
	if err != nil {
		return nil, err
	}
	return load.StartServer(ctx, load.ServerOptions{
		Hitline: path, BlockTokens: f.pool.blockSize, Config: f.pool.config, Groups: f.pool.groups,
		Entries: 2 * f.o.Entries, Connections: f.o.Connections, Cores: f.o.ServerCores, Timeout: f.o.Timeout,
	})
}

// watchLoad runs with a line that says how it goes, and describes the first problems.
func (a *app) watchLoad(ctx context.Context, o load.Options) (load.Report, error) {
	return watch(a, func(p *progress) (load.Report, error) {
		o.OnPhase = func(name string, total int) { p.setStatus(fmt.Sprintf("%s: %d", name, total)) }
		o.OnSample = func(s load.Sample) {
			p.setStatus(fmt.Sprintf("%5.0f s  %9.0f requests/s  p50 %.1f us  p99 %.1f us  wrong %d",
				s.Elapsed, s.RequestsPerSecond, s.P50us, s.P99us, s.Wrong+s.Errors))
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

// openHDR opens the file of --hdr before the measuring, which may take hours. What is in
// it stays until there is something to write.
func (a *app) openHDR(path string) (io.WriteCloser, error) {
	switch path {
	case "":
		return noFile{io.Discard}, nil
	case "-":
		return noFile{a.stderr}, nil
	}
	file, err := openFile(path)
	if err != nil {
		return nil, cli.Usagef("--hdr: %w", err)
	}
	return file, nil
}

// noFile is not to be closed.
type noFile struct{ io.Writer }

func (noFile) Close() error { return nil }

// writeHDR writes the distribution of latencies where --hdr says.
func writeHDR(r load.Report, to io.WriteCloser) error {
	if file, ok := to.(*os.File); ok {
		return writeFile(file, r.WriteHDR)
	}
	return r.WriteHDR(to)
}
