package client

import (
	"encoding/binary"
	"fmt"

	"github.com/hitline/hitline/netproto"
)

// The envelope of a pipelined request is an id and a delimiter. The id is a byte 00, a
// slot and a generation, four bytes each, big-endian. The slot finds the call; the
// generation tells a late reply from one to the slot's next call.
const (
	idLen       = 9
	envelopeLen = 2 + idLen + 2

	envelopeFrames = 2
)

// appendEnvelope appends the envelope of a request.
func appendEnvelope(dst []byte, slot, generation uint32) []byte {
	dst = append(netproto.AppendFrameHeader(dst, idLen, true), 0)
	dst = binary.BigEndian.AppendUint32(dst, slot)
	dst = binary.BigEndian.AppendUint32(dst, generation)
	return netproto.AppendFrameHeader(dst, 0, true)
}

// splitEnvelope splits a reply into its id and its body, of at least one frame. ok is false
// if the envelope is not one of appendEnvelope.
func splitEnvelope(frames [][]byte) (slot, generation uint32, body [][]byte, ok bool) {
	if len(frames) < 3 || len(frames[0]) != idLen || frames[0][0] != 0 || len(frames[1]) != 0 {
		return 0, 0, nil, false
	}
	id := frames[0]
	return binary.BigEndian.Uint32(id[1:]), binary.BigEndian.Uint32(id[5:]), frames[2:], true
}

// errEnvelope says that a reply's id is not that of a request in flight.
var errEnvelope = fmt.Errorf("%w: its envelope is of no request under way", ErrReply)
