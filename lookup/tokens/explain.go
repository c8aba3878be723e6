package tokens

import (
	"maps"
	"time"

	"github.com/hitline/hitline/lookup/api"
)

// Explain returns where the tokens of an ask would be counted if it were a new request. It changes nothing.
func (s *Accounts) Explain(r *Event) api.LostTokens {
	s.Flush()
	a := r.account
	a.mu.Lock()
	defer a.mu.Unlock()
	now := s.cfg.Now()
	at := func(mono int64) time.Time {
		if mono == 0 {
			return time.Time{}
		}
		return time.Now().Add(time.Duration(mono - now)).UTC().Truncate(time.Second)
	}
	r.sampled = min(r.sampled, r.added) // a server copies no more than can change the answer
	req := &request{last: lastOf(r)}
	req.known = a.knownBlocks(r, a.trackedSamples(r))
	carry, guessed := a.carry, a.looks.carry
	defer func() { a.carry, a.looks.carry = carry, guessed }()
	parts := a.split(req)
	counts := Counts{Engine: parts.engine, InPool: parts.pool, Rules: parts.rules, New: parts.new, NoAnswer: parts.noAnswer}
	told := api.LostTokens{Block: int64(r.end())}
	if oldest := a.table.oldest(); oldest != nil {
		told.RemembersSince = at(oldest.asked)
	}
	if parts.lost > 0 {
		place, e := a.placeNow(req, r, now)
		counts[place] += parts.lost
		told.Place = place.String()
		if e != nil {
			told.AskedAt, told.WholeAt = at(e.asked), at(e.whole)
		}
	}
	told.Tokens = counts.Map()
	maps.DeleteFunc(told.Tokens, func(_ string, n int64) bool { return n == 0 })
	return told
}
