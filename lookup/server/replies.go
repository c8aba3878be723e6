package server

import "github.com/hitline/hitline/netproto"

// queueReply queues a job after those with an equal envelope. It returns false if the connection
// has twice the requests in flight that it may have: it is to be closed then.
func (js *jobs) queueReply(j *job) bool {
	s := js.session
	if int(s.conn.unanswered.Load()) >= 2*s.conn.limits.Load().MaxInFlight+s.conn.unansweredBefore {
		j.release()
		s.conn.fail(errInFlight) // jobs.close records its ask
		return false
	}
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

// answer marks a job as answered. It writes the reply unless one to an equal envelope must come
// first, and then the replies that waited for it.
func (js *jobs) answer(j *job) {
	s := js.session
	j.release()
	clear(j.q.Token)
	js.charge(j, min(j.bytes, jobBytes+len(j.q.Envelope)+len(j.reply)))
	j.answered = true
	if j.behind {
		js.replyBytes += len(j.reply)
		return
	}
	for j.answered && !s.conn.isEnding() {
		if j.next == nil {
			delete(js.last, string(envelopeKey(j.q.Envelope)))
		}
		js.writeReply(j)
		if j = j.next; j == nil {
			return
		}
		j.behind = false
		if j.answered {
			js.replyBytes -= len(j.reply)
		}
	}
}

// writeReply appends the reply to a job.
func (js *jobs) writeReply(j *job) {
	s := js.session
	js.bytes -= j.bytes
	s.conn.unanswered.Add(-1)
	s.shared.inFlight.Add(-1)
	if j.err != nil {
		s.appendRefusal(j.q.Tag, j.pool, j.q.Envelope, j.err)
	} else {
		s.turn.out = append(s.turn.out, j.reply...)
	}
	if j.err == nil && operations[j.q.Tag].hit {
		s.conn.loop.metrics.observeHashes(j.q.NumHashes)
		if j.completed == 0 {
			s.turn.countLookup(j.began)
		} else {
			s.conn.loop.metrics.observeDurations(max(j.completed-j.began, 0), 1)
		}
	}
	s.conn.loop.metrics.countAnswer(j.q.Tag, s.conn.isHalfClosed())
	s.asks.answerJob(j)
	s.conn.flush(flushAt)
}
