package floor

import (
	"errors"
	"fmt"

	"github.com/hitline/hitline/bench/measure"

	"github.com/hitline/hitline/bench/wire"
	"github.com/hitline/hitline/netproto"
)

// maxAuthReply bounds the reply to an auth request in bytes.
const maxAuthReply = 64 << 10

// authenticate sends the token, if there is one, and waits for the reply.
func (o Options) authenticate(s wire.Socket) error {
	token := ""
	if o.Token != nil {
		token = o.Token()
	}
	if token == "" {
		return nil
	}
	if err := s.Write(netproto.AppendRequest(nil, nil, netproto.TagAuth, []byte(token))); err != nil {
		return fmt.Errorf("%w: auth: %w", measure.ErrLost, err)
	}
	buffer, have := make([]byte, maxAuthReply), 0
	for {
		n, err := s.Read(buffer[have:])
		if err != nil {
			return fmt.Errorf("%w: auth: %w", measure.ErrLost, err)
		}
		have += n
		frames, _, err := netproto.ParseMessage(buffer[:have], netproto.Limits{}, nil)
		switch {
		case errors.Is(err, netproto.ErrShort) && have < len(buffer):
		case err != nil:
			return fmt.Errorf("%w: auth: %w", measure.ErrAnswer, err)
		case len(frames[0]) == 1 && frames[0][0] == netproto.StatusDone:
			return nil
		case len(frames) > 1:
			return fmt.Errorf("%w: auth was refused: %.200q", measure.ErrAnswer, frames[1])
		default:
			return fmt.Errorf("%w: auth was answered %x", measure.ErrAnswer, frames[0])
		}
	}
}
