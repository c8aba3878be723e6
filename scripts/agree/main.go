//go:build linux

// Command agree compares servers of lookups by a client that shares no code with them: generator.c,
// a load generator in C made after docs/protocol.md. Beside the servers that are named it asks a bare
// server, which is gnet and a comparison of bytes (bare.go): what a lookup takes at least.
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
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed generator.c
var generatorSource []byte

const usage = `Usage: agree [flags] NAME=PATH|HOST:PORT...

Asks each server in turn for the same stored chains, one lookup at a time, and
prints how long the round trips took: the median over the rounds of the median
of a round, and their range. A ratio is the median over the rounds, and the
range. A PATH is a hitline to start and to stop; a HOST:PORT is a server that
runs, whose pool has blocks of 16 tokens and whose content is forgotten. "bare"
is a gnet server that only compares bytes. Servers share one core, the client
has the others. Needs gcc.

Exit code 1: an answer was wrong or a program failed.

Flags:
`

func main() {
	if len(os.Args) == 3 && os.Args[1] == "serve-bare" {
		fmt.Fprintln(os.Stderr, serveBare(os.Args[2]))
		os.Exit(1)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run is the command. It chooses the cores of its children by those of its own thread.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("agree", flag.ExitOnError)
	hashes := f.String("hashes", "64,512,8192,131072", "`numbers` of hashes of a lookup")
	entries := f.Int("entries", 1_000_000, "`hashes` to store, at least")
	rounds := f.Int("rounds", 10, "`number` of rounds")
	seconds := f.Float64("seconds", 2, "`seconds` of a round, all servers together")
	asJSON := f.Bool("json", false, "print one line of JSON instead of the table")
	f.Usage = func() { fmt.Fprint(f.Output(), usage); f.PrintDefaults() }
	_ = f.Parse(args) // it exits
	if f.NArg() == 0 {
		return errors.New("agree: no server; name one, as in hitline=bin/hitline; see --help")
	}
	runtime.LockOSThread() // for good: children have the cores of the thread that starts them, and end with it
	dir, err := os.MkdirTemp("", "agree")
	if err != nil {
		return fmt.Errorf("agree: %w", err)
	}
	defer os.RemoveAll(dir)
	generator, err := buildGenerator(ctx, dir)
	if err != nil {
		return err
	}
	serverCores, clientCores, err := splitCores()
	if err != nil {
		return err
	}
	if err := unix.SchedSetaffinity(0, &serverCores); err != nil {
		return fmt.Errorf("agree: cannot choose the cores: %w", err)
	}
	servers, stop, err := startServers(ctx, f.Args(), *entries)
	defer stop()
	if err != nil {
		return err
	}
	if err := unix.SchedSetaffinity(0, &clientCores); err != nil {
		return fmt.Errorf("agree: cannot choose the cores: %w", err)
	}
	var rows []row
	for n := range strings.SplitSeq(*hashes, ",") {
		fmt.Fprintf(stderr, "lookups of %s hashes, %d rounds\n", n, *rounds)
		args := []string{n, strconv.Itoa(*entries), strconv.Itoa(*rounds), strconv.FormatFloat(*seconds, 'f', -1, 64)}
		for _, s := range servers {
			args = append(args, s.addr)
		}
		more, err := measure(exec.CommandContext(ctx, generator, args...), servers)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	if *asJSON {
		return json.NewEncoder(stdout).Encode(map[string]any{"rounds": *rounds, "seconds": *seconds, "rows": rows})
	}
	return writeTable(stdout, rows, servers)
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

// splitCores returns the first of the cores that this thread may use, which the servers have, and
// the others, which the client has. If there is one only, both have it.
func splitCores() (first, others unix.CPUSet, err error) {
	if err := unix.SchedGetaffinity(0, &others); err != nil {
		return first, others, fmt.Errorf("agree: cannot tell the cores: %w", err)
	}
	core := 0
	for !others.IsSet(core) {
		core++
	}
	first.Set(core)
	if others.Count() > 1 {
		others.Clear(core)
	}
	return first, others, nil
}

// server is a server to ask.
type server struct{ name, addr string }

// startTimeout bounds the start of a server.
const startTimeout = 30 * time.Second

// startServers starts the servers of the command line that do not run, and the bare one. stop stops
// those that were started, also if others could not be.
func startServers(ctx context.Context, args []string, entries int) (servers []server, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var started []*exec.Cmd
	stop = func() {
		cancel() // kills them
		for _, cmd := range started {
			_ = cmd.Wait()
		}
	}
	start := func(name, path string, args ...string) error {
		addr, err := freeAddr()
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, path, append(args, addr)...)
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it ends with this process
		for _, variable := range os.Environ() {
			if !strings.HasPrefix(variable, "HITLINE_") || strings.HasPrefix(variable, "HITLINE_KERNEL=") {
				cmd.Env = append(cmd.Env, variable)
			}
		}
		bound := max(1<<30, 256*entries) // more bytes than the entries take
		cmd.Env = append(cmd.Env, "HITLINE_LOG_LEVEL=warn", "HITLINE_BACKEND_MEMORY_MAX_BYTES="+strconv.Itoa(bound))
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("agree: cannot start %s: %w; `make build` builds bin/hitline", name, err)
		}
		started, servers = append(started, cmd), append(servers, server{name, addr})
		for end := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
			c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
			if err == nil {
				return c.Close()
			}
			if ctx.Err() != nil || time.Now().After(end) {
				return fmt.Errorf("agree: %s is not ready: %w", name, err)
			}
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
		if err == nil {
			err = start(name, path, "serve", "--loops", "1", "--block-size", "16", "--listen")
		}
		if err != nil {
			return servers, stop, err
		}
	}
	err = start("bare", "/proc/self/exe", "serve-bare")
	return servers, stop, err
}

// freeAddr returns an address of this machine that nobody listens at.
func freeAddr() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("agree: no free port: %w", err)
	}
	return ln.Addr().String(), ln.Close()
}

// figure is a median with the range of the rounds.
type figure struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// newFigure describes values, at least one.
func newFigure(values []float64) figure {
	sorted := slices.Sorted(slices.Values(values))
	return figure{sorted[(len(sorted)-1)/2], sorted[0], sorted[len(sorted)-1]}
}

// row is a server at lookups of some number of hashes.
type row struct {
	Hashes  int    `json:"hashes"`
	Server  string `json:"server"`
	Lookups int    `json:"lookups"` // of all rounds
	P50     figure `json:"p50_us"`
	P99     figure `json:"p99_us"`
	ToFirst figure `json:"to_first"` // p50 over that of the first server
	ToBare  figure `json:"to_bare"`
}

// measure runs the generator, and makes rows of the lines that it prints.
func measure(cmd *exec.Cmd, servers []server) ([]row, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("agree: the generator ended with %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	rows := make([]row, len(servers))
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
			return nil, fmt.Errorf("agree: cannot read what the generator printed: %w", err)
		}
		p50[i], p99[i] = append(p50[i], line.P50), append(p99[i], line.P99)
		rows[i].Server, rows[i].Hashes, rows[i].Lookups = servers[i].name, line.Hashes, rows[i].Lookups+line.Lookups
	}
	ratio := func(a, b []float64) figure {
		var ratios []float64
		for round := range a {
			ratios = append(ratios, a[round]/b[round])
		}
		return newFigure(ratios)
	}
	for i := range rows {
		rows[i].P50, rows[i].P99 = newFigure(p50[i]), newFigure(p99[i])
		rows[i].ToFirst, rows[i].ToBare = ratio(p50[i], p50[0]), ratio(p50[i], p50[len(servers)-1])
	}
	return rows, nil
}

// writeTable prints the rows.
func writeTable(w io.Writer, rows []row, servers []server) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "hashes\tserver\tlookups\tp50 µs\tp99 µs\tp50 / %s\tp50 / bare\n", servers[0].name)
	for _, r := range rows {
		show := func(f figure, digits int) string {
			return fmt.Sprintf("%.*f (%.*f–%.*f)", digits, f.Median, digits, f.Min, digits, f.Max)
		}
		fmt.Fprintf(t, "%d\t%s\t%d\t%s\t%s\t%s\t%s\n", r.Hashes, r.Server, r.Lookups, show(r.P50, 1), show(r.P99, 1), show(r.ToFirst, 3), show(r.ToBare, 3))
	}
	return t.Flush()
}
