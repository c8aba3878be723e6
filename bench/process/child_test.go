//go:build linux

package process

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bench/measure"
)

// echo is a child that answers with what it reads, behind a library's line, unless a request
// asks for a fault.
const echo = `echo '{"ready": true}'
while read line; do
	case $line in
	*die*) echo "no luck" >&2; echo "E0101 12:00:00 a library's" >&2; exit 3;;
	*hang*) exec sleep 1000;;
	*babble*) echo '{"a": [}';;
	*bye*) exit 0;;
	*quiet*) ;;
	*) echo "loading 100%"; echo "$line";;
	esac
done`

// child starts a child that runs a script.
func child(t *testing.T, script string, timeout time.Duration) (*Child, error) {
	t.Helper()
	c, err := StartChild(t.Context(), "the echo", exec.Command("sh", "-c", script), Options{Timeout: timeout})
	if err == nil {
		t.Cleanup(c.Stop)
	}
	return c, err
}

func TestChild(t *testing.T) {
	c, err := child(t, echo, 20*time.Second)
	require.NoError(t, err)
	require.NoError(t, c.Send(t.Context(), map[string]bool{"quiet": true}))
	for want := range 3 { // one after the other
		var got struct{ N int }
		require.NoError(t, c.Do(t.Context(), 0, map[string]int{"n": want}, &got))
		assert.Equal(t, want, got.N)
	}
	c.Stop()
	assert.Equal(t, "exit status 0", c.Ended(), "it ends with its input")
	require.ErrorIs(t, c.Do(t.Context(), 0, 1, &struct{}{}), measure.ErrLost)
}

func TestChildFaults(t *testing.T) {
	for request, want := range map[string]string{
		"die": "the echo ended (exit status 3): no luck", "bye": "the echo ended (exit status 0): it said nothing",
		"babble": `the echo says "{\"a\": [}\n": invalid character`,
	} {
		c, err := child(t, echo, 20*time.Second)
		require.NoError(t, err)
		err = c.Do(t.Context(), 0, request, &struct{}{})
		require.ErrorIs(t, err, measure.ErrLost)
		require.ErrorContains(t, err, want)
		<-c.Exited()
	}
	_, err := child(t, "echo no luck >&2; exit 3", 20*time.Second)
	require.ErrorContains(t, err, "the echo ended (exit status 3): no luck")
	_, err = child(t, "exec sleep 1000", 100*time.Millisecond)
	require.ErrorIs(t, err, measure.ErrLost)
	require.ErrorContains(t, err, "the echo gave no answer in 100ms")
	_, err = StartChild(t.Context(), "x", exec.Command("/no/such"), Options{})
	require.ErrorIs(t, err, measure.ErrLost)
}

// A child that gives no answer is killed, after the time of the request's work and the timeout,
// or when the context ends.
func TestChildHangs(t *testing.T) {
	c, err := child(t, echo, 20*time.Second)
	require.NoError(t, err)
	c.timeout = time.Second // it may start late
	begin := time.Now()
	err = c.Do(t.Context(), 500*time.Millisecond, "hang", &struct{}{})
	require.ErrorIs(t, err, measure.ErrLost)
	require.ErrorContains(t, err, "no answer in 1.5s")
	assert.GreaterOrEqual(t, time.Since(begin), 1500*time.Millisecond)
	assert.Equal(t, "signal: killed", c.Ended())

	c, err = child(t, echo, time.Hour)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	require.ErrorIs(t, c.Do(ctx, 0, "hang", &struct{}{}), context.Canceled)
	assert.Equal(t, "signal: killed", c.Ended())
}
