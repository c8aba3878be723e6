package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hitline/hitline/bench/workload"

	"golang.org/x/sync/errgroup"

	"github.com/hitline/hitline/bench/measure"
)

// measure.ErrOptions marks options that contradict themselves.
var ErrOptions = errors.New("bench: bad options")

// ReplayOptions says what to replay and how to judge the answers.
type ReplayOptions struct {
	Trace           workload.Trace
	HashBlockTokens int           // tokens one hash covers; divides workload.BlockTokens
	Limit           int           // only so many requests, the first ones; 0 means all
	Timeout         time.Duration // for each lookup and each store; positive
	AllowEvicted    bool          // the index is bounded: an answer below the model is right

	// Speed is how many times faster than recorded the requests come: at 1 they
	// keep the trace's timestamps, at 100 they are compressed a hundredfold, at 0
	// each follows the answer to the one before. With a speed, a lookup's latency
	// counts from when it was due, so that waiting for a slow one before it counts.
	Speed float64
	// Split deals the requests of the trace out to the connections, in place of
	// replaying it whole over each; see "Splitting a trace" above.
	Split bool
	// Interval is the length of [Report.Windows], in time of the trace with a speed
	// and else of the clock; 0 chooses one that makes at most 100 of them. It is
	// doubled as often as more than 1,000 windows would come of it.
	Interval time.Duration

	// OnProblem, if set, is told of each mismatch (a *[MismatchError]) and each
	// refusal (wraps [ErrRefused]). Calls do not overlap.
	OnProblem func(error)
	// OnRequest, if set, is called after each request, with its time since the
	// trace's first one, or 0 without a speed. Calls of different connections
	// overlap.
	OnRequest func(at time.Duration)

	nap func(time.Duration) // what replaces the exact wait, in tests
}

// Validate returns an error that wraps [ErrOptions] unless the options make sense.
func (o ReplayOptions) Validate() error {
	switch n := o.HashBlockTokens; {
	case n < 1 || workload.BlockTokens%n != 0:
		return fmt.Errorf("%w: hash blocks of %d tokens; the number must divide %d", measure.ErrOptions, n, workload.BlockTokens)
	case o.Limit < 0:
		return fmt.Errorf("%w: a limit of %d requests; give 0 for all of them", measure.ErrOptions, o.Limit)
	case o.Timeout <= 0:
		return fmt.Errorf("%w: a timeout of %v; it must be positive", measure.ErrOptions, o.Timeout)
	case !(o.Speed >= 0) || math.IsInf(o.Speed, 1): // so that no number is refused too
		return fmt.Errorf("%w: a speed of %v; give 1 for the trace's own, 0 for flat out", measure.ErrOptions, o.Speed)
	case o.Interval < 0:
		return fmt.Errorf("%w: an interval of %v; give 0 to have one chosen", measure.ErrOptions, o.Interval)
	case o.Trace.Open == nil:
		return fmt.Errorf("%w: no trace", measure.ErrOptions)
	}
	return nil
}

// CountRequests reads the trace as [Replay] will and returns how many requests it
// has, all of which one connection will make, or all together if they split it.
// Errors are those of Replay that concern the options, the trace and ctx.
func (o ReplayOptions) CountRequests(ctx context.Context) (int, error) {
	n := 0
	err := o.each(ctx, func(workload.Request) error {
		n++
		return nil
	})
	return n, err
}

// each calls f for each request, as [Trace.Each] does, with its time if it has to
// keep to it.
func (o ReplayOptions) each(ctx context.Context, f func(workload.Request) error) error {
	if err := o.Validate(); err != nil {
		return err
	}
	return o.Trace.Requests(ctx, o.HashBlockTokens, o.Limit, o.Speed > 0, f)
}

// Replay replays the whole trace over each of the targets at once, under a salt
// for each, or splits it over them, and reports the sums. The index must hold none
// of the hashes at the start. Mismatches and refusals are counted, told to
// OnProblem, and are not an error.
//
// On an error the report is partial and covers what was done until then. The
// error wraps [ErrOptions] or [ErrTrace]; or it is the cause of ctx being done;
// or it wraps what a target failed with, [context.DeadlineExceeded] if there was
// no answer in time. The first connection to fail ends the others.
func Replay(ctx context.Context, o ReplayOptions, targets ...Target) (Report, error) {
	if len(targets) == 0 {
		return Report{}, fmt.Errorf("%w: no connections", measure.ErrOptions)
	}
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	setup := measure.NewSetup(0)
	o.OnProblem = serial(o.OnProblem)
	if o.nap == nil {
		o.nap = measure.Nap
	}
	opening, err := o.opening(ctx)
	line := newTimeline(o.Interval, o.HashBlockTokens)
	pace := pace{start: time.Now(), speed: o.Speed, nap: o.nap}
	players := make([]*player, len(targets))
	for i, t := range targets {
		players[i] = newPlayer(i, t, o, pace, line)
	}
	switch {
	case err != nil:
	case o.Split:
		err = newSplit(o, players, opening).run(ctx)
	default:
		err = playWhole(ctx, o, players)
	}
	report := sum(o, players, time.Since(pace.start))
	report.addWindows(line)
	report.Setup, report.Partial = setup, err != nil
	return report, err
}

// playWhole has each player replay the whole trace.
func playWhole(ctx context.Context, o ReplayOptions, players []*player) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range players {
		group.Go(func() error {
			return o.each(ctx, func(r workload.Request) error { return p.play(ctx, r) })
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
