package server

import (
	"bytes"
	"context"
	"math"
	"sync"
	"unsafe"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/api"
	"github.com/hitline/hitline/netproto"
)

// maskFrame is the frame of masks of one reply. It is built in steps, so that many runs do not
// make a turn long. It belongs to one request from getMaskFrame to release.
type maskFrame struct {
	rules   *coordinator.Coordinator
	masks   []coordinator.Mask // of each group of the pool
	scratch coordinator.Scratch
	hit     api.Hit // of a plan

	next      int  // the mask that is being encoded
	hasHeader bool // its header is in the frame, from byte header on
	header    int
	at        int64  // the first of its entries that is not encoded
	numRuns   int    // of all masks
	frame     []byte // encoded so far
}

const (
	// maskWork is the work of the mask of a group, and runWork that of finding and writing a run.
	maskWork, runWork = 30, 10
	// keptMaskBytes is how many bytes a pooled maskFrame keeps: those of the largest reply.
	keptMaskBytes = 512 << 10
)

// maskFrames holds the *maskFrame of finished requests.
var maskFrames = sync.Pool{New: func() any { return new(maskFrame) }}

// getMaskFrame returns an empty frame for masks by some rules. The caller must release it.
func getMaskFrame(rules *coordinator.Coordinator) *maskFrame {
	f := maskFrames.Get().(*maskFrame)
	f.rules = rules
	return f
}

// release returns the frame to the pool.
func (f *maskFrame) release() {
	f.rules, f.hit = nil, api.Hit{}
	f.next, f.hasHeader, f.at, f.numRuns = 0, false, 0, 0
	f.masks, f.frame = f.masks[:0], f.frame[:0]
	if f.held() <= keptMaskBytes {
		maskFrames.Put(f)
	}
}

// held returns the bytes of memory that the frame holds.
func (f *maskFrame) held() int {
	return cap(f.masks)*int(unsafe.Sizeof(coordinator.Mask{})) + cap(f.frame)
}

// begin sets the masks that a request asks for. It subtracts the work from workLeft.
func (f *maskFrame) begin(tag netproto.Tag, p *netproto.Prompt, workLeft *int) (err error) {
	tokens := int64(p.NumTokens)
	switch tag {
	case netproto.TagLoadMask:
		f.masks, err = f.rules.AppendLoadMask(f.masks, int(min(uint64(p.NumHashes), math.MaxInt)), tokens, &f.scratch)
		*workLeft -= f.scratch.Work()
	case netproto.TagStoreMask:
		prompt := int64(p.PromptTokens)
		if p.PromptTokens == netproto.PromptTokensUnknown {
			prompt = coordinator.NoPrompt
		}
		f.masks, err = f.rules.AppendStoreMask(f.masks, tokens, int64(p.StartToken), prompt)
	default:
		f.masks, err = f.rules.AppendLookupMask(f.masks, tokens)
	}
	*workLeft -= len(f.masks) * maskWork
	return err
}

// encode encodes the masks within the work that is left. If it returns false there is more to
// do, and the next call goes on.
func (f *maskFrame) encode(workLeft *int) (done bool, err error) {
	for ; f.next < len(f.masks); f.next++ {
		m := &f.masks[f.next]
		if !f.hasHeader {
			f.appendHeader(m)
		}
		for !m.IsAll() {
			if *workLeft <= 0 {
				return false, nil
			}
			start, end, ok := m.Next(f.at)
			if !ok {
				break
			}
			if f.numRuns++; f.numRuns > netproto.MaxRuns {
				return true, lookup.ErrTooManyRuns
			}
			f.frame = netproto.AppendRun(f.frame, f.header, uint32(m.First()+start), uint32(m.First()+end))
			f.at = end
			*workLeft -= runWork
		}
		f.hasHeader = false
	}
	return true, nil
}

// appendHeader appends the header of the mask that is being encoded.
func (f *maskFrame) appendHeader(m *coordinator.Mask) {
	f.hasHeader, f.header, f.at = true, len(f.frame), 0
	sent := netproto.Mask{Group: netproto.NoGroup, First: uint32(m.First()), End: uint32(m.First() + m.Len()), All: m.IsAll()}
	if g := f.rules.StoreGroup(f.next); g >= 0 {
		sent.Group = uint32(g)
	}
	f.frame = netproto.AppendMask(f.frame, &sent)
}

// masksSome serves a request for masks within the work that is left. If it returns false there is
// more to do, and the next call goes on with the frame.
func (s *session) masksSome(f **maskFrame, q *netproto.Request) (done bool, err error) {
	if *f == nil {
		*f = getMaskFrame(s.rules)
		if err := (*f).begin(q.Tag, &q.Prompt, &s.workLeft); err != nil {
			return true, err
		}
	}
	return (*f).encode(&s.workLeft)
}

// replyMasks appends the reply to a request for masks.
func (h *memoryHandler) replyMasks(q *netproto.Request) (done bool, err error) {
	s := h.session
	if done, err = s.masksSome(&h.masks, q); done && err == nil {
		s.out.B = netproto.AppendMasksReply(s.out.B, q.Envelope, h.masks.frame)
	}
	return done, err
}

// replyPlan appends the reply to a plan.
func (h *memoryHandler) replyPlan(q *netproto.Request) (done bool, err error) {
	s := h.session
	if h.masks == nil {
		h.masks = getMaskFrame(s.rules)
	}
	f := h.masks
	if len(f.masks) == 0 {
		if f.hit, f.masks, done, err = h.query.FinishPlanSome(f.masks); err != nil || !done {
			return done, err
		}
		s.workLeft -= len(f.masks) * maskWork
	}
	if done, err = f.encode(&s.workLeft); err != nil || !done {
		return done, err
	}
	s.appendPlan(q.Envelope, f.hit, f.frame)
	s.countLookup(q.NumHashes)
	return true, nil
}

// buildMasks builds the frame of a request for masks that can be served. If it returns false
// there is more to do. No worker is needed, as no store is asked.
func (h *remoteHandler) buildMasks(q *netproto.Request) (done bool, err error) {
	if !q.Tag.IsMask() || h.session.pool == nil {
		return true, nil
	}
	if q.Problem != nil {
		return true, q.Problem
	}
	if err := h.overLimit(); err != nil {
		return true, err
	}
	return h.session.masksSome(&h.masks, q)
}

// plan makes a lookup and sets the hit, and its masks as payload. A worker calls it.
func (r *remoteRequest) plan(ctx context.Context, hashes coordinator.Hashes) (err error) {
	var masks []coordinator.Mask
	if r.hit, masks, err = r.pool.remote.Plan(ctx, r.numTokens, r.numHashes, hashes); err == nil {
		r.payload, err = encodeMasks(r.pool, masks)
	}
	return err
}

// encodeMasks returns the frame of the masks of all groups of a pool.
func encodeMasks(p *pool, masks []coordinator.Mask) ([]byte, error) {
	f, workLeft := getMaskFrame(p.service.Coordinator()), math.MaxInt
	defer f.release()
	f.masks = append(f.masks, masks...)
	_, err := f.encode(&workLeft)
	return bytes.Clone(f.frame), err
}

// replyPlan appends the reply to a plan over a backend. One that was not looked up has no masks.
func (r *remoteRequest) replyPlan(s *session) {
	if r.payload == nil {
		r.payload, _ = encodeMasks(r.pool, r.pool.service.Coordinator().AppendEmptyMasks(nil)) // cannot fail: no run
	}
	s.appendPlan(r.envelope, r.hit, r.payload)
}

// appendPlan appends the reply to a plan. masks is its frame of masks.
func (s *session) appendPlan(envelope []byte, hit api.Hit, masks []byte) {
	s.out.B = netproto.AppendPlanReply(s.out.B, envelope, uint32(hit.Tokens), len(hit.TailBoundaries))
	for _, b := range hit.TailBoundaries {
		s.out.B = netproto.AppendTailBoundary(s.out.B, uint32(b.Group), uint32(b.Tokens))
	}
	s.out.B = netproto.AppendFrame(s.out.B, masks, false)
}

// releaseMasks releases a frame, which may be nil.
func releaseMasks(f **maskFrame) {
	if *f != nil {
		(*f).release()
		*f = nil
	}
}
