//go:build unix

// Command snapshot-load measures what a snapshot costs the lookups of a server, and how fast it is written and
// loaded. It starts hitline serve with a memory index of many entries and a short interval between snapshots,
// and looks up over TCP at a constant rate all the while. Each pair compares the lookups that were sent while a
// snapshot was written with those of the pause after it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"text/tabwriter"
	"time"
)

// options are the flags.
type options struct {
	hitline             string
	entries, pairs      int
	conns, rate, hashes int
	interval            time.Duration
	asJSON              bool
}

// report is what was measured. Times are in seconds, latencies in microseconds.
type report struct {
	Entries int     `json:"entries"`
	Bytes   int64   `json:"bytes"` // of the file
	Conns   int     `json:"conns"`
	Rate    int     `json:"rate"` // lookups a second, of all connections
	Hashes  int     `json:"hashes"`
	CPUs    int     `json:"cpus"`
	Pairs   []pair  `json:"pairs"`
	Median  float64 `json:"median_ratio_p99"` // of the pairs; 0 without pairs
	Last    float64 `json:"last_seconds"`     // of the last snapshot, without load
	Load    float64 `json:"load_seconds"`
	Loaded  float64 `json:"load_entries_per_second"`
}

// pair is a snapshot and the pause after it.
type pair struct {
	Seconds float64 `json:"seconds"` // of the snapshot
	During  latency `json:"during"`
	Pause   latency `json:"pause"`
	Ratio   float64 `json:"ratio_p99"`
}

// latency is that of the lookups that were sent in a stretch of time.
type latency struct {
	Lookups int     `json:"lookups"`
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	Max     float64 `json:"max"`
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "snapshot-load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	f := flag.NewFlagSet("snapshot-load", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.hitline, "hitline", "bin/hitline", "the `program` to measure")
	f.IntVar(&o.entries, "entries", 5_000_000, "entries of the index")
	f.IntVar(&o.pairs, "pairs", 10, "snapshots to measure under load; 0: only the last one and the load")
	f.IntVar(&o.conns, "conns", 8, "connections")
	f.IntVar(&o.rate, "rate", 2000, "lookups a second, of all connections together")
	f.IntVar(&o.hashes, "hashes", 64, "hashes of a lookup")
	f.DurationVar(&o.interval, "interval", 3*time.Second, "from the end of a snapshot to the next; longer than one takes")
	f.BoolVar(&o.asJSON, "json", false, "print one line of JSON instead of the table")
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.entries < chainLen || o.conns < 1 || o.rate < o.conns || o.hashes < 1 || o.hashes > chainLen || o.pairs < 0 {
		return fmt.Errorf("give at least %d entries, one connection and a lookup a second for each, and 1 to %d hashes", chainLen, chainLen)
	}
	folder, err := os.MkdirTemp("", "snapshot-load-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	r, err := measure(ctx, o, filepath.Join(folder, "index"))
	if err != nil {
		return err
	}
	if o.asJSON {
		return json.NewEncoder(stdout).Encode(r)
	}
	return printTable(stdout, r)
}

// measure measures everything: it fills a server, measures the pairs, stops it and starts it again.
func measure(ctx context.Context, o options, path string) (*report, error) {
	interval := o.interval
	if o.pairs == 0 {
		interval = 0
	}
	s, err := startServer(ctx, o.hitline, path, o.entries, interval)
	if err != nil {
		return nil, err
	}
	defer s.kill()
	r := &report{Conns: o.conns, Rate: o.rate, Hashes: o.hashes, CPUs: runtime.NumCPU()}
	chains, err := fill(ctx, s.address, o)
	if err != nil {
		return nil, err
	}
	if o.pairs > 0 {
		if r.Pairs, err = measurePairs(ctx, s, o, chains); err != nil {
			return nil, err
		}
		var ratios []float64
		for _, p := range r.Pairs {
			ratios = append(ratios, p.Ratio)
		}
		r.Median = median(ratios)
	}
	last, err := s.stop()
	if err != nil {
		return nil, err
	}
	r.Entries, r.Bytes, r.Last = last.Entries, last.Bytes, last.Seconds
	if s, err = startServer(ctx, o.hitline, path, o.entries, 0); err != nil {
		return nil, err
	}
	defer s.kill()
	if s.loaded.Entries != r.Entries {
		return nil, fmt.Errorf("%d entries were written and %d loaded", r.Entries, s.loaded.Entries)
	}
	r.Load, r.Loaded = s.loaded.Seconds, float64(s.loaded.Entries)/s.loaded.Seconds
	return r, nil
}

func printTable(out io.Writer, r *report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	if len(r.Pairs) > 0 {
		fmt.Fprintf(w, "snapshot s\tlookups\tp50 µs\tp99 µs\tmax µs\tpause: lookups\tp50 µs\tp99 µs\tmax µs\tratio of p99\t\n")
	}
	for _, p := range r.Pairs {
		fmt.Fprintf(w, "%.2f\t%d\t%.0f\t%.0f\t%.0f\t%d\t%.0f\t%.0f\t%.0f\t%.2f\t\n", p.Seconds,
			p.During.Lookups, p.During.P50, p.During.P99, p.During.Max, p.Pause.Lookups, p.Pause.P50, p.Pause.P99, p.Pause.Max, p.Ratio)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(r.Pairs) > 0 {
		fmt.Fprintf(out, "median ratio of p99: %.2f (%d lookups/s of %d hashes, %d connections, %d CPUs)\n", r.Median, r.Rate, r.Hashes, r.Conns, r.CPUs)
	}
	_, err := fmt.Fprintf(out, "%d entries, %d bytes; last snapshot %.2f s (%.1f M entries/s), load %.2f s (%.1f M entries/s)\n",
		r.Entries, r.Bytes, r.Last, float64(r.Entries)/r.Last/1e6, r.Load, r.Loaded/1e6)
	return err
}
