package ctxerr

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// late is a context whose deadline has passed before its timer has fired.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now(), true }

func TestOf(t *testing.T) {
	require.NoError(t, Of(t.Context()))
	require.ErrorIs(t, Of(late{t.Context()}), context.DeadlineExceeded)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Of(late{ctx}), context.Canceled)
}
