//go:build linux

package wire

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hitline/hitline/bench/measure"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/netproto"
)

// answering returns a connection whose other end reads once and writes this.
func answering(t *testing.T, d Dialect, answer ...[]byte) *Control {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = theirs.Read(make([]byte, 1000))
		for _, piece := range answer {
			_, _ = theirs.Write(piece)
		}
		theirs.Close()
	}()
	t.Cleanup(func() { ours.Close(); <-done })
	return &Control{conn: ours, server: Server{Dialect: d, Timeout: 10 * time.Second}}
}

func TestPing(t *testing.T) {
	pong := netproto.AppendFrame([]byte{1, 1, 1}, PingPayload, false)
	enveloped := append([]byte{1, 0}, pong...)
	for name, tt := range map[string]struct {
		dialect Dialect
		answer  [][]byte
		err     error
		text    string
	}{
		"right":       {Raw, [][]byte{pong}, nil, ""},
		"in pieces":   {Raw, [][]byte{pong[:1], pong[1:4], pong[4:]}, nil, ""},
		"zmtp":        {ZMTP, [][]byte{enveloped}, nil, ""},
		"extra":       {Raw, [][]byte{append(pong, 7)}, measure.ErrAnswer, "bytes that were not asked for: 07"},
		"no envelope": {ZMTP, [][]byte{pong}, measure.ErrAnswer, "no empty frame in front of it"},
		"refused":     {Raw, [][]byte{netproto.AppendRefusal(nil, nil, netproto.StatusFailed, "why", nil)}, measure.ErrAnswer, `ping was answered a refusal (00): "why"`},
		"another":     {Raw, [][]byte{netproto.AppendFrame([]byte{1, 1, 1}, []byte("x"), false)}, measure.ErrAnswer, `a ping came back as "x"`},
		"garbage":     {Raw, [][]byte{[]byte("HTTP")}, measure.ErrAnswer, "48545450"},
		"closed":      {Raw, nil, measure.ErrLost, "closed by the server"},
		"cut":         {Raw, [][]byte{pong[:3]}, measure.ErrLost, "closed by the server"},
	} {
		err := answering(t, tt.dialect, tt.answer...).Ping(t.Context())
		if tt.err == nil {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, tt.err, name)
		assert.ErrorContains(t, err, tt.text, name)
	}
}

// A handshake that is not answered ends with the run, and what is no ZMTP is said.
func TestHandshake(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	ctx, stop := context.WithCancel(t.Context())
	answers := make(chan string, 1)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1000))
			if answer := <-answers; answer != "" {
				_, _ = conn.Write([]byte(answer))
				conn.Close()
			} else {
				stop()
			}
		}
	}()
	s := Server{Address: "tcp://" + listener.Addr().String(), Dialect: ZMTP, Timeout: time.Hour}
	ready := string(netproto.AppendCommand(nil, netproto.CommandReady, ""))
	for answer, want := range map[string]string{
		netproto.Greeting + ready: "",
		netproto.Greeting:         "closed by the server",
		netproto.Greeting + string(netproto.AppendCommand(nil, "ERROR", "\x03400")): `no READY, but "\x05ERROR\x03400"`,
		strings.Repeat("x", 100): "7878",
	} {
		answers <- answer
		c, err := Dial(ctx, s)
		if want == "" {
			require.NoError(t, err)
			c.Close()
			continue
		}
		require.ErrorContains(t, err, want)
	}
	answers <- ""
	_, err = Dial(ctx, s)
	require.ErrorIs(t, err, context.Canceled)
}

func TestHit(t *testing.T) {
	boundary := []byte{0, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0, 48}
	for _, frame := range [][]byte{boundary, boundary[:4]} {
		tokens, ok := Hit([][]byte{frame})
		assert.True(t, ok)
		assert.EqualValues(t, 40, tokens)
	}
	for _, frames := range [][][]byte{{boundary[:11]}, {boundary, nil}, {{}}, {{1}}} {
		_, ok := Hit(frames)
		assert.False(t, ok, "%x", frames)
	}
}
