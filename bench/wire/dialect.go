//go:build linux

package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/netproto"
)

// Dialect is how a hitline server is spoken to.
type Dialect string

// The dialects: hitline's own frames, and ZeroMQ, by which an engine asks.
const (
	Raw  Dialect = "raw"
	ZMTP Dialect = "zmtp"
)

// Envelope is what comes before every request, and of its reply: in ZMTP an empty
// frame. The caller only reads it.
func (d Dialect) Envelope() []byte {
	if d == ZMTP {
		return delimiter
	}
	return nil
}

var delimiter = netproto.AppendFrame(nil, nil, true)

// HitPrefix is what the reply to a lookup begins with; the hit follows, as u32.
func (d Dialect) HitPrefix() []byte {
	hit := netproto.AppendHit(nil, d.Envelope(), 0)
	return hit[:len(hit)-4]
}

// Unwrap takes the envelope off the frames of a reply.
func (d Dialect) Unwrap(frames [][]byte) ([][]byte, error) {
	if d != ZMTP {
		return frames, nil
	}
	if len(frames) < 2 || len(frames[0]) > 0 {
		return nil, fmt.Errorf("%w: no empty frame in front of it: %x", measure.ErrAnswer, Clip(frames[0]))
	}
	return frames[1:], nil
}

// Hit returns the hit of a reply to a lookup, also of one with tail boundaries: those of pools from
// vLLM 0.29.0 on.
func Hit(frames [][]byte) (tokens uint32, ok bool) {
	if len(frames) != 1 || len(frames[0]) < 4 || !netproto.ParseTailBoundaries(frames[0], func(_, _ uint32) {}) {
		return 0, false
	}
	return uint32(netproto.ParseInt(frames[0][:4])), true
}

// Refused reports whether a reply says "not served".
func Refused(frames [][]byte) bool {
	return len(frames[0]) == 1 && frames[0][0] == netproto.StatusFailed
}

// Describe says what a reply is.
func Describe(frames [][]byte) string {
	switch {
	case Refused(frames) && len(frames) > 1:
		return fmt.Sprintf("a refusal (00): %.200q", frames[1])
	case Refused(frames):
		return "a refusal (00)"
	case len(frames) > 1:
		return fmt.Sprintf("%d frames, first %x", len(frames), Clip(frames[0]))
	}
	return fmt.Sprintf("a frame of %d bytes, %x", len(frames[0]), Clip(frames[0]))
}

// Clip returns the first 64 bytes of b, enough to tell what it is.
func Clip(b []byte) []byte { return b[:min(len(b), 64)] }

// StartsLike reports whether have can be the beginning of an answer that begins
// with prefix.
func StartsLike(have, prefix []byte) bool {
	n := min(len(have), len(prefix))
	return bytes.Equal(have[:n], prefix[:n])
}

// replyLimits are far above any reply that is asked for here.
var replyLimits = netproto.Limits{MaxMessage: 1 << 20}

// readReply reads one reply from r, to its last byte and no further if the server sends
// nothing unasked. The frames are valid until buffer is written to again.
func (d Dialect) readReply(r io.Reader, buffer *[]byte) ([][]byte, error) {
	b, chunk := (*buffer)[:0], make([]byte, 4096)
	for {
		n, err := r.Read(chunk)
		b = append(b, chunk[:n]...)
		*buffer = b
		frames, used, parsed := netproto.ParseMessage(b, replyLimits, nil)
		switch {
		case parsed == nil && used < len(b):
			return nil, fmt.Errorf("%w: bytes that were not asked for: %x", measure.ErrAnswer, Clip(b[used:]))
		case parsed == nil:
			return d.Unwrap(frames)
		case !errors.Is(parsed, netproto.ErrShort):
			return nil, fmt.Errorf("%w: %x: %w", measure.ErrAnswer, Clip(b), parsed)
		case err != nil:
			return nil, err
		}
	}
}
