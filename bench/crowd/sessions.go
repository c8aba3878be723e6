//go:build linux

package crowd

import (
	"context"
	"slices"

	"github.com/hitline/hitline/bench/measure"
	"github.com/hitline/hitline/bench/workload"
)

// minShared is how many leading ids a prompt shares with an earlier one of its session, at least. Nearly
// all prompts of a trace share the first id, a system prompt.
const minShared = 2

// prompt is one of a trace.
type prompt struct {
	ids    []uint64
	tokens int
}

// session is prompts that continue each other.
type session struct {
	number  int // of all that were begun
	prompts []prompt
}

// sessions are those of a trace, again and again.
type sessions struct {
	ofTrace [][]prompt
	begun   int
}

// readSessions groups the requests of a trace: each continues the session that had the longest part of its prompt
// before, and of those the one that had it last. One that shares fewer than minShared ids begins a session. In a
// trace an id names all before it, too.
func readSessions(ctx context.Context, trace workload.Trace) (*sessions, error) {
	s := &sessions{}
	last := map[uint64]int{} // by id: the session that had it last
	err := trace.Requests(ctx, blockTokens, 0, func(r workload.Request) error {
		if r.Tokens < blockTokens {
			return nil // it has no whole block to look up
		}
		at := len(s.ofTrace)
		for n := len(r.IDs); n >= minShared; n-- {
			if of, ok := last[r.IDs[n-1]]; ok {
				at = of
				break
			}
		}
		if at == len(s.ofTrace) {
			s.ofTrace = append(s.ofTrace, nil)
		}
		s.ofTrace[at] = append(s.ofTrace[at], prompt{r.IDs, r.Tokens})
		for _, id := range r.IDs {
			last[id] = at
		}
		return nil
	})
	s.ofTrace = slices.DeleteFunc(s.ofTrace, func(prompts []prompt) bool { return len(prompts) < 2 })
	if err == nil && len(s.ofTrace) == 0 {
		err = measure.BadOptions("no prompt of the trace %s continues another one", trace)
	}
	return s, err
}

// begin returns the next session. After the last one of the trace they come again with other ids, but for
// the first of each prompt.
func (s *sessions) begin() session {
	round, at := s.begun/len(s.ofTrace), s.begun%len(s.ofTrace)
	next := session{s.begun, s.ofTrace[at]}
	s.begun++
	if round == 0 {
		return next
	}
	next.prompts = nil
	for _, p := range s.ofTrace[at] {
		ids := []uint64{p.ids[0]}
		for _, id := range p.ids[1:] {
			ids = append(ids, id^uint64(round)*0x9e3779b97f4a7c15) // an odd number: each round has ids of its own
		}
		next.prompts = append(next.prompts, prompt{ids, p.tokens})
	}
	return next
}
