package server

import "github.com/hitline/hitline/netproto"

// queueReply queues a job after those with an equal envelope. It returns false if the connection
// has twice the requests in flight that it may have: it is to be closed then.
func (s *session) queueReply(j *job) bool {
	if int(s.conn.unanswered.Load()) >= 2*s.conn.limits.Load().MaxInFlight+s.conn.unansweredBefore {
		j.release()
		s.conn.fail(errInFlight) // closeJobs records its ask
		return false
	}
	js := &s.jobs
	if js.last == nil {
		js.last = map[string]*job{}
	}
	key := string(envelopeKey(j.q.Envelope))
	if last := js.last[key]; last != nil {
		last.next, j.behind = j, true
	}
	js.last[key] = j
	j.bytes = jobBytes
	js.bytes += j.bytes
	s.conn.unanswered.Add(1)
	s.shared.inFlight.Add(1)
	return true
}

// envelopeKey returns the key by which envelopes are compared. No envelope and the bare
// delimiter are equal.
func envelopeKey(envelope []byte) []byte {
	if string(envelope) == bareDelimiter {
		return nil
	}
	return envelope
}

// bareDelimiter is an envelope without addresses.
var bareDelimiter = string(netproto.AppendFrameHeader(nil, 0, true))

// finish marks a job as answered. It writes the reply unless one to an equal envelope must come
// first, and then the replies that waited for it.
func (s *session) finish(j *job) {
	j.release()
	clear(j.q.Token)
	s.charge(j, min(j.bytes, jobBytes+len(j.q.Envelope)+len(j.reply)))
	j.answered = true
	if j.behind {
		s.jobs.replyBytes += len(j.reply)
		return
	}
	for j.answered && !s.conn.isEnding() {
		if j.next == nil {
			delete(s.jobs.last, string(envelopeKey(j.q.Envelope)))
		}
		s.writeReply(j)
		if j = j.next; j == nil {
			return
		}
		j.behind = false
		if j.answered {
			s.jobs.replyBytes -= len(j.reply)
		}
	}
}

// writeReply appends the reply to a job.
func (s *session) writeReply(j *job) {
	js := &s.jobs
	js.bytes -= j.bytes
	s.conn.unanswered.Add(-1)
	s.shared.inFlight.Add(-1)
	if j.err != nil {
		s.appendRefusal(j.tag, j.pool, j.q.Envelope, j.err)
	} else {
		s.turn.out = append(s.turn.out, j.reply...)
	}
	if j.err == nil && j.isHit {
		s.conn.loop.metrics.observeHashes(j.q.NumHashes)
		if j.completed == 0 {
			s.turn.countLookup(j.began)
		} else {
			s.conn.loop.metrics.observeDurations(max(j.completed-j.began, 0), 1)
		}
	}
	s.countAnswer(j.tag)
	s.answerJobAsk(j)
	s.conn.flush(flushAt)
}

// countAnswer counts a request whose reply is written. One that is written after the peer's FIN may have been given up.
func (s *session) countAnswer(tag netproto.Tag) {
	s.conn.loop.metrics.requests[tag].Add(1)
	if s.conn.isHalfClosed() {
		s.conn.loop.metrics.afterFIN.Add(1)
	}
}
