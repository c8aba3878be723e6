package client

import (
	"fmt"
	"math"
	"slices"

	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// readHit returns the hit in tokens of a reply to a lookup.
func readHit(frames [][]byte) (uint64, error) {
	if err := refusal(frames); err != nil {
		return 0, err
	}
	return netproto.ParseInt(frames[0]), nil
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
	if len(frames) > 1 {
		return fmt.Errorf("%w: %s", ErrRefused, frames[1])
	}
	return ErrRefused
}

// newHit returns a Hit, or ErrReply if tokens does not fit the protocol's 32 bits.
func newHit(tokens uint64) (api.Hit, error) {
	if tokens > math.MaxUint32 {
		return api.Hit{}, fmt.Errorf("%w: a hit of %d tokens", ErrReply, tokens)
	}
	return api.Hit{Tokens: int64(tokens)}, nil
}

// replyHit returns the Hit of a reply to a lookup.
func replyHit(body [][]byte) (api.Hit, error) {
	tokens, err := readHit(body)
	if err != nil {
		return api.Hit{}, err
	}
	return newHit(tokens)
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
