package client

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
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

func TestClientErrors(t *testing.T) {
	noLeaks(t)
	for name, c := range map[string]struct {
		reply []byte
		want  error
		text  string
	}{
		"refused":        {lookuptest.Encode([]byte{0}), ErrRefused, ""},
		"with reason":    {lookuptest.Encode([]byte{0}, []byte("no such group")), ErrRefused, "no such group"},
		"odd status":     {lookuptest.Encode([]byte{7}), ErrReply, "status 07"},
		"broken framing": {[]byte{0x80, 0, 0}, ErrReply, "reserved"},
		"closed":         {nil, ErrConnect, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			client := scripted(t, func([][]byte) []byte { return c.reply })
			err := client.Reset(background)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.text)
		})
	}
}

func TestClientContext(t *testing.T) {
	noLeaks(t)
	ctx, cancel := context.WithCancel(background)
	f := &fakeServer{answer: func(*fakeRequest) { cancel() }}
	client := fakeClient(t, f)
	start := time.Now()
	err := client.Reset(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, ErrNoAnswer)
	require.Less(t, time.Since(start), lookuptest.Patience/2)
	require.ErrorIs(t, client.Reset(ctx), context.Canceled)

	client = silent(t)
	ctx, cancel = context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	err = client.Reset(ctx)
	require.ErrorIs(t, err, ErrNoAnswer)
	require.ErrorIs(t, err, context.DeadlineExceeded)
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
	ctx := context.Background()
	_, err := client.Lookup(ctx, 16, coordinator.NewHashes(make([]byte, 10), 1<<16))
	require.ErrorIs(t, err, ErrRequest)
	for _, tokens := range []int64{-1, 1 << 32} {
		_, err = client.Lookup(ctx, tokens, coordinator.NewHashes(make([]byte, 10), 1))
		require.ErrorIs(t, err, ErrRequest)
	}
	require.ErrorIs(t, client.Store(ctx, coordinator.GroupRank{}, coordinator.NewHashes(make([]byte, 33), 32)), ErrRequest)
	require.ErrorIs(t, client.Store(ctx, coordinator.GroupRank{}, coordinator.NewHashes(nil, 0)), ErrRequest)
	require.ErrorIs(t, client.Evict(ctx, coordinator.GroupRank{}, coordinator.NewHashes(make([]byte, 65), 65)), ErrRequest)
	_, err = Dial(ctx, "udp://127.0.0.1:1")
	require.ErrorIs(t, err, ErrRequest)
	_, err = Dial(ctx, "127.0.0.1:1")
	require.ErrorIs(t, err, ErrConnect)
}

func TestClientLargeReply(t *testing.T) {
	name := strings.Repeat("x", 100_000)
	client := scripted(t, func([][]byte) []byte {
		doc, _ := json.Marshal(api.Stat{Pool: name})
		return netproto.AppendDone(nil, nil, netproto.AppendFrame(nil, doc, false))
	})
	st, err := client.Stat(background)
	require.NoError(t, err)
	require.Equal(t, name, st.Pool)
}
