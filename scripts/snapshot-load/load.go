//go:build unix

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hitline/hitline/lookup/client"
	"github.com/hitline/hitline/netproto"
)

const (
	hashLen     = 32
	blockTokens = 16
	// chainLen is the keys of a chain, which is a prompt of 65,536 tokens.
	chainLen = 4096
	// callTimeout bounds each request.
	callTimeout = 30 * time.Second
)

// chainKeys appends the first n keys of a chain.
func chainKeys(b []byte, chain, n int) []byte {
	random := rand.New(rand.NewPCG(uint64(chain), 1))
	for range n {
		for range hashLen / 8 {
			b = binary.LittleEndian.AppendUint64(b, random.Uint64())
		}
	}
	return b
}

// fill stores chains until there are as many entries as wanted, and returns how many of them are whole.
func fill(ctx context.Context, address string, o options) (chains int, err error) {
	c, err := client.Dial(ctx, address, client.WithTimeout(callTimeout))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var keys []byte
	for stored := 0; stored < o.entries; stored += chainLen {
		keys = chainKeys(keys[:0], stored/chainLen, min(o.entries-stored, chainLen))
		if err := c.StoreChain(ctx, netproto.GroupRank{}, 0, nil, netproto.NewHashes(keys, hashLen)); err != nil {
			return 0, err
		}
	}
	return o.entries / chainLen, nil // the last one may be short
}

// sample is a lookup: when it was to be sent, and how long after that it was answered.
type sample struct {
	sent time.Time
	took time.Duration
}

// lookups sends lookups over one connection at a constant rate until stop is closed, and checks each answer.
// One that is late because the answer before it was late counts from when it was due. One that is late
// because this process woke up late, some hundred microseconds on most machines, counts from when it was sent.
func lookups(ctx context.Context, stop <-chan struct{}, address string, o options, chains, number int) (samples []sample, err error) {
	c, err := client.Dial(ctx, address, client.WithTimeout(callTimeout))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	random := rand.New(rand.NewPCG(2, uint64(number)))
	period := time.Second * time.Duration(o.conns) / time.Duration(o.rate)
	due := time.Now().Add(period * time.Duration(number) / time.Duration(o.conns))
	var keys []byte
	for ; ; due = due.Add(period) {
		keys = chainKeys(keys[:0], random.IntN(chains), o.hashes)
		sent := due
		if wait := time.Until(due); wait > 0 {
			time.Sleep(wait)
			sent = time.Now()
		}
		select {
		case <-stop:
			return samples, nil
		default:
		}
		hit, err := c.Lookup(ctx, int64(o.hashes*blockTokens), netproto.NewHashes(keys, hashLen))
		if err != nil {
			return nil, err
		}
		if hit.Tokens != int64(o.hashes*blockTokens) {
			return nil, fmt.Errorf("a lookup of %d stored blocks hits %d tokens", o.hashes, hit.Tokens)
		}
		samples = append(samples, sample{sent, time.Since(sent)})
	}
}

// margin is left out at both ends of a stretch of time, as the times of the log are rounded.
const margin = 20 * time.Millisecond

// measurePairs looks up until there are as many pairs as wanted.
func measurePairs(ctx context.Context, s *serverProcess, o options, chains int) ([]pair, error) {
	stop := make(chan struct{})
	group, ctx := errgroup.WithContext(ctx)
	of := make([][]sample, o.conns)
	for i := range of {
		group.Go(func() (err error) {
			of[i], err = lookups(ctx, stop, s.address, o, chains, i)
			return err
		})
	}
	var written []logLine
	group.Go(func() error {
		defer close(stop)
		for len(written) < o.pairs+2 { // the first one may have begun before the load did
			select {
			case line, ok := <-s.written:
				if !ok {
					return errors.New("the server has ended")
				}
				if line.Entries >= chainLen*chains {
					written = append(written, line)
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return pairsOf(written, slices.Concat(of...))
}

// pairsOf returns the pairs of all snapshots but the first and the last one.
func pairsOf(written []logLine, all []sample) (pairs []pair, err error) {
	for i, w := range written[1 : len(written)-1] {
		next := written[i+2]
		took := seconds(w.Seconds)
		pause := next.Time.Add(-seconds(next.Seconds)).Sub(w.Time)
		if pause < took {
			took = pause // the ends of both are left out
		}
		p := pair{
			Seconds: w.Seconds,
			During:  summarize(all, w.Time.Add(-seconds(w.Seconds)), w.Time),
			Pause:   summarize(all, w.Time.Add((pause-took)/2), w.Time.Add((pause+took)/2)),
		}
		if p.During.Lookups < 100 || p.Pause.Lookups < 100 {
			return nil, fmt.Errorf("%d and %d lookups in a pair: raise --rate or --entries", p.During.Lookups, p.Pause.Lookups)
		}
		p.Ratio = p.During.P99 / p.Pause.P99
		pairs = append(pairs, p)
	}
	return pairs, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// summarize returns the latency of the lookups that were sent in a stretch of time, less the margins.
func summarize(samples []sample, from, to time.Time) latency {
	var took []time.Duration
	for _, s := range samples {
		if s.sent.After(from.Add(margin)) && s.sent.Before(to.Add(-margin)) {
			took = append(took, s.took)
		}
	}
	if len(took) == 0 {
		return latency{}
	}
	slices.Sort(took)
	at := func(percent int) float64 { // the smallest that percent of them do not exceed
		return float64(took[(len(took)*percent+99)/100-1].Nanoseconds()) / 1000
	}
	return latency{Lookups: len(took), P50: at(50), P99: at(99), Max: at(100)}
}

// median returns the middle one, or the mean of the two in the middle.
func median(numbers []float64) float64 {
	slices.Sort(numbers)
	n := len(numbers)
	return (numbers[(n-1)/2] + numbers[n/2]) / 2
}
