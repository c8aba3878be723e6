package replay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"

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
	root   [workload.HashLen]byte
	pace   pace
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

func newPlayer(conn int, t Target, o ReplayOptions, pace pace, line *timeline) *player {
	salt := conn
	if o.Split { // one replay, not one for each connection
		salt = 0
	}
	return &player{
		o: o, conn: conn, target: t, root: workload.ChainRoot(salt), pace: pace,
		latency: hdrhistogram.New(1, maxLatency, 3), timeline: line,
	}
}

// play makes one request when it is due: lookup, check, store. It returns an error
// if the connection cannot be used any more or ctx is done.
func (p *player) play(ctx context.Context, r workload.Request) error {
	perID := workload.BlockTokens / p.o.HashBlockTokens
	p.hashes = workload.AppendChain(p.hashes[:0], p.root, r.IDs, perID) // before the clock starts
	if err := p.pace.wait(ctx, r.At); err != nil {
		return err
	}
	got, err := p.lookup(ctx, r)
	refused, err := p.judge(ctx, r.Number, "lookup", err)
	if err != nil {
		return err
	}
	if !refused {
		p.check(r.Number, uint32(p.model.Known(r.IDs)*workload.BlockTokens), uint32(got.tokens))
		record(p.latency, got.took)
		if err := p.askAgain(ctx, r, uint32(got.tokens)); err != nil {
			return err
		}
	}
	p.totals.Requests++
	p.totals.Blocks += int64(len(r.IDs) * perID)
	got.blocks, got.answered = int64(len(r.IDs)*perID), !refused
	p.timeline.add(got)
	return p.finish(ctx, r)
}

// finish stores what was looked up.
func (p *player) finish(ctx context.Context, r workload.Request) error {
	if len(r.IDs) > 0 { // an empty store is an error on the wire
		refused, err := p.judge(ctx, r.Number, "store", p.store(ctx))
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

// lookup asks for the present hashes and times the answer: from when it was due,
// as a caller would who does not wait for those before, or flat out from when it
// is sent.
func (p *player) lookup(ctx context.Context, r workload.Request) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	length := workload.HashLen
	if len(p.hashes) == 0 {
		length = 0
	}
	from := time.Now()
	at := from.Sub(p.pace.start)
	if p.pace.speed > 0 {
		sent := from
		from, at = p.pace.due(r.At), r.At
		p.behind = max(p.behind, sent.Sub(from))
	}
	tokens, err := p.target.Lookup(ctx, uint32(len(r.IDs)*workload.BlockTokens), p.hashes, length)
	return sample{at: at, took: time.Since(from), tokens: int64(tokens)}, err
}

// askAgain asks by all hashes what was asked by anchors.
func (p *player) askAgain(ctx context.Context, r workload.Request, hit uint32) error {
	target, ok := p.target.(AnchoredTarget)
	if !ok || len(p.hashes) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	full, err := target.LookupInFull(ctx, uint32(len(r.IDs)*workload.BlockTokens), p.hashes, workload.HashLen)
	if refused, err := p.judge(ctx, r.Number, "lookup in full", err); err != nil || refused {
		return err
	}
	if full != hit {
		p.totals.Mismatches++
		p.o.OnProblem(&MismatchError{
			Trace: p.o.Trace.Name, Request: r.Number, Conn: p.conn, Expected: full, Got: hit,
			Reason: "by anchors; what was expected is the answer by all hashes",
		})
	}
	return nil
}

// store stores the present hashes.
func (p *player) store(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	return p.target.Store(ctx, p.hashes, workload.HashLen)
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
	if errors.Is(err, measure.ErrRefused) {
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
