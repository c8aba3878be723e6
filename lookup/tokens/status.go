package tokens

import (
	"cmp"
	"slices"
	"time"

	"github.com/hitline/hitline/lookup/api"
)

// Status returns where the tokens went so far. nil accounts return nil.
func (s *Accounts) Status(a *Account) *api.PoolTokens {
	if a == nil {
		return nil
	}
	s.Flush()
	return a.status(s.cfg.Now())
}

// Map returns the tokens by the names of their places.
func (c *Counts) Map() map[string]int64 {
	m := make(map[string]int64, len(c))
	for p, n := range c {
		m[Place(p).String()] = n
	}
	return m
}

func (a *Account) status(now int64) *api.PoolTokens {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := func(mono int64) time.Time {
		return time.Now().Add(time.Duration(mono - now)).UTC().Truncate(time.Second)
	}
	status := &api.PoolTokens{
		Tokens: a.counts.Map(), Prompts: a.closed, Open: a.open.len(), Keys: a.keys, NotCounted: a.lost.Load(), LookedKeys: a.looks.keys, LooksDropped: a.looks.dropped,
		RetentionSeconds: time.Duration(a.recall.remembers()).Seconds(), EvictedAgeSeconds: time.Duration(a.recall.evictedAge()).Seconds(),
		Curve: []api.SizedPool{},
	}
	if a.table.limit > 0 {
		status.Share = share(a.table.judged)
	}
	if oldest := a.table.oldest(); oldest != nil {
		status.RemembersSince = at(oldest.asked)
		if age := now - oldest.asked; age > int64(time.Hour) || a.recall.remembers() != 0 && age > a.recall.remembers() {
			measured := a.curve.measured()
			status.MeasuredHitShare = &measured
			if status.Curve = a.curve.sizes(); a.size > 0 {
				status.Curve = a.curve.multiplesOf(a.size)
			}
		}
	}
	for _, asker := range a.askers.byName {
		told := asker.status(at)
		if shared, ok := a.askers.sharedFirstBlocks(asker, now); ok {
			told.FirstBlockShared = &shared
		}
		status.Askers = append(status.Askers, told)
	}
	slices.SortFunc(status.Askers, func(x, y api.Asker) int {
		return cmp.Or(-cmp.Compare(x.Prompts, y.Prompts), cmp.Compare(x.Name, y.Name))
	})
	a.most.expire(now)
	for _, r := range a.most {
		told := api.LostRequest{Asker: r.asker, Tokens: r.tokens, Block: int64(r.block), At: at(r.at)}
		if r.place != NumPlaces {
			told.Place = r.place.String()
		}
		status.LostMost = append(status.LostMost, told)
	}
	if a.askers.rest.requests > 0 {
		rest := a.askers.rest.status(at)
		status.OtherAskers = &rest
	}
	return status
}

func (a *asker) status(at func(int64) time.Time) api.Asker {
	return api.Asker{Name: a.name, Prompts: a.requests, Tokens: a.counts.Map(), LastSeen: at(a.lastSeen)}
}

// share returns a threshold of fingerprints as the share of blocks below it.
func share(threshold uint64) float64 { return float64(threshold) / (1 << 64) }
