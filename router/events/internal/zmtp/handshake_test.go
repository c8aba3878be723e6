package zmtp

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var greeting = greetingOf(3, 1, "NULL")

func TestHandshake(t *testing.T) {
	const ourSub, ourDealer = "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB", "\x04\x29\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"
	const subscribe = "\x04\x0f\x09SUBSCRIBEtopic"
	type peer struct {
		socketType, ourReady string
		says                 []byte
		subscribes           string
	}
	inBubbles(t, map[string]peer{
		"3.0":      {SUB, ourSub, join(greetingOf(3, 0, "NULL"), ready("PUB")), "\x00\x06\x01topic"},
		"3.1":      {SUB, ourSub, peerSays("XPUB"), subscribe},
		"4.0":      {SUB, ourSub, join(greetingOf(4, 0, "NULL"), ready("PUB")), subscribe},
		"ROUTER":   {DEALER, ourDealer, peerSays("ROUTER"), subscribe},
		"identity": {SUB, ourSub, join(greeting, command("READY", "\x08Identity\x00\x00\x00\xff"+string(make([]byte, 255))+"\x0bsocket-type\x00\x00\x00\x03PUB")), subscribe},
	}, func(t *testing.T, c peer) {
		ours, p := newFakePeer(t)
		p.sendSlowly(time.Millisecond, 1, c.says)
		conn, err := Accept(context.Background(), ours, Config{SocketType: c.socketType, MaxMessage: 10, Timeout: 9 * time.Second})
		require.NoError(t, err)
		require.Equal(t, string(greeting)+c.ourReady, p.received())
		require.NoError(t, conn.Subscribe("topic"))
		require.Equal(t, c.subscribes, p.received())
	})
}

func TestHandshakeRefused(t *testing.T) {
	type peer struct {
		says  []byte
		shows string
	}
	inBubbles(t, map[string]peer{
		"HTTP":             {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), `the peer is not a ZeroMQ socket: it begins with "H"`},
		"ZMTP 2.0":         {[]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x02"), "older than 3.0"},
		"endless greeting": {append([]byte("\xff"), make([]byte, 1<<20)...), "older than 3.0"},
		"PLAIN":            {greetingOf(3, 1, "PLAIN"), `"PLAIN"; only NULL`},
		"swapped":          {peerSays("ROUTER"), "the peer's socket has the wrong type: ROUTER; a SUB socket needs a PUB or XPUB"},
		"message":          {join(greeting, messageOf("topic")), "flags 0x0 instead of a READY"},
		"other command":    {join(greeting, ourPing), `"PING" instead of a READY`},
		"property cut":     {join(greeting, command("READY", "\x0bSocket-Type\x00\x00\x00\x04PUB")), "properties"},
		"huge READY":       {join(greeting, []byte("\x06\xff\xff\xff\xff\xff\xff\xff\xff\x05READY")), "18446744073709551615"},
		"ERROR":            {join(greeting, command("ERROR", "\x03no!")), `refuses the connection: "\x03no!"`},
	}, func(t *testing.T, c peer) {
		ours, p := newFakePeer(t)
		p.send(c.says)
		start := time.Now()
		conn, err := Accept(context.Background(), ours, small)
		require.Nil(t, conn)
		require.ErrorIs(t, err, ErrProtocol)
		require.Contains(t, err.Error(), c.shows)
		require.NotContains(t, err.Error(), "\n")
		require.NotContains(t, err.Error(), "netproto:")
		require.Less(t, len(err.Error()), 400)
		require.Zero(t, time.Since(start))
		_, err = ours.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.ErrClosedPipe, "it was closed")
		require.Equal(t, bytes.Contains(c.says, []byte("ROUTER")), strings.Contains(p.received(), "\x04\x1a\x05ERROR\x13Invalid-socket-type"))
	})
}

// A handshake has one deadline, or ends with its context, however often a byte arrives.
func TestHandshakeOfBytes(t *testing.T) {
	type limit struct {
		ctx  time.Duration
		want error
	}
	inBubbles(t, map[string]limit{"timeout": {time.Hour, ErrTimeout}, "context": {time.Second, context.DeadlineExceeded}}, func(t *testing.T, c limit) {
		ours, p := newFakePeer(t)
		p.sendSlowly(time.Second*2/3, 1, peerSays("PUB"))
		ctx, cancel := context.WithTimeout(context.Background(), c.ctx)
		defer cancel()
		start := time.Now()
		_, err := Accept(ctx, ours, small)
		require.ErrorIs(t, err, c.want)
		require.Equal(t, min(c.ctx, small.Timeout), time.Since(start))
	})
}
