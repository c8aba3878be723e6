//go:build linux

// Command agree compares servers of lookups by a client that shares no code with them: generator.c,
// a load generator in C made after docs/protocol.md.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/process"
)

//go:embed generator.c
var generatorSource []byte

const usage = `Usage: agree [flags] NAME=PATH|HOST:PORT...

Asks each server in turn for the same stored chains, one lookup at a time, and
prints how long the round trips took: the median over the rounds of the median
of a round, and their range. A ratio is the median over the rounds, and the
range. A PATH is a hitline to start and to stop; a HOST:PORT is a server that
runs, whose pool has blocks of 16 tokens and whose content is forgotten. Servers
share one core, the client has the others. Needs gcc.

Exit code 1: an answer was wrong or a program failed.

Flags:
`

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run is the command.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("agree", flag.ExitOnError)
	hashes := f.String("hashes", "64,512,8192,131072", "`numbers` of hashes of a lookup")
	entries := f.Int("entries", 1_000_000, "`hashes` to store, at least")
	rounds := f.Int("rounds", 10, "`number` of rounds")
	seconds := f.Float64("seconds", 2, "`seconds` of a round, all servers together")
	f.Usage = func() { fmt.Fprint(f.Output(), usage); f.PrintDefaults() }
	_ = f.Parse(args) // it exits
	if f.NArg() == 0 {
		return errors.New("agree: no server; name one, as in hitline=bin/hitline; see --help")
	}
	dir, err := os.MkdirTemp("", "agree")
	if err != nil {
		return fmt.Errorf("agree: %w", err)
	}
	defer os.RemoveAll(dir)
	generator, err := buildGenerator(ctx, dir)
	if err != nil {
		return err
	}
	serverCores, err := splitCores()
	if err != nil {
		return err
	}
	servers, stop, err := startServers(ctx, f.Args(), *entries, serverCores)
	defer stop()
	if err != nil {
		return err
	}
	var table measure.Table
	table.Heads("server", "hashes", "lookups", "p50 us", "min to max", "p99 us", "min to max", "p50 / "+servers[0].name, "min to max")
	for n := range strings.SplitSeq(*hashes, ",") {
		fmt.Fprintf(stderr, "lookups of %s hashes, %d rounds\n", n, *rounds)
		args := []string{n, strconv.Itoa(*entries), strconv.Itoa(*rounds), strconv.FormatFloat(*seconds, 'f', -1, 64)}
		for _, s := range servers {
			args = append(args, s.addr)
		}
		if err := measureServers(exec.CommandContext(ctx, generator, args...), servers, &table); err != nil {
			return err
		}
	}
	return table.Write(stdout)
}

// buildGenerator compiles the generator in a directory and returns its path. flags are further
// flags of gcc.
func buildGenerator(ctx context.Context, dir string, flags ...string) (string, error) {
	program := filepath.Join(dir, "generator")
	cmd := exec.CommandContext(ctx, "gcc", append(flags, "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, "-x", "c", "-")...)
	cmd.Stdin = bytes.NewReader(generatorSource)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("agree: cannot compile generator.c: %w\n%s", err, text)
	}
	return program, nil
}

// splitCores returns the first of the cores that this process may use, which the servers have, and keeps this process and
// the client to the others. If there is one only, both have it.
func splitCores() (servers []int, err error) {
	cores, err := process.Cores()
	if err != nil {
		return nil, fmt.Errorf("agree: %w", err)
	}
	if len(cores) < 2 {
		return nil, nil
	}
	if err := process.Pin(cores[1:]...); err != nil {
		return nil, fmt.Errorf("agree: %w", err)
	}
	return cores[:1], nil
}

// server is a server to ask.
type server struct{ name, addr string }

// startTimeout bounds the start of a server.
const startTimeout = 30 * time.Second

// startServers starts the servers of the command line that do not run. stop stops those that were started, also if others
// could not be.
func startServers(ctx context.Context, args []string, entries int, cores []int) (servers []server, stop func(), err error) {
	var started []*process.Process
	stop = func() {
		for _, p := range started {
			p.Stop()
		}
	}
	for _, arg := range args {
		name, at, ok := strings.Cut(arg, "=")
		switch {
		case !ok || name == "" || at == "":
			return servers, stop, fmt.Errorf("agree: %q is no NAME=PATH and no NAME=HOST:PORT; see --help", arg)
		case strings.Contains(at, ":") && !strings.Contains(at, "/"):
			servers = append(servers, server{name, at})
			continue
		}
		path, err := filepath.Abs(at) // never one of PATH
		if err != nil {
			return servers, stop, fmt.Errorf("agree: %w", err)
		}
		cmd := process.Hitline(path, 16, process.HitlineBound(entries), "--loops", "1")
		p, err := process.Start(ctx, cmd, process.Options{Cores: cores, Timeout: startTimeout})
		if err != nil {
			return servers, stop, fmt.Errorf("agree: cannot start %s: %w; `make build` builds bin/hitline", name, err)
		}
		started, servers = append(started, p), append(servers, server{name, strings.TrimPrefix(p.Addr(), "tcp://")})
	}
	return servers, stop, nil
}

// measureServers runs the generator, and adds a row for each server, of the lines that it prints.
func measureServers(cmd *exec.Cmd, servers []server, table *measure.Table) error {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("agree: the generator ended with %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	var hashes int
	lookups := make([]int, len(servers))
	p50, p99 := make([][]float64, len(servers)), make([][]float64, len(servers))
	lines := json.NewDecoder(bytes.NewReader(out))
	for i := 0; ; i = (i + 1) % len(servers) { // the order of a round is that of its arguments
		var line struct {
			Hashes, Lookups int
			P50             float64 `json:"p50_us"`
			P99             float64 `json:"p99_us"`
		}
		if err := lines.Decode(&line); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("agree: cannot read what the generator printed: %w", err)
		}
		p50[i], p99[i] = append(p50[i], line.P50), append(p99[i], line.P99)
		hashes, lookups[i] = line.Hashes, lookups[i]+line.Lookups
	}
	for i, s := range servers {
		row := []any{s.name, hashes, lookups[i]}
		for _, figures := range [][]float64{p50[i], p99[i], measure.Ratios(p50[i], p50[0])} {
			f := measure.SpreadOf(figures)
			row = append(row, fmt.Sprint(f.Median), fmt.Sprintf("%v to %v", f.Min, f.Max))
		}
		table.Row(row...)
	}
	return nil
}
