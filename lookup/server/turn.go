package server

import (
	"time"

	"github.com/hitline/hitline/lookup/internal/monotime"
	"github.com/hitline/hitline/lookup/tokens"
)

const (
	// turnTime is how long a turn begins further requests, and readOnTime how long it reads on: what it
	// reads then is usually served within the turn.
	turnTime, readOnTime = 50 * time.Microsecond, 25 * time.Microsecond
	// requestsPerLook is how many requests are served before the clock is looked at.
	requestsPerLook = 8
	// readBuffer is the size in bytes of a loop's read buffer: two lookups of 512 hashes.
	readBuffer = 32 << 10
	// readOnBuffer is how many bytes a turn reads at a time after its first read.
	readOnBuffer = 64 << 10
	// flushAt is the size in bytes at which replies are written before the end of the turn, so
	// that small requests with large replies take bounded memory.
	flushAt = 64 << 10
	// requestsWithoutMemory is how many more a turn serves if there is no memory to keep them.
	requestsWithoutMemory = 64
	// maxReplies is the largest capacity in bytes of replies that is used again.
	maxReplies = 1 << 20
)

// turn is what an event loop does for one connection before it serves the next.
type turn struct {
	out      []byte // replies that are not written
	start    time.Time
	readAt   int64 // when the bytes that are served now were read, in monotime
	ended    uint  // requests that have ended
	minEnded uint  // the turn is not over before
	answered []answeredLookups
	asks     []*tokens.Event // of requests whose replies are in out: see eventLoop.recordAsks
}

// answeredLookups are lookups that began with one read.
type answeredLookups struct{ began, number int64 }

func (t *turn) begin() {
	now := time.Now()
	*t = turn{out: t.out[:0], start: now, readAt: monotime.At(now), answered: t.answered[:0], asks: t.asks}
}

func (t *turn) end() {
	if cap(t.out) > maxReplies {
		t.out = nil
	}
}

// isOver reports whether the turn is over.
func (t *turn) isOver() bool { return t.ended >= t.minEnded && time.Since(t.start) > turnTime }

// endRequest counts a request that has ended, and reports whether the turn is known to be over.
func (t *turn) endRequest() (over bool) {
	t.ended++
	return t.ended%requestsPerLook == 0 && t.isOver()
}

// lookSoon has the next endRequest look at the clock.
func (t *turn) lookSoon() { t.ended = requestsPerLook - 1 }

// extend has the turn serve more requests in any case.
func (t *turn) extend(requests uint) { t.minEnded = t.ended + requests }

// mayReadOn reports whether there is time for a further read, which is made now.
func (t *turn) mayReadOn() bool {
	took := time.Since(t.start)
	t.readAt = monotime.At(t.start) + int64(took)
	return took < readOnTime
}

// countLookup counts a lookup that is answered in this turn, and began with a read at a time in monotime.
func (t *turn) countLookup(began int64) {
	if last := len(t.answered) - 1; last >= 0 && t.answered[last].began == began {
		t.answered[last].number++
		return
	}
	t.answered = append(t.answered, answeredLookups{began, 1})
}

// observe adds the lookups of the turn to the metrics. Their replies were written together, now.
func (t *turn) observe(metrics *loopMetrics) {
	if len(t.answered) == 0 {
		return
	}
	now := monotime.Now()
	for _, a := range t.answered {
		metrics.observeDurations(max(now-a.began, 0), a.number)
	}
}
