package wire

import (
	"context"
	"net"
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

// A handshake that is not answered ends with the run.
func TestHandshakeInterrupted(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		_, _ = theirs.Read(make([]byte, 1000))
		stop()
	}()
	s := Server{Address: "tcp://127.0.0.1:1", Dialect: ZMTP, Timeout: time.Hour}
	s.Dial = func(context.Context, string, string) (net.Conn, error) { return ours, nil }
	done := make(chan error, 1)
	go func() {
		_, err := Dial(ctx, s)
		done <- err
	}()
	select {
	case err := <-done:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(20 * time.Second):
		t.Fatal("the handshake goes on")
	}
}
