package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// MismatchError describes an answer that the model contradicts.
type MismatchError struct {
	Trace    string
	Request  int    // from 1; also the line in the trace
	Conn     int    // connection, from 0
	Expected uint32 // tokens
	Got      uint32 // tokens
	Reason   string // how the answer is wrong and what may be behind it
}

// Error returns one line.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s:%d: request %d on connection %d: expected %d hit tokens, got %d: %s",
		e.Trace, e.Request, e.Request, e.Conn, e.Expected, e.Got, e.Reason)
}

// player replays requests over one connection. Not safe for concurrent use.
type player struct {
	o      ReplayOptions
	conn   int
	target Target
	root   [hashLen]byte
	model  model
	hashes []byte // of the present request; reused

	totals  Report                  // the counters only
	latency *hdrhistogram.Histogram // of lookups, in nanoseconds
}

// maxLatency is the longest lookup told apart, in nanoseconds: longer than any
// timeout that makes sense. Three digits up to there take 270 KB a connection.
const maxLatency = int64(time.Hour)

func newPlayer(conn int, t Target, o ReplayOptions) *player {
	return &player{
		o: o, conn: conn, target: t, root: chainRoot(conn),
		latency: hdrhistogram.New(1, maxLatency, 3),
	}
}

// play makes one request: lookup, check, store. It returns an error if the
// connection cannot be used any more or ctx is done.
func (p *player) play(ctx context.Context, number int, ids []uint64) error {
	perID := BlockTokens / p.o.HashBlockTokens
	p.hashes = appendChain(p.hashes[:0], p.root, ids, perID) // before the clock starts
	got, err := p.lookup(ctx, uint32(len(ids)*BlockTokens))
	if refused, err := p.judge(ctx, number, "lookup", err); err != nil {
		return err
	} else if !refused {
		p.check(number, uint32(p.model.known(ids)*BlockTokens), got)
	}
	p.totals.Requests++
	p.totals.Blocks += int64(len(ids) * perID)
	if len(ids) > 0 { // an empty store is an error on the wire
		refused, err := p.judge(ctx, number, "store", p.store(ctx))
		if err != nil {
			return err
		}
		if !refused {
			p.model.add(ids)
		}
	}
	if p.o.OnRequest != nil {
		p.o.OnRequest()
	}
	return nil
}

// lookup asks for the present hashes and, if there is an answer, records how
// long it took.
func (p *player) lookup(ctx context.Context, numTokens uint32) (uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	length := hashLen
	if len(p.hashes) == 0 {
		length = 0
	}
	start := time.Now()
	got, err := p.target.Lookup(ctx, numTokens, p.hashes, length)
	took := time.Since(start)
	if err == nil {
		// Within bounds, RecordValue cannot fail.
		_ = p.latency.RecordValue(min(max(int64(took), 1), maxLatency))
	}
	return got, err
}

// store stores the present hashes.
func (p *player) store(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	return p.target.Store(ctx, p.hashes, hashLen)
}

// judge sorts what a call failed with: it counts a refusal and passes on what
// ends the replay.
func (p *player) judge(ctx context.Context, number int, call string, err error) (refused bool, fatal error) {
	if err == nil {
		return false, nil
	}
	if ctx.Err() != nil { // told to stop: the connection is not to blame
		return false, context.Cause(ctx)
	}
	p.totals.Errors++
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) { // the socket's may come first
		err = fmt.Errorf("no answer within %v: %w", p.o.Timeout, err)
	}
	err = fmt.Errorf("%s:%d: %s of request %d on connection %d: %w", p.o.Trace.Name, number, call, number, p.conn, err)
	if errors.Is(err, ErrRefused) {
		p.o.OnProblem(err)
		return true, nil
	}
	return false, err
}

// check compares an answer with the model's, both in tokens.
func (p *player) check(number int, expected, got uint32) {
	p.totals.HitTokens += int64(got)
	reason := ""
	switch {
	case got > expected:
		reason = "above what was stored; was the index empty at the start?"
	case got%uint32(p.o.HashBlockTokens) != 0:
		reason = fmt.Sprintf("no multiple of %d", p.o.HashBlockTokens)
	case got < expected && !p.o.AllowEvicted:
		reason = "below what was stored; if the index is bounded, allow for evictions"
	default:
		return
	}
	p.totals.Mismatches++
	p.o.OnProblem(&MismatchError{
		Trace: p.o.Trace.Name, Request: number, Conn: p.conn,
		Expected: expected, Got: got, Reason: reason,
	})
}

// sum adds up what the players counted and timed.
func sum(players []*player) Report {
	total := Report{Conns: len(players)}
	latency := hdrhistogram.New(1, maxLatency, 3)
	for _, p := range players {
		t := &p.totals
		total.Requests += t.Requests
		total.Blocks += t.Blocks
		total.HitTokens += t.HitTokens
		total.Mismatches += t.Mismatches
		total.Errors += t.Errors
		total.HitBlocks += t.HitTokens / int64(p.o.HashBlockTokens)
		latency.Merge(p.latency)
	}
	total.LookupP50us = micros(latency.ValueAtQuantile(50))
	total.LookupP99us = micros(latency.ValueAtQuantile(99))
	return total
}
