package client

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// readHit returns the Hit of a reply to a lookup. A frame of up to 8 bytes is the hit alone:
// an integer of any length. A longer one is a hit of 4 bytes and its tail boundaries.
// It returns an errHit unless the reply is a hit or 00.
func readHit(frames [][]byte) (api.Hit, error) {
	if err := refusal(frames); err != nil {
		return api.Hit{}, err
	}
	return parseHit(frames[0])
}

// parseHit returns the Hit of a frame.
func parseHit(frame []byte) (api.Hit, error) {
	if len(frame) > maxBareHit {
		return readTailHit(frame)
	}
	tokens := netproto.ParseInt(frame)
	if tokens > math.MaxUint32 {
		return api.Hit{}, fmt.Errorf("%w: %d tokens", errHit, tokens)
	}
	return api.Hit{Tokens: int64(tokens)}, nil
}

// maxBareHit is the length in bytes of the longest frame that is a hit alone.
const maxBareHit = 8

// readTailHit returns the Hit of a frame of 4 bytes and whole tail boundaries. It allocates
// the boundaries.
func readTailHit(frame []byte) (hit api.Hit, err error) {
	const hitLen, boundaryLen = 4, 8
	boundaries := make([]coordinator.TailBoundary, 0, (len(frame)-hitLen)/boundaryLen)
	if !netproto.ParseTailBoundaries(frame, func(group, tokens uint32) {
		boundaries = append(boundaries, coordinator.TailBoundary{Group: int(group), Tokens: int64(tokens)})
	}) {
		return hit, fmt.Errorf("%w: %d bytes, more than 8 and not 4 and a multiple of 8", errHit, len(frame))
	}
	return api.Hit{Tokens: int64(binary.BigEndian.Uint32(frame)), TailBoundaries: boundaries}, nil
}

// readStatus returns nil if a reply begins with 01.
func readStatus(frames [][]byte) error {
	if err := refusal(frames); err != nil {
		return err
	}
	if len(frames[0]) != 1 || frames[0][0] != netproto.StatusDone {
		return fmt.Errorf("%w: status %x", ErrReply, frames[0])
	}
	return nil
}

// refusal returns the error of a reply 00, nil for any other reply.
func refusal(frames [][]byte) error {
	if len(frames[0]) != 1 || frames[0][0] != netproto.StatusFailed {
		return nil
	}
	if len(frames) == 1 {
		return ErrRefused
	}
	return &refusedError{kind: refusalKind(frames[2:]), text: string(frames[1])}
}

// refusalKind returns ErrNotAllowed or ErrNotAuthenticated if the frames behind the text of a
// refusal are an api.Refusal that says so, nil otherwise.
func refusalKind(frames [][]byte) error {
	var r api.Refusal
	if len(frames) == 1 {
		_ = json.Unmarshal(frames[0], &r) // other documents, and what is none, have no Refusal
	}
	switch r.Refusal {
	case api.RefusalNotAllowed:
		return ErrNotAllowed
	case api.RefusalNotAuthenticated:
		return ErrNotAuthenticated
	}
	return nil
}

// cloneFrames returns a copy of the frames and their bytes. A bare 01 is not allocated.
func cloneFrames(frames [][]byte) [][]byte {
	if len(frames) == 1 && len(frames[0]) == 1 && frames[0][0] == netproto.StatusDone {
		return doneFrames
	}
	frames = slices.Clone(frames)
	for i := range frames {
		frames[i] = append([]byte{}, frames[i]...)
	}
	return frames
}

// doneFrames is a reply of one frame 01. It is shared and must not be modified.
var doneFrames = [][]byte{{netproto.StatusDone}}
