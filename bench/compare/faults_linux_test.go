package compare

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
)

// runFaulty wants Run to fail, and to leave no server. With silent, it fails by a short timeout.
func runFaulty(t *testing.T, o Options, silent bool, is error, text string) Report {
	t.Helper()
	r, err := Run(t.Context(), o)
	for silent && o.Timeout < 20*time.Second && errors.Is(err, context.DeadlineExceeded) {
		o.Timeout *= 3 // a busy machine takes longer to start a server
		r, err = Run(t.Context(), o)
	}
	require.ErrorIs(t, err, is)
	assert.ErrorContains(t, err, text)
	assert.True(t, r.Partial)
	noChildren(t)
	return r
}

// Cancelling must not wait for an answer that does not come, and what was measured
// before is in the report.
func TestRunCancelled(t *testing.T) {
	for fault, phase := range map[string]string{
		"hangs": "start python-zmq", "none": "300 hashes: rounds",
	} {
		t.Run(fault, func(t *testing.T) {
			o := faked(t, fault)
			o.Only, o.Timeout = []string{Python}, time.Hour
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o.OnStep = func(at string, _, _ int) {
				if at == phase {
					time.AfterFunc(20*time.Millisecond, cancel)
				}
			}
			if fault == "none" {
				o.TimePerRival, o.Rounds = time.Minute, 1000
				o.Hashes = []int{300}
			}
			r, err := Run(ctx, o)
			require.ErrorIs(t, err, context.Canceled)
			assert.True(t, r.Partial)
			noChildren(t)
		})
	}
}

// Each fault of hitline is caught, also with several requests under way. The fault is in its
// tenth answer, three are those of the warm-up.
func TestHitlineFaults(t *testing.T) {
	for fault, want := range map[string]struct {
		is              error
		text, pipelined string
	}{
		"refuses":       {measure.ErrAnswer, "hitline, 20 hashes: bad answer: it begins with 000100", "bad answer: it begins with 000100"},
		"chatters":      {measure.ErrAnswer, ", of which 6 bytes are one", "which was not asked for"},
		"closes":        {measure.ErrLost, "hitline, 20 hashes: no connection: closed by the server", "no connection: closed by the server"},
		"silent":        {measure.ErrLost, "hitline, 20 hashes: no connection: no answer in time", ""},
		"ends":          {measure.ErrLost, "ended (exit status 1): no luck", ""},
		"refuses store": {measure.ErrAnswer, "storing: bad answer: chain 0 was answered a refusal (00)", ""},
	} {
		for requests, text := range map[int]string{30: want.text, 6: want.pipelined} {
			if text == "" {
				continue
			}
			t.Run(fmt.Sprint(fault, requests), func(t *testing.T) {
				o := faked(t, "hitline "+fault)
				o.Hashes, o.Only = []int{20}, []string{RawSocket}
				o.Rounds, o.TimePerRival, o.requests, o.Pipeline = 1, time.Nanosecond, requests, 2
				if fault == "silent" {
					o.Timeout = 3 * time.Second
				}
				runFaulty(t, o, fault == "silent", want.is, text)
			})
		}
	}
	o := faked(t, "hitline wrong")
	o.Hashes, o.Only = []int{20}, []string{RawSocket}
	o.Rounds, o.TimePerRival, o.requests, o.Pipeline = 1, time.Nanosecond, 60, 7
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, 12, r.Wrong, "one answer in ten, of the warm-up and of the pipelined round too")
}
