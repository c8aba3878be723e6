//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed generator.c
var generatorSource []byte

// buildGenerator compiles the generator in a directory and returns its path. More are further
// flags of gcc.
func buildGenerator(ctx context.Context, dir string, more ...string) (string, error) {
	source, program := filepath.Join(dir, "generator.c"), filepath.Join(dir, "generator")
	if err := os.WriteFile(source, generatorSource, 0o600); err != nil {
		return "", fmt.Errorf("agree: %w", err)
	}
	args := append([]string{"-O2", "-Wall", "-Wextra", "-Werror", "-pthread"}, more...)
	text, err := exec.CommandContext(ctx, "gcc", append(args, "-o", program, source)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("agree: cannot compile generator.c: %w\n%s", err, text)
	}
	return program, nil
}

// bed is what measurements need: the server and the programs that put load on it.
type bed struct {
	o         options
	stderr    io.Writer
	dir       string // temporary
	hitbench  string
	generator string
	server    *server
	servers   []int // cores
	clients   []int
	shared    bool // server and clients have the same core
}

// newBed builds the generator and starts the server. The caller closes the bed.
func newBed(ctx context.Context, o options, stderr io.Writer) (*bed, error) {
	allowed, err := allowedCores()
	if err != nil {
		return nil, err
	}
	servers, clients := halve(allowed)
	b := &bed{o: o, stderr: stderr, servers: servers, clients: clients, shared: len(allowed) < 2}
	if err := b.prepare(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// prepare starts what close ends.
func (b *bed) prepare(ctx context.Context) error {
	hitline, err := program(b.o.hitline)
	if err != nil {
		return err
	}
	if b.hitbench, err = program(b.o.hitbench); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "agree"); err != nil {
		return fmt.Errorf("agree: %w", err)
	}
	if b.generator, err = buildGenerator(ctx, b.dir); err != nil {
		return err
	}
	// Runs that reset the server need room for one run, the rows with stalls for all of them.
	const mostRuns = 16
	b.server, err = startServer(ctx, hitline, mostRuns*b.o.entries, b.servers)
	return err
}

// program returns a path that is not searched for on PATH.
func program(path string) (string, error) {
	absolute, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(absolute)
	}
	if err != nil {
		return "", fmt.Errorf("agree: no program: %w; `make build` builds it", err)
	}
	return absolute, nil
}

// close stops the server and removes the generator.
func (b *bed) close() {
	if b.server != nil {
		b.server.kill()
	}
	if b.dir != "" {
		_ = os.RemoveAll(b.dir) // what is left is in the system's temporary directory
	}
}

// progress prints one line.
func (b *bed) progress(format string, args ...any) { fmt.Fprintf(b.stderr, format+"\n", args...) }

// load is what a client does. All lookups hit.
type load struct {
	connections, hashes int
	rate                float64 // lookups a second, open loop; 0: closed loop
	reset               bool    // the server forgets everything first
	spin                bool    // an open loop of the generator whose client never sleeps
	addr                string  // of the generator: the server if it is not the bed's
}

// result is what hitbench and the generator report alike. Latencies are in µs.
type result struct {
	Requests          int64   `json:"requests"`
	RequestsPerSecond float64 `json:"requests_per_s"`
	P50us             float64 `json:"p50_us"`
	P99us             float64 `json:"p99_us"`
	Maxus             float64 `json:"max_us"`
	// Of hitbench's closed loop: the lookups alone, as the generator has them.
	Uncorrected *struct {
		P50us float64 `json:"p50_us"`
	} `json:"uncorrected,omitempty"`
	Wrong   int64 `json:"wrong"`
	Refused int64 `json:"refused"` // hitbench only
}

// runHitbench measures with hitbench.
func (b *bed) runHitbench(ctx context.Context, l load) (result, error) {
	args := []string{
		"run", "--connect", "tcp://" + b.server.addr, "--connections", strconv.Itoa(l.connections), "--hashes", strconv.Itoa(l.hashes),
		"--hit-share", "1", "--entries", strconv.Itoa(b.o.entries), "--seed", strconv.FormatUint(b.o.seed, 10),
		"--warmup", "1s", "--duration", b.o.duration().String(), "--json",
	}
	if l.rate > 0 {
		args = append(args, "--rate", strconv.FormatFloat(l.rate, 'f', 1, 64))
	}
	if l.reset {
		args = append(args, "--reset")
	}
	return b.runProgram(ctx, exec.CommandContext(ctx, b.hitbench, args...))
}

// runGenerator measures with the generator.
func (b *bed) runGenerator(ctx context.Context, l load) (result, error) {
	return b.runProgram(ctx, b.generatorCommand(ctx, l, "--warmup", "1", "--seconds", strconv.FormatFloat(b.o.seconds, 'f', -1, 64),
		"--entries", strconv.Itoa(b.o.entries)))
}

// generatorCommand returns the command of the generator; more are further arguments.
func (b *bed) generatorCommand(ctx context.Context, l load, more ...string) *exec.Cmd {
	args := []string{
		"--connect", cmp.Or(l.addr, b.server.addr), "--connections", strconv.Itoa(l.connections), "--hashes", strconv.Itoa(l.hashes),
		"--block-tokens", strconv.Itoa(blockTokens), "--seed", strconv.FormatUint(b.o.seed, 10),
		"--rate", strconv.FormatFloat(l.rate, 'f', 1, 64),
	}
	if l.reset {
		args = append(args, "--reset")
	}
	if l.spin {
		args = append(args, "--spin")
	}
	return exec.CommandContext(ctx, b.generator, append(args, more...)...)
}

// runProgram runs a program on the clients' cores and parses the line that it prints.
func (b *bed) runProgram(ctx context.Context, cmd *exec.Cmd) (r result, err error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	c, err := startOn(b.clients, cmd)
	if err == nil {
		err = c.wait()
	}
	switch {
	case ctx.Err() != nil:
		return r, context.Cause(ctx)
	case err != nil:
		return r, fmt.Errorf("agree: %s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(stderr.String()))
	}
	return parseResult(stdout.Bytes())
}

// parseResult parses a line of JSON.
func parseResult(line []byte) (r result, err error) {
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("agree: cannot parse a result: %w", err)
	}
	switch {
	case r.Wrong > 0 || r.Refused > 0:
		return r, fmt.Errorf("agree: %d answers are wrong and %d requests were refused", r.Wrong, r.Refused)
	case r.Requests == 0:
		return r, errors.New("agree: a run measured no request")
	}
	return r, nil
}
