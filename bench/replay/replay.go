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
//     512 / BlockSize hashes, see workload.AppendHashes.
//   - block: what one hash covers.
package replay

import (
	"context"
	"time"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
)

// Target is a connection to the service under test. Implementations must not keep the hashes or keys,
// nor read them after the call has returned: the caller overwrites them.
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

// Options says what to replay and how to judge the answers. OnProblem and OnRequest must be set.
type Options struct {
	Trace        workload.Trace
	BlockSize    int           // tokens that one hash covers; divides workload.BlockTokens
	Requests     int           // the first ones that are made; 0 means all
	Timeout      time.Duration // for each lookup and each store; positive
	AllowEvicted bool          // the index is bounded: an answer below the model is right
	LeavesLast   bool          // a prompt that is there whole hits all but its last block, as in vLLM

	// OnProblem is told of each wrong answer (a *[WrongError]) and each refusal (wraps [measure.ErrRefused]).
	OnProblem func(error)
	// OnRequest is called after each request.
	OnRequest func()
}

// Validate returns an error that wraps [measure.ErrOptions] unless the options make sense.
func (o Options) Validate() error {
	switch n := o.BlockSize; {
	case n < 1 || workload.BlockTokens%n != 0:
		return measure.BadOptions("a block size of %d tokens; it must divide %d", n, workload.BlockTokens)
	case o.Requests < 0:
		return measure.BadOptions("%d requests; give 0 for all of them", o.Requests)
	}
	return measure.CheckPositive("a timeout", o.Timeout)
}

// CountRequests reads the trace as [Run] will and returns how many requests it will make. Errors are
// those of Run that concern the options, the trace and ctx.
func (o Options) CountRequests(ctx context.Context) (n int, err error) {
	err = o.each(ctx, func(workload.Request) error { n++; return nil })
	return n, err
}

// each calls f for each request.
func (o Options) each(ctx context.Context, f func(workload.Request) error) error {
	if err := o.Validate(); err != nil {
		return err
	}
	return o.Trace.Requests(ctx, o.BlockSize, o.Requests, f)
}

// Run replays the trace over a target and reports. The index must hold none of the hashes at the start.
// Wrong and refused answers are counted, told to OnProblem, and are no error.
//
// On an error the report is partial and covers what was done until then. The error wraps
// [measure.ErrOptions] or [workload.ErrTrace]; or it is the cause of ctx being done; or it wraps what the
// target failed with, [context.DeadlineExceeded] if there was no answer in time.
func Run(ctx context.Context, o Options, target Target) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	p := newPlayer(target, o)
	err := o.each(ctx, func(r workload.Request) error { return p.play(ctx, r) })
	report := p.finish()
	report.Partial = err != nil
	return report, err
}
