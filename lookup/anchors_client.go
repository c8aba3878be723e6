package lookup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hitline/hitline/netproto"
)

// WithAnchors makes a Client look up prompts of at least so many hashes by anchors:
// a few of the hashes, in up to three exchanges, in place of all of them. The hit
// is the same for hashes that are chained as vLLM's are: two prompts with an equal
// hash at one place are equal in front of it. Where the server does not serve that,
// the client finds out once a connection and sends all hashes. 0 means never.
// Default: DefaultAnchorsFrom, and never for an AsyncClient. Batch sends all hashes.
func WithAnchors(from int) ClientOption {
	return func(c *clientConfig) { c.anchorsFrom, c.anchorsSet = max(from, 0), true }
}

// DefaultAnchorsFrom is from how many hashes on a Client asks by anchors: where
// two exchanges cost about as much as one with all hashes, on one machine. Between
// machines it pays off earlier.
const DefaultAnchorsFrom = 4096

// digestsUpTo is up to how many bytes of hashes a request by anchors holds their
// digests unasked: some ten microseconds. They are of use only where a chain has
// been stored and not looked up since.
const digestsUpTo = 512 << 10

// anchoring is what a Client knows of lookups by anchors at its server.
type anchoring struct {
	dials  int64  // connections made when the server was asked
	stride int    // hashes a block; 0: not served
	unit   uint32 // blocks that hits are multiples of
}

// anchorsCall is the memory of one lookup by anchors.
type anchorsCall struct {
	netproto.Anchors
	blob []byte

	hashes  []byte
	hashLen int
	stride  int
}

var anchorsCalls = sync.Pool{New: func() any { return new(anchorsCall) }}

// keepCall is the largest blob in bytes that a pooled call keeps, and the largest head
// of a request, which may hold that blob, that a connection does: that of a second
// exchange about 131,072 hashes is 64 KiB.
const keepCall = 256 << 10

// lookupByAnchors looks up by anchors. done is false where it takes all hashes.
func (c *Client) lookupByAnchors(ctx context.Context, until time.Time, numTokens uint32, hashes []byte, hashLen int) (hit uint64, done bool, err error) {
	know, err := c.learnAnchors(ctx, until, hashLen)
	if err != nil || know.stride == 0 {
		return 0, false, err
	}
	call := anchorsCalls.Get().(*anchorsCall)
	defer call.release()
	call.hashes, call.hashLen, call.stride = hashes, hashLen, know.stride
	call.begin(know.unit)
	for exchange := 1; ; exchange++ {
		hit, more, err := c.askAnchors(ctx, until, numTokens, call)
		switch {
		case errors.Is(err, ErrRefused), more.asked && exchange == 2:
			return 0, false, nil
		case err != nil || !more.asked:
			return hit, err == nil, err
		}
		if err := call.narrow(more); err != nil {
			return 0, false, err
		}
	}
}

// anchorsState is what a Client keeps about lookups by anchors.
type anchorsState struct {
	from  int
	known atomic.Pointer[anchoring]
}

// learnAnchors returns how the server looks up by anchors, and asks it unless it
// has been asked over the present connections.
func (c *Client) learnAnchors(ctx context.Context, until time.Time, hashLen int) (*anchoring, error) {
	dials := c.dialer.dials.Load()
	if know := c.anchors.known.Load(); know != nil && know.dials == dials {
		return know, nil
	}
	frame, err := c.exchangeAnchors(ctx, until, paramsRequest(hashLen), netproto.AnchorsParams)
	know, err := newAnchoring(dials, frame, err)
	if err == nil {
		c.anchors.known.Store(know)
	}
	return know, err
}

// paramsRequest asks how the server looks up by anchors.
func paramsRequest(hashLen int) request {
	return request{tag: netproto.TagAnchors, hashLen: hashLen, anchors: new(netproto.Anchors)}
}

// newAnchoring returns what the reply to a paramsRequest says. A stride of 0 says that
// nothing is served, and so does the refusal of a server that does not know the request.
func newAnchoring(dials int64, reply anchorsFrame, err error) (*anchoring, error) {
	know := &anchoring{dials: dials}
	if errors.Is(err, ErrRefused) {
		return know, nil
	}
	if err != nil {
		return nil, err
	}
	var stride uint32
	if !netproto.ParseAnchorsReply(reply.numbers[:reply.n], &stride, &know.unit) || (stride == 0) != (know.unit == 0) {
		return nil, fmt.Errorf("%w: anchors: bad parameters", ErrReply)
	}
	know.stride = int(stride)
	return know, nil
}

// anchorsMore is an undetermined answer: the blocks that would decide it.
type anchorsMore struct {
	asked            bool
	known, said, end uint32
}

func (c *Client) askAnchors(ctx context.Context, until time.Time, numTokens uint32, call *anchorsCall) (hit uint64, more anchorsMore, err error) {
	r := request{tag: netproto.TagAnchors, numTokens: numTokens, hashLen: call.hashLen, blob: call.blob, anchors: &call.Anchors}
	frame, err := c.exchangeAnchors(ctx, until, r, netproto.AnchorsHit, netproto.AnchorsMore)
	if err != nil {
		return 0, more, err
	}
	return frame.answer()
}

// anchorsFrame is a reply to a request by anchors, copied.
type anchorsFrame struct {
	kind    byte
	numbers [12]byte
	n       int
}

// answer reads the reply to anything but a paramsRequest.
func (f *anchorsFrame) answer() (hit uint64, more anchorsMore, err error) {
	numbers := f.numbers[:f.n]
	var tokens uint32
	if f.kind == netproto.AnchorsHit && netproto.ParseAnchorsReply(numbers, &tokens) {
		return uint64(tokens), more, nil
	}
	more.asked = true
	if f.kind != netproto.AnchorsMore || !netproto.ParseAnchorsReply(numbers, &more.known, &more.said, &more.end) {
		return 0, anchorsMore{}, fmt.Errorf("%w: anchors: %d bytes of kind %d", ErrReply, f.n, f.kind)
	}
	return 0, more, nil
}

// exchangeAnchors makes a request by anchors and returns its reply, which is of one
// of the kinds.
func (c *Client) exchangeAnchors(ctx context.Context, until time.Time, r request, kinds ...byte) (reply anchorsFrame, err error) {
	var frames [][]byte
	if c.pipe != nil {
		if frames, err = c.pipe.answer(ctx, until, r); err != nil {
			return reply, err
		}
		return reply, reply.take(frames, kinds)
	}
	conn, err := c.exchange(ctx, until, &r)
	if err != nil {
		return reply, err
	}
	err = reply.take(conn.frames, kinds)
	if errors.Is(err, ErrReply) {
		c.pool.put(conn, err)
	} else {
		c.pool.put(conn, nil)
	}
	return reply, err
}

// take copies a reply.
func (f *anchorsFrame) take(frames [][]byte, kinds []byte) error {
	if err := refusal(frames); err != nil {
		return err
	}
	if len(frames) == 2 && len(frames[0]) == 1 && len(frames[1]) <= len(f.numbers) {
		f.kind, f.n = frames[0][0], copy(f.numbers[:], frames[1])
		for _, kind := range kinds {
			if f.kind == kind {
				return nil
			}
		}
	}
	return fmt.Errorf("%w: anchors with %d frames, the first %x", ErrReply, len(frames), frames[0])
}

// blocks is how many blocks the hashes make.
func (call *anchorsCall) blocks() int { return len(call.hashes) / call.hashLen / call.stride }

// addBlocks appends blocks from to end-1 to the blob.
func (call *anchorsCall) addBlocks(from, end int) {
	if call.stride == 1 {
		call.blob = append(call.blob, call.hashes[from*call.hashLen:end*call.hashLen]...)
		return
	}
	for b := from; b < end; b++ {
		at := (b*call.stride + call.stride - 1) * call.hashLen
		call.blob = append(call.blob, call.hashes[at:at+call.hashLen]...)
	}
}

// mostAnchors is how many anchors a client sends at most. With as many anchors as
// a gap has blocks two exchanges take the fewest bytes; but an anchor is ten times
// the work of one more hash behind another, so long prompts get longer gaps.
const mostAnchors = 64

// anchorGap is how many blocks lie between two anchors of n blocks, of which unit make
// the alignment.
func anchorGap(n, unit int) int {
	gap := (int(math.Sqrt(float64(n))) + unit - 1) / unit * unit
	if n/gap >= mostAnchors {
		gap = (n/mostAnchors + unit - 1) / unit * unit
	}
	return gap
}

// begin makes the first request: the first block, the last one that a hit may end
// with, and between them anchors at even distances.
func (call *anchorsCall) begin(unit uint32) {
	n, u := call.blocks(), int(unit)
	call.start()
	call.NumHashes = uint32(len(call.hashes) / call.hashLen)
	call.Stride = uint32(call.stride)
	if n == 0 {
		return
	}
	gap := anchorGap(n, u)
	call.anchor(0)
	for at := gap - 1; at < n-1; at += gap {
		call.anchor(at)
	}
	if last := n/u*u - 1; last > 0 {
		call.anchor(last)
	}
	if n*call.hashLen <= digestsUpTo {
		call.addDigests(0)
	}
}

func (call *anchorsCall) start() {
	call.Reset()
	call.blob = call.blob[:0]
}

// anchor adds an anchor unless it is there already.
func (call *anchorsCall) anchor(at int) {
	if n := call.Len(); n > 0 && int(call.Number(n-1)) >= at {
		return
	}
	call.Add(uint32(at))
	call.addBlocks(at, at+1)
}

// addDigests adds the digests of the anchors; of no meaning below block from.
func (call *anchorsCall) addDigests(from int) {
	held, below := len(call.blob), 0
	for i := range call.Len() {
		number := int(call.Number(i))
		digest := uint64(0)
		switch {
		case number < from:
		case call.stride == 1:
			digest = netproto.Digest(call.hashes[below*call.hashLen : (number+1)*call.hashLen])
		default:
			call.addBlocks(below, number+1)
			digest = netproto.Digest(call.blob[held:])
			call.blob = call.blob[:held]
		}
		call.AddDigest(digest)
		below = number + 1
	}
}

// narrow makes the second request: the anchors that the server can make use of,
// and the hashes behind them. It fails if the server asks for what the prompt does
// not have.
func (call *anchorsCall) narrow(more anchorsMore) error {
	known, said, end := int(more.known), int(more.said), int(more.end)
	if known > said || said > end || end > call.blocks() {
		return fmt.Errorf("%w: anchors: blocks %d, %d, %d are wanted of %d", ErrReply, known, said, end, call.blocks())
	}
	first := known
	if len(call.Digests) == 0 {
		first = said // which digests will show
	}
	numbers := append([]byte(nil), call.Numbers...)
	old := netproto.Anchors{Numbers: numbers}
	numHashes, stride := call.NumHashes, call.Stride
	call.start()
	call.NumHashes, call.Stride, call.First = numHashes, stride, uint32(first)
	for i := range old.Len() {
		if at := int(old.Number(i)); at < first && at >= known-1 {
			call.anchor(at)
		}
	}
	if first > known {
		call.addDigests(known)
	}
	call.addBlocks(first, end)
	return nil
}

// release gives the memory back.
func (call *anchorsCall) release() {
	call.hashes = nil
	if cap(call.blob) > keepCall {
		call.blob = nil
	}
	anchorsCalls.Put(call)
}
