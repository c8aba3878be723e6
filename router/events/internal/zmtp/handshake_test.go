package zmtp

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHandshake(t *testing.T) {
	for name, c := range map[string]struct {
		socketType string
		says       []byte
		subscribes string
	}{
		"3.0":         {SUB, join(greetingOf(3, 0, "NULL"), ready("PUB")), "\x00\x06\x01topic"},
		"3.1":         {SUB, join(greetingOf(3, 1, "NULL"), ready("XPUB")), "\x04\x0f\x09SUBSCRIBEtopic"},
		"4.0":         {SUB, join(greetingOf(4, 0, "NULL"), ready("PUB")), "\x04\x0f\x09SUBSCRIBEtopic"},
		"ROUTER":      {DEALER, peerSays("ROUTER"), ""},
		"REP":         {DEALER, peerSays("REP"), ""},
		"DEALER":      {DEALER, peerSays("DEALER"), ""},
		"long READY":  {SUB, join(ourGreeting, appendCommand(nil, commandReady, join(appendProperty(nil, "Identity", string(make([]byte, 255))), appendProperty(nil, "socket-type", "PUB")))), ""},
		"READY, long": {SUB, join(ourGreeting, []byte("\x06\x00\x00\x00\x00\x00\x00\x00\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, p := newFakePeer(t)
				p.sendSlowly(time.Millisecond, 1, c.says)
				conn, err := Accept(context.Background(), ours, Config{SocketType: c.socketType, MaxMessage: 10, Timeout: 9 * time.Second})
				require.NoError(t, err)
				identity := ""
				if c.socketType == DEALER {
					identity = "\x08Identity\x00\x00\x00\x00"
				}
				require.Equal(t, string(ourGreeting)+string(appendCommand(nil, commandReady,
					"\x0bSocket-Type\x00\x00\x00"+string(rune(len(c.socketType)))+c.socketType+identity)), p.received())
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
	property := "\x0bSocket-Type\x00\x00\x00"
	for name, c := range map[string]struct {
		says  []byte
		want  error
		shows string
	}{
		"HTTP":              {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), ErrGreeting, `"HTTP/1.1 400 Bad`},
		"signature":         {[]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x01"), ErrGreeting, ""},
		"ZMTP 1.0":          {[]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x00"), ErrVersion, "version 1"},
		"ZMTP 2.0":          {[]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x02"), ErrVersion, "version 2"},
		"endless greeting":  {append([]byte("\xff"), make([]byte, 1<<20)...), ErrVersion, ""},
		"endless FF":        {[]byte(string(make([]byte, 0)) + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), ErrGreeting, ""},
		"PLAIN":             {greetingOf(3, 1, "PLAIN"), ErrMechanism, `"PLAIN"`},
		"CURVE":             {greetingOf(3, 0, "CURVE"), ErrMechanism, `"CURVE"`},
		"NULLS":             {greetingOf(3, 0, "NULLS"), ErrMechanism, `"NULLS"`},
		"SUB":               {peerSays("SUB"), ErrSocketType, `"SUB"; a SUB socket needs a PUB or XPUB`},
		"no type":           {join(ourGreeting, appendCommand(nil, commandReady, "")), ErrSocketType, ""},
		"message":           {join(ourGreeting, messageOf("topic")), ErrHandshake, ""},
		"other command":     {join(ourGreeting, ourPing), ErrHandshake, ""},
		"command with MORE": {join(ourGreeting, []byte("\x05\x19\x05READY"+property+"\x03PUB")), ErrHandshake, ""},
		"property cut":      {join(ourGreeting, appendCommand(nil, commandReady, property+"\x04PUB")), ErrHandshake, ""},
		"property of 2 GiB": {join(ourGreeting, appendCommand(nil, commandReady, "\x0bSocket-Type\xff\xff\xff\xffPUB")), ErrHandshake, ""},
		"name cut":          {join(ourGreeting, appendCommand(nil, commandReady, "\x0bSocket")), ErrHandshake, ""},
		"name of nothing":   {join(ourGreeting, appendCommand(nil, commandReady, "\x00\x00\x00\x00\x00")), ErrHandshake, ""},
		"no name":           {join(ourGreeting, []byte("\x04\x00")), ErrHandshake, ""},
		"huge READY":        {join(ourGreeting, []byte("\x06\xff\xff\xff\xff\xff\xff\xff\xff\x05READY")), ErrHandshake, "18446744073709551615"},
		"ERROR":             {join(ourGreeting, appendCommand(nil, commandError, "\x03no!")), ErrRefused, `"no!"`},
		"nothing":           {nil, ErrTimeout, "its greeting"},
		"greeting only":     {ourGreeting, ErrTimeout, "its READY"},
		"READY cut":         {peerSays("PUB")[:70], ErrTimeout, "its READY"},
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
				if c.want == ErrSocketType {
					require.Contains(t, p.received(), "\x04\x1a\x05ERROR\x13Invalid-socket-type")
				}
			})
		})
	}
}

// A handshake has one deadline, however often a byte arrives.
func TestHandshakeOfBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, p := newFakePeer(t)
		p.sendSlowly(time.Second, 1, peerSays("PUB"))
		start := time.Now()
		_, err := Accept(context.Background(), ours, small)
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, small.Timeout, time.Since(start))
	})
}

func TestHandshakeCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, _ := newFakePeer(t)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := Accept(ctx, ours, small)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, ErrTimeout)
		require.Equal(t, time.Second, time.Since(start))
	})
}

// A peer that never reads does not hold us.
func TestHandshakeUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		_, err := Accept(context.Background(), ours, small)
		require.ErrorIs(t, err, ErrTimeout)
		require.Contains(t, err.Error(), "while writing")
	})
}

func TestDialNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = Dial(context.Background(), "tcp", l.Addr().String(), small)
	require.ErrorContains(t, err, "events: zmtp: dial tcp "+l.Addr().String())
	_, err = Dial(context.Background(), "tcp", l.Addr().String(), Config{SocketType: "REQ"})
	require.Error(t, err)
}

func TestHeader(t *testing.T) {
	for _, size := range []int{0, 1, 255, 256, 1 << 20} {
		b := appendHeader(nil, flagMore, size)
		for n := range b {
			_, ok := parseHeader(b[:n])
			require.False(t, ok)
		}
		h, ok := parseHeader(b)
		require.True(t, ok)
		require.Equal(t, uint64(size), h.size)
		require.Equal(t, len(b), h.bytes)
		require.NotZero(t, h.flags&flagMore)
	}
	h, ok := parseHeader(binary.BigEndian.AppendUint64([]byte{flagLong}, 1<<63))
	require.True(t, ok)
	require.Equal(t, uint64(1<<63), h.size)
}
