package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// ErrOptions marks options that contradict themselves.
var ErrOptions = errors.New("bench: bad options")

// ReplayOptions says what to replay and how to judge the answers.
type ReplayOptions struct {
	Trace           Trace
	HashBlockTokens int           // tokens one hash covers; divides BlockTokens
	Limit           int           // only so many requests, the first ones; 0 means all
	Timeout         time.Duration // for each lookup and each store; positive
	AllowEvicted    bool          // the index is bounded: an answer below the model is right

	// OnProblem, if set, is told of each mismatch (a *[MismatchError]) and each
	// refusal (wraps [ErrRefused]). Calls do not overlap.
	OnProblem func(error)
	// OnRequest, if set, is called after each request. Calls of different
	// connections overlap.
	OnRequest func()
}

// Validate returns an error that wraps [ErrOptions] unless the options make sense.
func (o ReplayOptions) Validate() error {
	switch n := o.HashBlockTokens; {
	case n < 1 || BlockTokens%n != 0:
		return fmt.Errorf("%w: hash blocks of %d tokens; the number must divide %d", ErrOptions, n, BlockTokens)
	case o.Limit < 0:
		return fmt.Errorf("%w: a limit of %d requests; give 0 for all of them", ErrOptions, o.Limit)
	case o.Timeout <= 0:
		return fmt.Errorf("%w: a timeout of %v; it must be positive", ErrOptions, o.Timeout)
	case o.Trace.Open == nil:
		return fmt.Errorf("%w: no trace", ErrOptions)
	}
	return nil
}

// CountRequests reads the trace as [Replay] will and returns how many requests
// one connection will make of it. Errors are those of Replay that concern the
// options, the trace and ctx.
func (o ReplayOptions) CountRequests(ctx context.Context) (int, error) {
	n := 0
	err := o.each(ctx, func(int, []uint64) error {
		n++
		return nil
	})
	return n, err
}

// each calls f for each request, as [Trace.Each] does.
func (o ReplayOptions) each(ctx context.Context, f func(number int, ids []uint64) error) error {
	if err := o.Validate(); err != nil {
		return err
	}
	return o.Trace.Each(ctx, o.HashBlockTokens, o.Limit, f)
}

// Replay replays the whole trace over each of the targets at once, under a salt
// for each, and reports the sums. The index must hold none of the hashes at the
// start. Mismatches and refusals are counted, told to OnProblem, and are not an
// error.
//
// On an error the report is partial and covers what was done until then. The
// error wraps [ErrOptions] or [ErrTrace]; or it is the cause of ctx being done;
// or it wraps what a target failed with, [context.DeadlineExceeded] if there was
// no answer in time. The first connection to fail ends the others.
func Replay(ctx context.Context, o ReplayOptions, targets ...Target) (Report, error) {
	if len(targets) == 0 {
		return Report{}, fmt.Errorf("%w: no connections", ErrOptions)
	}
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	o.OnProblem = serial(o.OnProblem)
	players := make([]*player, len(targets))
	group, groupCtx := errgroup.WithContext(ctx)
	start := time.Now()
	for i, t := range targets {
		p := newPlayer(i, t, o)
		players[i] = p
		group.Go(func() error {
			return o.each(groupCtx, func(number int, ids []uint64) error {
				return p.play(groupCtx, number, ids)
			})
		})
	}
	err := group.Wait()
	report := sum(players)
	report.Trace, report.HashBlockTokens = o.Trace.Name, o.HashBlockTokens
	report.Seconds = seconds(time.Since(start))
	report.Partial = err != nil
	return report, err
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
