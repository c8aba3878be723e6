// Package replay replays a recorded trace to a server and checks every answer. No promise: it is
// internal to this module, and its API may change in any release.
//
// [Run] takes the requests of a trace in file order. For each it looks up all blocks, compares
// the answer with a model of its own, and then stores the blocks. What an unbounded index answers is
// known exactly; of one that is bounded, how much it may answer at most. It opens no sockets: it
// drives a [Target].
//
//   - id: one number of a trace's hash_ids, a block of 512 tokens in its context. All
//     ids count as full blocks, the last of a request too. An id becomes
//     512 / BlockSize hashes, see workload.AppendChain.
//   - block: what one hash covers.
//   - connection: one Target. Each replays the whole trace under a salt of its own, so
//     that they share no hash and a model for each is exact.
//   - due: when a request is to be sent in a replay at a speed. A lookup's latency then
//     counts from when it was due, so that waiting for a late answer before it counts.
package replay

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
)

// Target is one connection to the service under test. It is used by one
// goroutine at a time. Implementations must not keep the hashes or keys, nor
// read them after the call has returned: the caller overwrites them.
//
// Any error but one that wraps [measure.ErrRefused] means that the connection cannot be
// used any more.
type Target interface {
	// Lookup asks how many leading tokens of a prompt of numTokens tokens are
	// present. hashes holds the prompt's hashes, hashLen bytes each, joined in
	// order; hashLen is 0 if there are none.
	Lookup(ctx context.Context, numTokens uint32, hashes []byte, hashLen int) (tokens uint32, err error)

	// Store says that consecutive blocks are present now, for group 0 and rank 0.
	// keys holds at least one hash of hashLen bytes, joined in order.
	Store(ctx context.Context, keys []byte, hashLen int) error
}

// Options says what to replay and how to judge the answers.
type Options struct {
	Trace        workload.Trace
	BlockSize    int           // tokens that one hash covers; divides workload.BlockTokens
	Requests     int           // the first ones that are made; 0 means all
	Timeout      time.Duration // for each lookup and each store; positive
	AllowEvicted bool          // the index is bounded: an answer below the model is right
	LeavesLast   bool          // a prompt that is there whole hits all but its last block, as in vLLM

	// Speed is how many times faster than recorded the requests come: at 1 they
	// keep the trace's timestamps, at 100 they are compressed a hundredfold, at 0
	// each follows the answer to the one before.
	Speed float64

	// OnProblem, if set, is told of each wrong answer (a *[WrongError]) and each
	// refusal (wraps [measure.ErrRefused]). Calls do not overlap.
	OnProblem func(error)
	// OnNote, if set, is told by CountRequests what is odd in the trace.
	OnNote func(string)
	// OnRequest, if set, is called after each request, with its time since the
	// trace's first one, or 0 without a speed. Calls of different connections
	// overlap.
	OnRequest func(at time.Duration)

	nap    func(time.Duration) // measure.Nap, but for tests
	window time.Duration       // first length of [Report.Windows]: a millisecond, but for tests
}

// Validate returns an error that wraps [measure.ErrOptions] unless the options make sense.
func (o Options) Validate() error {
	switch n := o.BlockSize; {
	case n < 1 || workload.BlockTokens%n != 0:
		return measure.BadOptions("a block size of %d tokens; it must divide %d", n, workload.BlockTokens)
	case o.Requests < 0:
		return measure.BadOptions("%d requests; give 0 for all of them", o.Requests)
	case !(o.Speed >= 0) || math.IsInf(o.Speed, 1): // so that no number is refused too
		return measure.BadOptions("a speed of %v; give 1 for the trace's own, 0 for flat out", o.Speed)
	case o.Trace == "":
		return measure.BadOptions("no trace")
	}
	return measure.CheckPositive("a timeout", o.Timeout)
}

// CountRequests reads the trace as [Run] will and returns how many requests each connection will
// make. Errors are those of Run that concern the options, the trace and ctx.
func (o Options) CountRequests(ctx context.Context) (int, error) {
	n, misfits := 0, 0
	var first workload.Request
	err := o.each(ctx, func(r workload.Request) error {
		n++
		if r.TokensFit() {
			return nil
		}
		if misfits++; misfits == 1 {
			first = workload.Request{Number: r.Number, Tokens: r.Tokens, IDs: slices.Clone(r.IDs)}
		}
		return nil
	})
	if misfits > 0 && o.OnNote != nil {
		o.OnNote(fmt.Sprintf("%s:%d: input_length %d does not fit %d hash_ids of %d tokens, nor do %d more of %d; the ids are replayed",
			o.Trace, first.Number, first.Tokens, len(first.IDs), workload.BlockTokens, misfits-1, n))
	}
	return n, err
}

// each calls f for each request, with its time if it has to keep to it.
func (o Options) each(ctx context.Context, f func(workload.Request) error) error {
	if err := o.Validate(); err != nil {
		return err
	}
	return o.Trace.Requests(ctx, o.BlockSize, o.Requests, o.Speed > 0, f)
}

// Run replays the whole trace over each target at once and reports the sums. The index must hold
// none of the hashes at the start. Wrong and refused answers are counted, told to OnProblem, and
// are no error.
//
// On an error the report is partial and covers what was done until then. The
// error wraps [measure.ErrOptions] or [workload.ErrTrace]; or it is the cause of ctx being
// done; or it wraps what a target failed with, [context.DeadlineExceeded] if there was
// no answer in time. The first connection to fail ends the others. Run's goroutines, one for
// each connection, have ended when it returns.
func Run(ctx context.Context, o Options, targets ...Target) (Report, error) {
	if len(targets) == 0 {
		return Report{}, measure.BadOptions("no connections")
	}
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	setup := measure.NewSetup(0)
	o.OnProblem = serial(o.OnProblem)
	if o.nap == nil {
		o.nap = measure.Nap
	}
	line := newTimeline(cmp.Or(o.window, time.Millisecond), o.BlockSize)
	start := time.Now()
	players := make([]*player, len(targets))
	for i, t := range targets {
		players[i] = newPlayer(i, t, o, start, line)
	}
	err := play(ctx, players)
	report := sum(o, players, time.Since(start))
	report.addWindows(line)
	report.Setup, report.Partial = setup, err != nil
	return report, err
}

// play has each player replay the trace.
func play(ctx context.Context, players []*player) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range players {
		group.Go(func() error {
			return p.o.each(ctx, func(r workload.Request) error { return p.play(ctx, r) })
		})
	}
	return group.Wait()
}

// serial returns f with calls made one at a time; a nil f does nothing.
func serial(f func(error)) func(error) {
	if f == nil {
		return func(error) {}
	}
	var mu sync.Mutex
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		f(err)
	}
}
