//go:build linux

package crowd

import (
	"context"
	"time"
)

// question asks once for the hit of a turn, in tokens. It was due at a time. waited says whether the scheduler waits for the answer.
type question func(ctx context.Context, due time.Time, waited bool) (hit int, err error)

// The plug-in gives a hit again for maxAge, and asks for it again after half of that. A hit that may grow is asked for again
// after refreshAfter. See remembered_hits.py.
const (
	maxAge       = time.Second
	refreshAfter = 100 * time.Millisecond
)

// askEachStep asks as vLLM's scheduler does: at each step until the turn is scheduled, and it waits for the answer. The turn
// arrives at a time and waits for a number of steps. The last answer counts.
func askEachStep(ctx context.Context, arrives time.Time, wait int, ask question) (hit int, err error) {
	for due, step := arrives, 0; ; step++ {
		if err := sleepUntil(ctx, due); err != nil {
			return 0, err
		}
		if hit, err = ask(ctx, due, true); err != nil || step == wait {
			return hit, err
		}
		due = nextStep(due)
	}
}

// askBeside asks as vLLM's scheduler does with lookup_async: a step finds the answer to what an earlier step has asked, and
// the step after that asks again, until a step with an answer can schedule the turn.
func askBeside(ctx context.Context, arrives time.Time, wait int, ask question) (hit int, err error) {
	for due, step := arrives, 0; ; {
		if err := sleepUntil(ctx, due); err != nil {
			return 0, err
		}
		done := make(chan struct{})
		asked := due
		go func() {
			defer close(done)
			hit, err = ask(ctx, asked, true)
		}()
		for answered := false; !answered; {
			step++
			due = nextStep(due)
			slept := sleepUntil(ctx, due)
			select {
			case <-done:
				answered = true
			default:
			}
			if slept != nil {
				<-done
				return 0, slept
			}
		}
		if err != nil || step >= wait {
			return hit, err
		}
		step++
		due = nextStep(due)
	}
}

// askRemembering asks as the plug-in does: once, and while the turn waits again in the background, without delay for the
// scheduler. full is the most tokens that a hit can have.
func askRemembering(ctx context.Context, arrives time.Time, wait, full int, ask question) (hit int, err error) {
	var asked time.Time
	for due, step := arrives, 0; ; step++ {
		if err := sleepUntil(ctx, due); err != nil {
			return 0, err
		}
		remembered := step > 0 && due.Sub(asked) < maxAge
		if !remembered {
			if hit, err = ask(ctx, due, true); err != nil {
				return 0, err
			}
			asked = due
		}
		if step == wait {
			return hit, nil
		}
		after := maxAge / 2
		if hit < full {
			after = refreshAfter
		}
		if remembered && due.Sub(asked) >= after { // the next step finds the answer
			if hit, err = ask(ctx, due, false); err != nil {
				return 0, err
			}
			asked = due
		}
		due = nextStep(due)
	}
}

// nextStep returns when the step after one begins: later if that took longer than a step.
func nextStep(due time.Time) time.Time {
	next := due.Add(stepPeriod)
	if now := time.Now(); now.After(next) {
		return now
	}
	return next
}

// sleepUntil sleeps until a time, or fails with the cause of ctx's end.
func sleepUntil(ctx context.Context, due time.Time) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Until(due)):
		return nil
	}
}
