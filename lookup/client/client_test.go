package client

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
)

// scripted is a client whose peer answers each request behind the setup with what answer returns,
// behind its envelope. It closes the connection if that is nil.
func scripted(t *testing.T, answer func(frames [][]byte) (reply []byte)) *Client {
	t.Helper()
	f := &fakeServer{answer: func(r *fakeRequest) {
		if reply := answer(r.frames); reply != nil {
			r.conn.send(append(append([]byte{}, r.envelope...), reply...))
		} else {
			r.conn.hangUp()
		}
	}}
	return fakeClient(t, f)
}

// silent is a client whose peer answers nothing behind the setup.
func silent(t *testing.T, opts ...Option) *Client {
	t.Helper()
	return fakeClient(t, &fakeServer{answer: func(*fakeRequest) {}}, opts...)
}

// The client's timeout is for contexts without a deadline. One with a later deadline has that.
func TestClientTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakeClient(t, &fakeServer{pipes: true, answer: func(*fakeRequest) {}}, WithTimeout(time.Second))
		begun := time.Now()
		err := c.Reset(background)
		require.ErrorIs(t, err, ErrNoAnswer)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(begun))

		ctx, cancel := context.WithTimeout(background, time.Minute)
		defer cancel()
		begun = time.Now()
		require.ErrorIs(t, c.Reset(ctx), context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(begun))

		require.Equal(t, defaultTimeout, newConfig(nil).timeout)
		require.Equal(t, defaultTimeout, newConfig([]Option{WithTimeout(0)}).timeout)
	})
}

func TestClientRefusesArguments(t *testing.T) {
	client := silent(t)
	for _, tokens := range []int64{-1, 1 << 32} {
		_, err := client.Lookup(background, tokens, coordinator.NewHashes(make([]byte, 10), 1))
		require.ErrorIs(t, err, ErrRequest)
	}
	for _, keys := range []coordinator.Hashes{
		coordinator.NewHashes(make([]byte, 33), 32), coordinator.NewHashes(nil, 0), coordinator.NewHashes(make([]byte, 65), 65),
	} {
		require.ErrorIs(t, client.Store(background, coordinator.GroupRank{}, keys), ErrRequest)
	}
}
