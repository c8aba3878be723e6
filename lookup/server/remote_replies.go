package server

import (
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/netproto"
)

// enqueueReply queues a request behind those with an equal envelope. Of consecutive
// requests over the limit it keeps only the first and their number, so a peer cannot make
// the server keep more than MaxInFlight requests. It then returns false.
func (h *remoteHandler) enqueueReply(r *remoteRequest) bool {
	key := string(envelopeKey(r.envelope))
	last := h.last[key]
	if last != nil && last.refused && r.refused {
		last.repeat++
		return false
	}
	if last != nil {
		last.next, r.behind = r, true
	}
	h.last[key] = r
	h.envelopeBytes += len(r.envelope)
	h.session.inFlight.Add(1)
	h.session.server.inFlight.Add(1)
	return true
}

// envelopeKey returns the key by which envelopes are compared. No envelope and the bare
// delimiter are equal.
func envelopeKey(envelope []byte) []byte {
	if len(envelope) == len(bareDelimiter) && string(envelope) == bareDelimiter {
		return nil
	}
	return envelope
}

// bareDelimiter is an envelope without addresses.
var bareDelimiter = string(netproto.AppendFrameHeader(nil, 0, true))

// finish marks a request as answered. It writes the reply unless one to an equal envelope
// must come first, and then the replies that waited for it.
func (h *remoteHandler) finish(r *remoteRequest) {
	r.release()
	r.answered = true
	if r.behind {
		h.heldBytes += len(r.payload)
		return
	}
	for r.answered && h.session.sendErr == nil {
		if r.next == nil {
			delete(h.last, string(envelopeKey(r.envelope)))
		}
		h.writeReply(r)
		if r = r.next; r == nil {
			return
		}
		r.behind = false
		if r.answered {
			h.heldBytes -= len(r.payload)
		}
	}
}

// writeReply appends the reply to a request, and to the requests that repeat counts.
func (h *remoteHandler) writeReply(r *remoteRequest) {
	s := h.session
	h.envelopeBytes -= len(r.envelope)
	h.endedBytes -= r.endedBytes
	s.inFlight.Add(-1)
	s.server.inFlight.Add(-1)
	if r.tag == netproto.TagStat && r.err == nil {
		h.makeStat(r)
	}
	for range 1 + r.repeat {
		switch {
		case s.sendErr != nil:
			return
		case r.err != nil && r.tag == netproto.TagLookup:
			s.appendFailedLookup(r.pool, r.envelope, r.err)
		case r.err != nil:
			s.appendFailed(r.envelope, r.err)
		case r.isLookup():
			if r.tag == netproto.TagPlan {
				r.replyPlan(s)
			} else {
				s.appendHit(r.envelope, r.hit)
			}
			s.metrics.observeDurations(max(monotime.Now()-r.began, 0), 1)
			s.metrics.observeHashes(r.numHashes)
			s.stats.newLookups++
		default:
			s.out.B = netproto.AppendDone(s.out.B, r.envelope, r.payload)
		}
		s.countReply(r.sent)
		s.flush(flushAt)
	}
}

// statKey is what the payload of a stat depends on.
type statKey struct {
	pool       *pool
	credential *access.Credential
}

// makeStat sets the payload of a stat, or the error if it is not allowed any more. Those that a wake
// answers share one.
func (h *remoteHandler) makeStat(r *remoteRequest) {
	if r.err = r.checkAuthorized(); r.err != nil {
		return
	}
	key := statKey{r.pool, r.credential}
	if r.payload = h.sharedStats[key]; r.payload != nil {
		return
	}
	h.session.publishReplies()
	r.payload, r.err = encodeJSON(h.session.server.statFor(r.credential, r.pool))
	if r.err == nil && h.waking {
		if h.sharedStats == nil {
			h.sharedStats = map[statKey][]byte{}
		}
		h.sharedStats[key] = r.payload
	}
}
