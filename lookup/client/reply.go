package client

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/internal/printable"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// hitLen and boundaryLen are the bytes of the tokens of a hit and of a tail boundary.
const hitLen, boundaryLen = 4, 8

// readHit returns the Hit of a reply to a lookup of numTokens tokens. pool is nil if it is not known.
// It returns an errHit unless the reply is a hit or a refusal.
func readHit(frames [][]byte, numTokens uint32, pool *api.Pool) (api.Hit, error) {
	if err := refusal(frames); err != nil {
		return api.Hit{}, err
	}
	if len(frames) != 1 {
		return api.Hit{}, fmt.Errorf("%w: %d frames", errHit, len(frames))
	}
	return parseHit(frames[0], numTokens, pool)
}

// parseHit returns the Hit of a frame: 4 bytes, and from vLLM 0.29.0 on 8 for each store group. It
// allocates the tail boundaries. An engine that believed a hit beyond what it has asked for would
// load blocks that are not there.
func parseHit(frame []byte, numTokens uint32, pool *api.Pool) (hit api.Hit, err error) {
	if len(frame) < hitLen || (len(frame)-hitLen)%boundaryLen != 0 {
		return api.Hit{}, fmt.Errorf("%w: %d bytes, not 4 and a multiple of 8", errHit, len(frame))
	}
	hit.Tokens = int64(binary.BigEndian.Uint32(frame))
	if hit.Tokens > int64(numTokens) {
		return api.Hit{}, fmt.Errorf("%w: %d of %d tokens", errHit, hit.Tokens, numTokens)
	}
	n := (len(frame) - hitLen) / boundaryLen
	if pool != nil && n != numBoundaries(pool, hit.Tokens) {
		return api.Hit{}, fmt.Errorf("%w: %d tail boundaries for a hit of %d tokens", errHit, n, hit.Tokens)
	}
	if n == 0 {
		return hit, nil
	}
	hit.TailBoundaries = make([]coordinator.TailBoundary, 0, n)
	for rest := frame[hitLen:]; len(rest) > 0; rest = rest[boundaryLen:] {
		b := coordinator.TailBoundary{Group: int(binary.BigEndian.Uint32(rest)), Tokens: int64(binary.BigEndian.Uint32(rest[4:]))}
		if err := checkBoundary(b, hit.Tokens, pool); err != nil {
			return api.Hit{}, err
		}
		hit.TailBoundaries = append(hit.TailBoundaries, b)
	}
	return hit, nil
}

// numBoundaries returns how many tail boundaries a hit has.
func numBoundaries(pool *api.Pool, tokens int64) int {
	if tokens == 0 || !pool.TailBoundaries {
		return 0
	}
	return len(pool.Groups)
}

// checkBoundary returns an errHit unless b is of a group of the pool, and lies between the last token of
// the hit and the end of that token's block in the group.
func checkBoundary(b coordinator.TailBoundary, tokens int64, pool *api.Pool) error {
	if b.Tokens < tokens {
		return fmt.Errorf("%w: tail boundary %d of a hit of %d tokens", errHit, b.Tokens, tokens)
	}
	if pool == nil {
		return nil
	}
	if b.Group >= len(pool.Groups) {
		return fmt.Errorf("%w: a tail boundary of group %d of %d", errHit, b.Group, len(pool.Groups))
	}
	if b.Tokens-tokens >= int64(pool.Groups[b.Group].BlockSize) {
		return fmt.Errorf("%w: tail boundary %d of a hit of %d tokens, in blocks of %d", errHit, b.Tokens, tokens, pool.Groups[b.Group].BlockSize)
	}
	return nil
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

// What a reply may have. Of a larger one no more than the header is read.
const (
	maxBody = 3 // frames behind the envelope
	// maxGroups is how many groups a pool has at most: as many as servers accept.
	maxGroups = 4096
	// maxDocument bounds the JSON of a ping and a refusal in bytes. That of other requests has maxGroupDocument
	// for each group.
	maxDocument, maxGroupDocument = netproto.MaxDescription, 2 << 10
	// maxMasks bounds the frames of other replies in bytes: api.MaxRuns runs, and the masks around them.
	maxMasks = 2 << 20
	// maxText is how much of a text of the server is in an error, in bytes.
	maxText = 512
)

// maxFrame returns how many bytes the next frame of a reply may have, behind frames. mu is held.
func (t *transport) maxFrame(frames [][]byte) uint64 {
	if len(frames) < envelopeFrames {
		return netproto.MaxAddress
	}
	i, generation, body, ok := splitEnvelope(append(frames, nil))
	if !ok || !t.inFlight.find(i, generation) {
		return netproto.MaxAddress // it is refused as errEnvelope
	}
	if len(body) > 1 && isRefusal(body[0]) {
		return maxDocument
	}
	switch t.inFlight.slots[i].tag {
	case netproto.TagPing:
		return maxDocument
	case netproto.TagLookup, netproto.TagLookupFrom:
		if t.pool != nil {
			return hitLen + boundaryLen*uint64(len(t.pool.Groups))
		}
		return hitLen + boundaryLen*maxGroups
	case netproto.TagPool, netproto.TagStat, netproto.TagExplain:
		return maxDocument + maxGroupDocument*maxGroups
	}
	return maxMasks
}

// isRefusal reports whether a reply that begins with this frame is a refusal, in whole or in part.
func isRefusal(first []byte) bool {
	return len(first) == 1 && (first[0] == netproto.StatusFailed || first[0] == netproto.StatusPartial)
}

// refusal returns the error of a reply 00 or 04, nil for any other reply.
func refusal(frames [][]byte) error {
	if !isRefusal(frames[0]) {
		return nil
	}
	e := new(RefusedError)
	if len(frames) > 1 {
		e.Text = printable.Cut(string(frames[1]), maxText)
	}
	if len(frames) == 3 {
		_ = json.Unmarshal(frames[2], &e.Refusal) // other documents, and what is none, have no code
		e.Refusal.Refusal = printable.Cut(e.Refusal.Refusal, maxText)
		for i := range e.Parts {
			e.Parts[i].Error = printable.Cut(e.Parts[i].Error, maxText)
		}
	}
	switch {
	case frames[0][0] == netproto.StatusFailed:
		return e
	case len(e.Parts) > 0:
		return &api.PartsError{Parts: e.Parts, More: e.MoreParts}
	}
	return fmt.Errorf("%w: %s", api.ErrPartlyDone, e.Text)
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
