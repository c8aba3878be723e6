package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
)

// WrongError describes an answer that the model contradicts.
type WrongError struct {
	Trace      string
	Request    int    // from 1; also the line in the trace
	Connection int    // from 0
	Expected   uint32 // tokens
	Got        uint32 // tokens
	Reason     string // how the answer is wrong and what may be behind it
}

// Error returns one line.
func (e *WrongError) Error() string {
	return fmt.Sprintf("%s:%d: request %d on connection %d: expected %d hit tokens, got %d: %s",
		e.Trace, e.Request, e.Request, e.Connection, e.Expected, e.Got, e.Reason)
}

// player replays requests over one connection. Not safe for concurrent use.
type player struct {
	o      Options
	number int // of the connection
	target Target
	root   [workload.HashLen]byte
	start  time.Time // of the replay
	model  workload.Model
	hashes []byte // of the present request; reused

	totals   Report                  // the counters only
	latency  *hdrhistogram.Histogram // of lookups, in nanoseconds
	behind   time.Duration           // the most that a lookup was sent after it was due
	timeline *timeline               // shared by the players
}

// maxLatency is the longest lookup told apart, in nanoseconds: longer than any
// timeout that makes sense. Three digits up to there take 270 KB a connection.
const maxLatency = int64(time.Hour)

func newPlayer(number int, t Target, o Options, start time.Time, line *timeline) *player {
	return &player{
		o: o, number: number, target: t, root: workload.ChainRoot(number), start: start,
		latency: hdrhistogram.New(1, maxLatency, 3), timeline: line,
	}
}

// due returns when a request at the time at of the trace is to be sent, at a speed.
func (p *player) due(at time.Duration) time.Time {
	// A wait past any calendar is cut to one that a time.Time can hold.
	return p.start.Add(time.Duration(min(float64(at)/p.o.Speed, math.MaxInt64/4)))
}

// play makes one request when it is due: lookup, check, store. It returns an error
// if the connection cannot be used any more or ctx is done.
func (p *player) play(ctx context.Context, r workload.Request) error {
	perID := workload.BlockTokens / p.o.BlockSize
	p.hashes = workload.AppendChain(p.hashes[:0], p.root, r.IDs, perID) // before the clock starts
	if p.o.Speed > 0 {
		if err := measure.Until(ctx, p.due(r.At), p.o.nap); err != nil {
			return err
		}
	}
	got, err := p.lookup(ctx, r)
	refused, err := p.judge(ctx, r, "lookup", err)
	if err != nil {
		return err
	}
	if !refused {
		p.check(r, p.expected(r), uint32(got.tokens))
		record(p.latency, got.took)
	}
	got.blocks, got.answered = int64(len(r.IDs)*perID), !refused
	p.totals.Requests++
	p.totals.Blocks += got.blocks
	p.timeline.add(got)
	return p.store(ctx, r)
}

// lookup asks for the present hashes and times the answer: from when it was due,
// as a caller would who does not wait for those before, or flat out from when it
// is sent.
func (p *player) lookup(ctx context.Context, r workload.Request) (sample, error) {
	from := time.Now()
	at := from.Sub(p.start)
	if p.o.Speed > 0 {
		sent := from
		from, at = p.due(r.At), r.At
		p.behind = max(p.behind, sent.Sub(from))
	}
	tokens, err := p.ask(ctx, r)
	return sample{at: at, took: time.Since(from), tokens: int64(tokens)}, err
}

// ask makes a lookup of the present hashes.
func (p *player) ask(ctx context.Context, r workload.Request) (uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	length := workload.HashLen
	if len(p.hashes) == 0 {
		length = 0
	}
	return p.target.Lookup(ctx, uint32(len(r.IDs)*workload.BlockTokens), p.hashes, length)
}

// store stores what was looked up.
func (p *player) store(ctx context.Context, r workload.Request) error {
	if len(r.IDs) > 0 { // an empty store is an error on the wire
		storeCtx, cancel := context.WithTimeout(ctx, p.o.Timeout)
		err := p.target.Store(storeCtx, p.hashes, workload.HashLen)
		cancel()
		refused, err := p.judge(ctx, r, "store", err)
		if err != nil {
			return err
		}
		if !refused {
			p.model.Add(r.IDs)
		}
	}
	if p.o.OnRequest != nil {
		p.o.OnRequest(r.At)
	}
	return nil
}

// judge sorts what a call failed with: it counts a refusal and passes on what
// ends the replay.
func (p *player) judge(ctx context.Context, r workload.Request, call string, err error) (refused bool, fatal error) {
	if err == nil {
		return false, nil
	}
	if ctx.Err() != nil { // told to stop: the connection is not to blame
		return false, context.Cause(ctx)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) { // the socket's may come first
		err = fmt.Errorf("no answer within %v: %w", p.o.Timeout, err)
	}
	err = fmt.Errorf("%s:%d: %s of request %d on connection %d: %w", p.o.Trace, r.Number, call, r.Number, p.number, err)
	if !errors.Is(err, measure.ErrRefused) {
		return false, err
	}
	p.totals.Refused++
	p.o.OnProblem(err)
	return true, nil
}

// expected returns the right answer to a request, in tokens.
func (p *player) expected(r workload.Request) uint32 {
	known := p.model.Known(r.IDs)
	tokens := known * workload.BlockTokens
	if p.o.LeavesLast && known == len(r.IDs) {
		tokens = max(tokens-p.o.BlockSize, 0)
	}
	return uint32(tokens)
}

// check compares an answer with the model's, both in tokens.
func (p *player) check(r workload.Request, expected, got uint32) {
	p.totals.HitTokens += int64(got)
	switch {
	case got > expected:
		p.wrong(r, expected, got, "above what was stored; was the index empty at the start?")
	case got%uint32(p.o.BlockSize) != 0:
		p.wrong(r, expected, got, fmt.Sprintf("no multiple of %d", p.o.BlockSize))
	case got < expected && !p.o.AllowEvicted:
		p.wrong(r, expected, got, "below what was stored; if the index is bounded, allow for evictions")
	}
}

// wrong counts and tells an answer that is not right.
func (p *player) wrong(r workload.Request, expected, got uint32, reason string) {
	p.totals.Wrong++
	p.o.OnProblem(&WrongError{string(p.o.Trace), r.Number, p.number, expected, got, reason})
}
