//go:build linux

package crowd

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A way asks at some of a turn's steps, for some of them in the background.
func TestSteps(t *testing.T) {
	const full = 1600
	remembering := func(ctx context.Context, arrives time.Time, wait int, ask question) (int, error) {
		return askRemembering(ctx, arrives, wait, full, ask)
	}
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		ask    func(ctx context.Context, arrives time.Time, wait int, ask question) (int, error)
		wait   int           // steps
		takes  time.Duration // a question
		hit    int
		asks   []time.Duration // since the arrival
		behind int             // of these the scheduler does not wait for
		ends   time.Duration
	}{
		"each step":             {askEachStep, 3, 10 * ms, full, []time.Duration{0, 50 * ms, 100 * ms, 150 * ms}, 0, 160 * ms},
		"each step, none waits": {askEachStep, 0, 10 * ms, full, []time.Duration{0}, 0, 10 * ms},
		"each step, late":       {askEachStep, 2, 70 * ms, full, []time.Duration{0, 70 * ms, 140 * ms}, 0, 210 * ms},
		"beside":                {askBeside, 3, 10 * ms, full, []time.Duration{0, 100 * ms}, 0, 150 * ms},
		"beside, none waits":    {askBeside, 0, 10 * ms, full, []time.Duration{0}, 0, 50 * ms},
		"beside, late":          {askBeside, 1, 70 * ms, full, []time.Duration{0}, 0, 100 * ms},
		"remembering, whole":    {remembering, 8, ms, full, []time.Duration{0}, 0, 400 * ms},
		"remembering, longer":   {remembering, 12, ms, full, []time.Duration{0, 500 * ms}, 1, 600 * ms},
		"remembering, may grow": {remembering, 5, ms, 16, []time.Duration{0, 100 * ms, 200 * ms}, 2, 250 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				arrives, behind := time.Now(), 0
				var asks []time.Duration
				hit, err := tc.ask(t.Context(), arrives, tc.wait, func(_ context.Context, due time.Time, waited bool) (int, error) {
					asks = append(asks, due.Sub(arrives))
					if !waited {
						behind++
					}
					time.Sleep(tc.takes)
					return tc.hit, nil
				})
				assert.NoError(t, err)
				assert.Equal(t, tc.hit, hit)
				assert.Equal(t, tc.asks, asks)
				assert.Equal(t, tc.behind, behind)
				assert.Equal(t, tc.ends, time.Since(arrives))
			})
		})
	}
}
