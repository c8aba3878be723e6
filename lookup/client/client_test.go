package client

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/bufpool"
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/netproto"
)

// scripted is a client whose peer runs script on the other end.
func scripted(t *testing.T, script func(conn net.Conn)) *Client {
	t.Helper()
	c, err := Dial(context.Background(), lookuptest.ServeOne(t, script), WithTimeout(lookuptest.Patience))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func readSome(conn net.Conn) { _, _ = conn.Read(make([]byte, 4096)) }

func TestClientErrors(t *testing.T) {
	noLeaks(t)
	ctx := context.Background()
	for name, c := range map[string]struct {
		reply []byte
		want  error
		text  string
	}{
		"refused":         {lookuptest.Encode([]byte{0}), ErrRefused, ""},
		"with reason":     {lookuptest.Encode([]byte{0}, []byte("no such group")), ErrRefused, "no such group"},
		"odd status":      {lookuptest.Encode([]byte{7}), ErrReply, "status 07"},
		"broken framing":  {[]byte{0x80, 0, 0}, ErrReply, "reserved"},
		"more than asked": {append(lookuptest.Encode([]byte{1}), 0), ErrReply, "1 bytes behind"},
		"closed":          {nil, ErrConnect, "EOF"},
		"cut":             {[]byte{0}, ErrConnect, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			client := scripted(t, func(conn net.Conn) { readSome(conn); _, _ = conn.Write(c.reply) })
			err := client.Reset(ctx)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.text)
			require.Equal(t, c.want == ErrRefused, len(client.pool.idle) == 1, "only then the connection may be used again")
		})
	}
}

func TestClientHitTooLarge(t *testing.T) {
	client := scripted(t, func(conn net.Conn) {
		readSome(conn)
		_, _ = conn.Write(lookuptest.Encode([]byte{1, 0, 0, 0, 0}))
	})
	_, err := client.Lookup(context.Background(), 16, coordinator.NewHashes(nil, 0))
	require.ErrorIs(t, err, ErrReply)
}

func TestClientContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	client := scripted(t, func(conn net.Conn) { readSome(conn); cancel(); readSome(conn) }) // never answers
	start := time.Now()
	err := client.Ping(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, ErrNoAnswer)
	require.Less(t, time.Since(start), lookuptest.Patience/2)
	require.ErrorIs(t, client.Ping(ctx), context.Canceled)
	require.Empty(t, client.pool.open)

	client = scripted(t, func(conn net.Conn) { readSome(conn); readSome(conn) })
	ctx, cancel = context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err = client.Ping(ctx)
	require.ErrorIs(t, err, ErrNoAnswer)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestClientTimeout(t *testing.T) {
	client := scripted(t, func(conn net.Conn) { readSome(conn); readSome(conn) })
	client.timeout = 50 * time.Millisecond
	err := client.Ping(context.Background())
	require.ErrorIs(t, err, ErrNoAnswer)
	var timeout net.Error
	require.True(t, errors.As(err, &timeout) && timeout.Timeout())
}

func TestClientRefusesArguments(t *testing.T) {
	client := scripted(t, readSome)
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
	payload := append(append([]byte(`"`), bytes.Repeat([]byte("x"), 100000)...), '"')
	client := scripted(t, func(conn net.Conn) {
		readSome(conn)
		_, _ = conn.Write(netproto.AppendDone(nil, nil, netproto.AppendFrame(nil, payload, false)))
	})
	raw, err := client.Stat(context.Background())
	require.NoError(t, err)
	require.Equal(t, payload, []byte(raw))
}

func TestClientDoesNotAllocate(t *testing.T) {
	if bufpool.Debug {
		t.Skip("the traps of debug builds allocate")
	}
	s := startServer(t, blocks16, server.Limits{})
	c := dialTest(t, s)
	keys := lookuptest.Chain("a", 500, 32)
	require.NoError(t, c.Store(context.Background(), coordinator.GroupRank{}, coordinator.NewHashes(keys, 32)))
	allocs := testing.AllocsPerRun(200, func() {
		if hit, err := c.Lookup(context.Background(), 8000, coordinator.NewHashes(keys, 32)); hit.Tokens != 8000 || err != nil {
			t.Error(hit.Tokens, err)
		}
	})
	require.LessOrEqual(t, allocs, 0.0, "client and server together")
}
