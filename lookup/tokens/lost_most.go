package tokens

import (
	"slices"
	"time"
)

const (
	// maxLostMost is how many requests that lost most are remembered, and lostMostTime for how long.
	maxLostMost  = 20
	lostMostTime = time.Hour
)

// lostMost are the requests of the last hour that lost most tokens, those that lost most first.
type lostMost []lostRequest

// lostRequest is what is remembered of a request.
type lostRequest struct {
	asker  string
	tokens int64
	place  Place // NumPlaces if nothing was remembered of the block that ended the hit
	block  int   // that ended the hit
	at     int64 // when it was last asked
}

// add adds a request that lost some tokens, unless others have lost more.
func (m *lostMost) add(req *request, tokens, now int64) {
	if tokens == 0 {
		return
	}
	m.expire(now)
	at, _ := slices.BinarySearchFunc(*m, tokens, func(r lostRequest, tokens int64) int { return int(tokens - r.tokens) })
	if at == maxLostMost {
		return
	}
	*m = slices.Insert(*m, at, lostRequest{req.key.asker, tokens, req.last.place, req.last.end, req.asked})
	*m = (*m)[:min(len(*m), maxLostMost)]
}

// expire removes the requests that are too long ago.
func (m *lostMost) expire(now int64) {
	*m = slices.DeleteFunc(*m, func(r lostRequest) bool { return now-r.at > int64(lostMostTime) })
}
