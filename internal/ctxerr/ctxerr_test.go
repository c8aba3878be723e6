package ctxerr

import (
	"context"
	"errors"
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

func TestLate(t *testing.T) {
	err := Late(context.DeadlineExceeded, time.Now(), "no master has answered")
	require.Regexp(t, `^no master has answered within \d+m?s$`, err.Error())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	err = Late(context.Canceled, time.Now(), "no answer")
	require.EqualError(t, err, "the call was given up")
	require.ErrorIs(t, err, context.Canceled)
}

func TestExplain(t *testing.T) {
	why := errors.New("no answer within 20ms")
	err := Explain(context.DeadlineExceeded, why)
	require.EqualError(t, err, "no answer within 20ms")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, why)
}
