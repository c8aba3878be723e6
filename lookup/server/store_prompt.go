package server

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

// leastPromptPiece is the least number of hashes of a prompt that are stored before the work is
// checked again. Fewer would cost more in calls than they save in time.
const leastPromptPiece = 4

// beginPrompt begins a store of a prompt. All checks are made now: later nothing is refused.
func (h *memoryHandler) beginPrompt(q *netproto.Request) (wanted bool, err error) {
	h.prompt = promptWriters.Get().(*lookup.PromptWriter)
	err = h.session.pool.service.BeginStorePrompt(h.prompt, h.session.rules, &q.Prompt, q.HashLen, q.NumHashes)
	h.session.workLeft -= h.prompt.Work()
	return err == nil && h.prompt.Wanted(), err
}

// promptWriters holds the writers of memory handlers between prompts.
var promptWriters = sync.Pool{New: func() any { return new(lookup.PromptWriter) }}

// releasePrompt releases the writer of the prompt being received.
func (h *memoryHandler) releasePrompt() {
	if h.prompt != nil {
		h.prompt.Release()
		promptWriters.Put(h.prompt)
		h.prompt = nil
	}
}

// addPrompt stores what the next hashes of a prompt key, within the work that is left. It
// returns how many bytes of them it has consumed.
func (h *memoryHandler) addPrompt(q *netproto.Request, hashes []byte) (consumed int) {
	piece := min(max(turnShare/h.prompt.WorkPerHash(), leastPromptPiece), changePiece)
	for s := h.session; consumed < len(hashes) && s.workLeft > 0 && h.err == nil; {
		n := min(len(hashes)-consumed, piece*q.HashLen)
		worked := h.prompt.Work()
		h.err = h.prompt.Add(context.Background(), hashes[consumed:consumed+n])
		s.workLeft -= h.prompt.Work() - worked
		consumed += n
	}
	return consumed
}

// replyPrompt appends the reply to a store of a prompt.
func (h *memoryHandler) replyPrompt(q *netproto.Request) error {
	if err := h.prompt.Err(); err != nil {
		return err
	}
	s := h.session
	s.out.B = netproto.AppendDone(s.out.B, q.Envelope, storedPayload(h.prompt))
	return nil
}

// storedPayload returns the frame with the number of chunks stored for each store group.
func storedPayload(w *lookup.PromptWriter) []byte {
	stored := w.Stored(nil)
	payload := netproto.AppendFrameHeader(nil, 4*len(stored), false)
	for _, n := range stored {
		payload = binary.BigEndian.AppendUint32(payload, uint32(n))
	}
	return payload
}

// preparePrompt begins a store of a prompt over a backend, and sets how many bytes of hashes it
// needs.
func (r *remoteRequest) preparePrompt(q *netproto.Request) error {
	w := new(lookup.PromptWriter)
	if err := r.pool.service.BeginStorePrompt(w, r.handler.session.rules, &q.Prompt, q.HashLen, q.NumHashes); err != nil {
		return err
	}
	r.prompt = w
	if w.Wanted() {
		r.neededBytes = q.NumHashes * q.HashLen
	}
	return nil
}

// storePrompt stores a prompt over the backend and sets the payload. A worker calls it.
func (r *remoteRequest) storePrompt(ctx context.Context, hashes coordinator.Hashes) error {
	if err := r.prompt.Add(ctx, hashes.Bytes()); err != nil {
		return err
	}
	r.payload = storedPayload(r.prompt)
	return r.prompt.Err()
}

// held returns the bytes of memory of the request's PromptWriter.
func (r *remoteRequest) held() int {
	if r == nil || r.prompt == nil {
		return 0
	}
	return r.prompt.Held()
}
