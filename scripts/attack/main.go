//go:build linux

// Command attack measures what a client of a hitline server waits while another client attacks
// the server. Each attack is sent to a server on loopback, from a process of its own. Beside it
// an innocent client makes lookups at a constant rate and checks every answer.
//
// The control of an attack is the same attack on a second server on the same cores, while the
// innocent asks the first one. It shows what the attack costs by its use of the CPU alone.
//
// Layout: attacks.go and its neighbors attacks_*.go have the rows, fakes.go the fake stores,
// wire.go the bytes; attacker.go is the attacking process, innocent.go the innocent client,
// server.go a server that was started, tls.go what differs with TLS, run.go one attack, report.go the table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
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
	errUsage = errors.New("attack: wrong command line")
	errFault = errors.New("attack: the server gave a wrong answer or none, or died")
)

const usage = `Usage: attack [flags]

Attacks a hitline server on loopback and measures what an innocent client
beside the attacker waits: 200 lookups a second, each counted from when it was
due. Every answer to it is checked. The table has medians of the rounds and
the longest wait of all. "control" is the longest wait while the same attack
goes to another server on the same cores.

Exit code 1: an answer was wrong or missing, a server died, or an attack could
not be run. Exit code 2: the command line is wrong.

Flags:
`

// options are the flags.
type options struct {
	only, hitline, baseline string
	rounds                  int
	seconds                 float64
	asJSON, list, long, tls bool
	duration, hold          time.Duration
}

// parseFlags parses the command line.
func parseFlags(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet("attack", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.only, "only", "", "`rows` to run, separated by commas: names, beginnings of\nnames up to a hyphen, or patterns with * (default all)")
	f.StringVar(&o.hitline, "hitline", "bin/hitline", "`path` of the server")
	f.StringVar(&o.baseline, "baseline", "", "`path` of another server, whose rounds alternate with\nthose of --hitline (default none)")
	f.IntVar(&o.rounds, "rounds", 3, "`number` of rounds of each row")
	f.Float64Var(&o.seconds, "seconds", 5, "`seconds` of an attack that has no end of its own")
	f.BoolVar(&o.long, "long", false, "keep idle connections for 90 s instead of --seconds,\nand run the rows that need --long")
	f.BoolVar(&o.tls, "tls", false, "connect over TLS, and run the rows that need --tls")
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
	case o.rounds < 1:
		return o, fmt.Errorf("%w: --rounds %d; at least 1", errUsage, o.rounds)
	case o.seconds <= 0 || o.seconds > 3600:
		return o, fmt.Errorf("%w: --seconds %v; above 0, at most 3600", errUsage, o.seconds)
	}
	o.duration = time.Duration(o.seconds * float64(time.Second))
	o.hold = o.duration
	if o.long {
		o.hold = 90 * time.Second
	}
	return o, nil
}

// run is the command.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "attacker" {
		return attackerCommand(args[1:], os.Stdin, stdout)
	}
	o, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	if o.list {
		return list(stdout)
	}
	rows, bad := selectAttacks(o.only)
	if bad != "" {
		return fmt.Errorf("%w: no row is named %q; see --list", errUsage, bad)
	}
	binaries := []string{o.hitline}
	if o.baseline != "" {
		binaries = append(binaries, o.baseline)
	}
	for i, path := range binaries {
		if !strings.Contains(path, "/") { // never one of PATH
			binaries[i] = "./" + path
		}
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("attack: no server: %w; `make build` builds bin/hitline", err)
		}
	}
	results, err := runAll(ctx, o, rows, binaries, stderr)
	if err != nil && len(results) == 0 {
		return err
	}
	output := func() error { return printTable(stdout, results, len(binaries) > 1) }
	if o.asJSON {
		output = func() error { return printJSON(stdout, results) }
	}
	if err := errors.Join(output(), err); err != nil {
		return err
	}
	for _, row := range results {
		if row.failed() {
			return fmt.Errorf("%w: %s", errFault, row.Attack)
		}
	}
	return nil
}

// attackerCommand is the hidden subcommand that runs one attack.
func attackerCommand(args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) != 4 {
		return errUsage
	}
	duration, err1 := time.ParseDuration(args[1])
	hold, err2 := time.ParseDuration(args[2])
	long, err3 := strconv.ParseBool(args[3])
	if err := errors.Join(err1, err2, err3); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	return runAttacker(args[0], duration, hold, long, stdin, stdout)
}

// list prints the rows.
func list(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range attacks() {
		help := row.help
		if row.longOnly {
			help += " (with --long only)"
		}
		if row.tlsOnly {
			help += " (with --tls only)"
		}
		fmt.Fprintf(t, "%s\t%s\n", row.name, help)
	}
	return t.Flush()
}

// runAll runs the rows. If it fails it returns those that are complete too.
func runAll(ctx context.Context, o options, rows []attack, binaries []string, stderr io.Writer) (results []rowResult, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("attack: cannot tell the path of this program: %w", err)
	}
	files, err := raiseFiles()
	if err != nil {
		return nil, err
	}
	if err := useTwoCores(); err != nil {
		return nil, err
	}
	debug.SetGCPercent(400) // fewer collections while the innocent asks
	r := &runner{self: self, duration: o.duration, hold: o.hold, long: o.long}
	if o.tls {
		dir, err := os.MkdirTemp("", "hitline-attack-")
		if err != nil {
			return nil, fmt.Errorf("attack: cannot make a directory: %w", err)
		}
		defer os.RemoveAll(dir)
		if r.config, err = writeTLSConfig(dir); err != nil {
			return nil, err
		}
	}
	var failures []error
	for _, row := range rows {
		if row.files > files {
			fmt.Fprintf(stderr, "%s: left out, it needs %d open files and the hard limit is %d (ulimit -Hn)\n", row.name, row.files, files)
			continue
		}
		if row.longOnly && !o.long {
			fmt.Fprintf(stderr, "%s: left out, it runs with --long only\n", row.name)
			continue
		}
		if row.tlsOnly && !o.tls {
			continue
		}
		attacked, controls := make([][]half, len(binaries)), make([][]half, len(binaries))
		err := func() error {
			for round := range o.rounds {
				for i, path := range binaries {
					fmt.Fprintf(stderr, "%s, round %d of %d, %s", row.name, round+1, o.rounds, path)
					control, err := r.run(ctx, path, row, true)
					if err != nil {
						return fmt.Errorf("control: %w", err)
					}
					h, err := r.run(ctx, path, row, false)
					if err != nil {
						return err
					}
					controls[i], attacked[i] = append(controls[i], control), append(attacked[i], h)
					fmt.Fprintf(stderr, ": longest wait %s ms, control %s ms\n", short(ms(h.stats.Longest)), short(ms(control.stats.Longest)))
				}
			}
			return nil
		}()
		if err != nil {
			fmt.Fprintln(stderr, ":", err)
			failures = append(failures, fmt.Errorf("%s: %w", row.name, err))
		}
		for i, path := range binaries {
			if len(attacked[i]) > 0 {
				results = append(results, newRow(row.name, path, attacked[i], controls[i]))
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return results, errors.Join(failures...)
}

// useTwoCores makes this process, and those that it starts, use the first two cores that it may
// use, so that measurements of different machines resemble each other.
func useTwoCores() error {
	var allowed, two unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("attack: cannot tell the cores: %w", err)
	}
	for core := 0; two.Count() < min(2, allowed.Count()); core++ {
		if allowed.IsSet(core) {
			two.Set(core)
		}
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("attack: cannot list the threads: %w", err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			continue
		}
		if err := unix.SchedSetaffinity(id, &two); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("attack: cannot choose the cores: %w", err)
		}
	}
	return nil
}
