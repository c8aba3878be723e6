package measure

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The real clock: never early, and exact enough to time lookups by. How exact is
// logged and not judged.
func TestNap(t *testing.T) {
	start := time.Now()
	for _, at := range []time.Duration{0, 50 * time.Microsecond, 1500 * time.Microsecond, 10 * time.Millisecond} {
		require.NoError(t, Until(t.Context(), start.Add(at), Nap))
		late := time.Since(start) - at
		assert.GreaterOrEqual(t, late, time.Duration(0))
		t.Logf("%v late", late)
	}
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := errors.New("stopped by hand")
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { stop(stopped) })
		start := time.Now()
		for _, due := range []time.Duration{time.Second, time.Second + time.Millisecond, 0} {
			require.NoError(t, Until(ctx, start.Add(due), time.Sleep))
		}
		assert.Equal(t, time.Second+time.Millisecond, time.Since(start), "what has passed is not waited for")
		require.ErrorIs(t, Until(ctx, start.Add(time.Hour), time.Sleep), stopped)
		assert.Equal(t, time.Minute, time.Since(start))
	})
}
