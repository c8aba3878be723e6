package replay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
)

// WrongError describes an answer that the model contradicts.
type WrongError struct {
	Trace    string
	Request  int    // from 1; also the line in the trace
	Expected uint32 // tokens
	Got      uint32 // tokens
	Reason   string // how the answer is wrong and what may be behind it
}

// Error returns one line.
func (e *WrongError) Error() string {
	return fmt.Sprintf("%s:%d: expected %d hit tokens, got %d: %s", e.Trace, e.Request, e.Expected, e.Got, e.Reason)
}

// player replays requests over one connection. Not safe for concurrent use.
type player struct {
	o      Options
	target Target
	start  time.Time                       // of the replay
	hashes []byte                          // of the present request; reused
	stored map[[workload.HashLen]byte]bool // the last hashes of the ids that were stored

	report  Report
	latency *hdrhistogram.Histogram // of lookups, in nanoseconds
}

// maxLatency is the longest lookup told apart, in nanoseconds: longer than any
// timeout that makes sense.
const maxLatency = int64(time.Hour)

func newPlayer(t Target, o Options) *player {
	report := Report{Setup: measure.NewSetup(0), Trace: string(o.Trace), BlockSize: o.BlockSize}
	return &player{o: o, target: t, start: time.Now(), report: report, stored: map[[workload.HashLen]byte]bool{}, latency: hdrhistogram.New(1, maxLatency, 3)}
}

// play makes one request: lookup, check, store. It returns an error
// if the connection cannot be used any more or ctx is done.
func (p *player) play(ctx context.Context, r workload.Request) error {
	p.hashes = workload.AppendHashes(p.hashes[:0], r.IDs, p.o.BlockSize) // before the clock starts
	tokens, took, err := p.lookup(ctx, r)
	refused, err := p.judge(ctx, r, "lookup", err)
	if err != nil {
		return err
	}
	if !refused {
		p.check(r, p.expected(r), tokens)
		_ = p.latency.RecordValue(min(max(int64(took), 1), maxLatency)) // within bounds it does not fail
	}
	p.report.Requests++
	p.report.Blocks += int64(len(p.hashes) / workload.HashLen)
	return p.store(ctx, r)
}

// lookup asks for the present hashes and times the answer.
func (p *player) lookup(ctx context.Context, r workload.Request) (tokens uint32, took time.Duration, err error) {
	from := time.Now()
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	length := workload.HashLen
	if len(p.hashes) == 0 {
		length = 0
	}
	tokens, err = p.target.Lookup(ctx, uint32(len(r.IDs)*workload.BlockTokens), p.hashes, length)
	return tokens, time.Since(from), err
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
			for i := range r.IDs {
				p.stored[p.lastHash(i)] = true
			}
		}
	}
	p.o.OnRequest()
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
	err = fmt.Errorf("%s:%d: %s: %w", p.o.Trace, r.Number, call, err)
	if !errors.Is(err, measure.ErrRefused) {
		return false, err
	}
	p.report.Refused++
	p.o.OnProblem(err)
	return true, nil
}

// lastHash returns the last hash of id i of the present request. It stands for all ids up to that one.
func (p *player) lastHash(i int) [workload.HashLen]byte {
	end := (i + 1) * workload.BlockTokens / p.o.BlockSize * workload.HashLen
	return [workload.HashLen]byte(p.hashes[end-workload.HashLen : end])
}

// expected returns the right answer to a request, in tokens.
func (p *player) expected(r workload.Request) uint32 {
	known := 0
	for known < len(r.IDs) && p.stored[p.lastHash(known)] {
		known++
	}
	tokens := known * workload.BlockTokens
	if p.o.LeavesLast && known == len(r.IDs) {
		tokens = max(tokens-p.o.BlockSize, 0)
	}
	return uint32(tokens)
}

// check compares an answer with the model's, both in tokens.
func (p *player) check(r workload.Request, expected, got uint32) {
	p.report.HitTokens += int64(got)
	switch {
	case got > expected:
		p.wrong(r, expected, got, "above what was stored; was the index empty at the start?")
	case got%uint32(p.o.BlockSize) != 0:
		p.wrong(r, expected, got, fmt.Sprintf("no multiple of %d", p.o.BlockSize))
	case got < expected && !p.o.AllowEvicted:
		p.wrong(r, expected, got, "below what was stored; if the index is bounded, give --allow-evicted")
	}
}

// wrong counts and tells an answer that is not right.
func (p *player) wrong(r workload.Request, expected, got uint32, reason string) {
	p.report.Wrong++
	p.o.OnProblem(&WrongError{string(p.o.Trace), r.Number, expected, got, reason})
}

// finish returns the report of a replay that has ended.
func (p *player) finish() Report {
	r, took := p.report, time.Since(p.start)
	r.HitBlocks = r.HitTokens / int64(r.BlockSize)
	if r.Blocks > 0 {
		r.HitRatio = measure.Round(float64(r.HitBlocks)/float64(r.Blocks), 6)
	}
	r.Seconds = measure.Round(took.Seconds(), 6)
	r.RequestsPerS = measure.Round(float64(r.Requests)/max(took.Seconds(), 1e-9), 1)
	r.Latency = measure.LatencyOf(p.latency)
	return r
}
