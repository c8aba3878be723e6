//go:build linux

// Command agree checks how hitbench measures. It compares `hitbench run` with instruments that
// share no code with it: generator.c, a load generator in C made after docs/protocol.md, and an
// observer, which is the same program sending one small lookup every millisecond.
//
// Without flags it puts the same load on one server with hitbench and the generator in turn; the
// two must agree on throughput and latency. With --stalls the server is stopped by a signal while
// hitbench measures; hitbench must report the waits that the observer sees.
//
// With --bare the generator puts the load on hitline and on a server that is gnet and a comparison of
// bytes, in turn.
//
// Layout: agree.go compares the two generators, stalls.go stops the server, bare.go has the bare
// server, programs.go runs hitbench and the generator, server.go the server, cores.go pins them,
// report.go has the tables.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hitline/hitline/bench/measure"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var (
	errUsage  = errors.New("agree: wrong command line")
	errDiffer = errors.New("agree: hitbench differs")
)

const usage = `Usage: agree [flags]

Checks how hitbench measures, on one server that has half of the cores; the
clients have the other half. All lookups hit, and every answer is checked.

Without --stalls, hitbench run and a load generator in C (generator.c, compiled
with gcc) put the same load on the server in turn. The table has the medians of
the pairs, their ratio, and the least and the largest ratio of a pair. Rows that
are marked must agree within --tolerance.

With --stalls the server is stopped for 100 ms, every second or once across the
end of the measuring. p99 and maximum of hitbench must agree with those of an
observer that sends one lookup every millisecond by the clock and counts each
wait from when the lookup was due.

With --bare the generator asks hitline and a bare server on gnet in turn, on the
same core. That server compares the bytes of a lookup with the stored chain that
begins as they do. The ratio is that of the medians of p50.

Exit code 1: hitbench differs, an answer was wrong, or a program failed. Exit
code 2: the command line is wrong.

Flags:
`

// options are the flags.
type options struct {
	hitline, hitbench string
	only              string
	pairs, entries    int
	seconds           float64
	tolerance         float64
	seed              uint64
	stalls, bare      bool
	serveBare         bool
	asJSON, list      bool
}

// duration returns how long each run measures.
func (o options) duration() time.Duration { return time.Duration(o.seconds * float64(time.Second)) }

// parseFlags parses the command line.
func parseFlags(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet("agree", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.BoolVar(&o.stalls, "stalls", false, "stop the server while hitbench measures")
	f.BoolVar(&o.bare, "bare", false, "measure hitline beside a bare server on gnet")
	f.BoolVar(&o.serveBare, "serve-bare", false, "be that server, until killed")
	f.StringVar(&o.only, "only", "", "`rows` to run, separated by commas: names or patterns\nwith * (default all)")
	f.IntVar(&o.pairs, "pairs", 5, "`number` of pairs of each row; without --stalls")
	f.Float64Var(&o.seconds, "seconds", 3, "`seconds` that each run measures, after one of warm-up")
	f.Float64Var(&o.tolerance, "tolerance", 0.15, "largest `difference`, as a part of the smaller figure")
	f.IntVar(&o.entries, "entries", 1_000_000, "`hashes` to store before each run, at least")
	f.Uint64Var(&o.seed, "seed", 0, "`seed` of hashes and order; 0: random")
	f.StringVar(&o.hitline, "hitline", "bin/hitline", "`path` of the server")
	f.StringVar(&o.hitbench, "hitbench", "bin/hitbench", "`path` of hitbench")
	f.BoolVar(&o.asJSON, "json", false, "print one line of JSON instead of the table")
	f.BoolVar(&o.list, "list", false, "list the rows and exit")
	f.Usage = func() {
		fmt.Fprint(stderr, usage)
		f.PrintDefaults()
	}
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return o, err
	} else if err != nil {
		return o, fmt.Errorf("%w; see --help", errUsage)
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("%w: %q is no flag; see --help", errUsage, f.Arg(0))
	case o.bare && o.stalls:
		return o, fmt.Errorf("%w: --bare and --stalls are measurements of their own; give one", errUsage)
	case o.pairs < 1:
		return o, fmt.Errorf("%w: --pairs %d; at least 1", errUsage, o.pairs)
	case !(o.seconds > 0 && o.seconds <= 600):
		return o, fmt.Errorf("%w: --seconds %v; above 0, at most 600", errUsage, o.seconds)
	case o.stalls && (o.seconds < 1 || o.seconds > 6):
		// The one stall across the end must be more than 1 % of the time, or p99 misses it.
		return o, fmt.Errorf("%w: --seconds %v; 1 to 6 with --stalls", errUsage, o.seconds)
	case !(o.tolerance > 0):
		return o, fmt.Errorf("%w: --tolerance %v; above 0", errUsage, o.tolerance)
	case o.entries < 1 || o.entries > 100_000_000:
		return o, fmt.Errorf("%w: --entries %d; 1 to 100000000", errUsage, o.entries)
	case o.seed > 1<<53:
		return o, fmt.Errorf("%w: --seed %d; at most 2^53", errUsage, o.seed)
	}
	if o.seed == 0 {
		o.seed = measure.RandomSeed()
	}
	return o, nil
}

// run is the command.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	if o.serveBare {
		return serveBare(stdout)
	}
	if o.list {
		for _, name := range slices.Concat(names(loadRows()), names(bareRows())[1:2], names(stallRows())) {
			fmt.Fprintln(stdout, name)
		}
		return nil
	}
	if o.bare {
		return runRows(ctx, o, bareRows(), measureBare, stdout, stderr)
	}
	if o.stalls {
		return runRows(ctx, o, stallRows(), measureStalls, stdout, stderr)
	}
	return runRows(ctx, o, loadRows(), measureLoads, stdout, stderr)
}

// row is one of the rows to choose from.
type row interface{ name() string }

// report is the result of all rows.
type report interface {
	writeTable(w io.Writer) error
	differences() []string // what does not agree
}

// runRows runs those of the rows that were chosen, and prints the report. A report that is not
// complete is printed too.
func runRows[R row](ctx context.Context, o options, all []R, measure func(context.Context, *bed, []R) (report, error), stdout, stderr io.Writer) error {
	rows, err := choose(all, o.only)
	if err != nil {
		return err
	}
	b, err := newBed(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer b.close()
	r, err := measure(ctx, b, rows)
	output := r.writeTable
	if o.asJSON {
		output = func(w io.Writer) error { return writeJSON(w, r) }
	}
	if err := errors.Join(output(stdout), err); err != nil {
		return err
	}
	if d := r.differences(); len(d) > 0 {
		return fmt.Errorf("%w:\n  %s", errDiffer, strings.Join(d, "\n  "))
	}
	return nil
}

func names[R row](rows []R) (all []string) {
	for _, r := range rows {
		all = append(all, r.name())
	}
	return all
}

// choose returns the rows that --only names, all if it is empty.
func choose[R row](all []R, only string) (chosen []R, err error) {
	if only == "" {
		return all, nil
	}
	patterns := strings.Split(only, ",")
	used := make([]bool, len(patterns))
	for _, r := range all {
		fits := false
		for i, pattern := range patterns {
			if ok, err := path.Match(pattern, r.name()); err == nil && ok {
				fits, used[i] = true, true
			}
		}
		if fits {
			chosen = append(chosen, r)
		}
	}
	for i, pattern := range patterns {
		if !used[i] {
			return nil, fmt.Errorf("%w: no row is named %q; see --list", errUsage, pattern)
		}
	}
	return chosen, nil
}
