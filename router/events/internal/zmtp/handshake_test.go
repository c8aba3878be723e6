package zmtp

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var greeting = greetingOf(3, 1, "NULL")

func TestHandshake(t *testing.T) {
	const ourSub, ourDealer = "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB", "\x04\x29\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"
	const subscribe = "\x04\x0f\x09SUBSCRIBEtopic"
	for name, c := range map[string]struct {
		socketType, ourReady string
		says                 []byte
		subscribes           string
	}{
		"3.0":      {SUB, ourSub, join(greetingOf(3, 0, "NULL"), ready("PUB")), "\x00\x06\x01topic"},
		"3.1":      {SUB, ourSub, peerSays("XPUB"), subscribe},
		"4.0":      {SUB, ourSub, join(greetingOf(4, 0, "NULL"), ready("PUB")), subscribe},
		"ROUTER":   {DEALER, ourDealer, peerSays("ROUTER"), ""},
		"REP":      {DEALER, ourDealer, peerSays("REP"), ""},
		"DEALER":   {DEALER, ourDealer, peerSays("DEALER"), ""},
		"identity": {SUB, ourSub, join(greeting, command("READY", "\x08Identity\x00\x00\x00\xff"+string(make([]byte, 255))+"\x0bsocket-type\x00\x00\x00\x03PUB")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, p := newFakePeer(t)
				p.sendSlowly(time.Millisecond, 1, c.says)
				conn, err := Accept(context.Background(), ours, Config{SocketType: c.socketType, MaxMessage: 10, Timeout: 9 * time.Second})
				require.NoError(t, err)
				require.Equal(t, string(greeting)+c.ourReady, p.received())
				if c.subscribes != "" {
					require.NoError(t, conn.Subscribe("topic"))
					synctest.Wait()
					require.Equal(t, c.subscribes, p.received())
				}
			})
		})
	}
}

func TestHandshakeRefused(t *testing.T) {
	for name, c := range map[string]struct {
		says  []byte
		want  error
		shows string
	}{
		"HTTP":             {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), ErrProtocol, `begins with "H`},
		"ZMTP 1.0":         {[]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x00"), ErrProtocol, "older than 3.0"},
		"ZMTP 2.0":         {[]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x02"), ErrProtocol, "older than 3.0"},
		"endless greeting": {append([]byte("\xff"), make([]byte, 1<<20)...), ErrProtocol, "older than 3.0"},
		"PLAIN":            {greetingOf(3, 1, "PLAIN"), ErrProtocol, `"PLAIN"; only NULL`},
		"SUB":              {peerSays("SUB"), ErrProtocol, `no PUB or XPUB, which a SUB needs: its properties are "\vSocket-Type\x00\x00\x00\x03SUB"`},
		"message":          {join(greeting, messageOf("topic")), ErrProtocol, "flags 0x0 instead of a READY"},
		"other command":    {join(greeting, ourPing), ErrProtocol, `"PING" instead of a READY`},
		"READY with MORE":  {join(greeting, []byte("\x05\x06\x05READY")), ErrProtocol, "flags 0x5 instead of a READY"},
		"property cut":     {join(greeting, command("READY", "\x0bSocket-Type\x00\x00\x00\x04PUB")), ErrProtocol, "properties"},
		"huge READY":       {join(greeting, []byte("\x06\xff\xff\xff\xff\xff\xff\xff\xff\x05READY")), ErrProtocol, "18446744073709551615"},
		"ERROR":            {join(greeting, command("ERROR", "\x03no!")), ErrProtocol, `refuses the connection: "\x03no!"`},
		"nothing":          {nil, ErrTimeout, ""},
		"greeting only":    {greeting, ErrTimeout, ""},
		"READY cut":        {peerSays("PUB")[:70], ErrTimeout, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, p := newFakePeer(t)
				p.send(c.says)
				start := time.Now()
				conn, err := Accept(context.Background(), ours, small)
				require.Nil(t, conn)
				require.ErrorIs(t, err, c.want)
				require.Contains(t, err.Error(), c.shows)
				require.NotContains(t, err.Error(), "\n")
				require.Less(t, len(err.Error()), 400)
				if c.want == ErrTimeout {
					require.Equal(t, small.Timeout, time.Since(start))
				} else {
					require.Zero(t, time.Since(start))
				}
				_, err = ours.Read(make([]byte, 1))
				require.ErrorIs(t, err, io.ErrClosedPipe, "it was closed")
				synctest.Wait()
				if name == "SUB" {
					require.Contains(t, p.received(), "\x04\x1a\x05ERROR\x13Invalid-socket-type")
				}
			})
		})
	}
}

// A handshake has one deadline, or ends with its context, however often a byte arrives.
func TestHandshakeOfBytes(t *testing.T) {
	for ctxTimeout, want := range map[time.Duration]error{time.Hour: ErrTimeout, time.Second: context.DeadlineExceeded} {
		synctest.Test(t, func(t *testing.T) {
			ours, p := newFakePeer(t)
			p.sendSlowly(time.Second/3, 1, peerSays("PUB"))
			ctx, cancel := context.WithTimeout(context.Background(), ctxTimeout)
			defer cancel()
			start := time.Now()
			_, err := Accept(ctx, ours, small)
			require.ErrorIs(t, err, want)
			require.Equal(t, min(ctxTimeout, small.Timeout), time.Since(start))
		})
	}
}

// A peer that never reads does not hold us.
func TestHandshakeUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		_, err := Accept(context.Background(), ours, small)
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorContains(t, err, "did not read")
	})
}
