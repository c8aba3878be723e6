package router

import (
	"cmp"
	"slices"
	"time"

	"github.com/hitline/hitline/router/fleet"
)

// Unsure is a holder that may have other blocks than an answer says, and why.
type Unsure struct {
	fleet.ID
	Unknown bool // no source and no prediction names Query.Engine, so nothing is known of it. Rank is 0
	// Stale: events may be missing, or a dump had its source, which is not followed here. The holder counts for nothing but
	// what is predicted, or with Query.LastKnown for what it had last.
	Stale      bool
	Incomplete bool // it may have more: events were lost, or were published before its source was followed
	// Hashes is set in the answer to a query by tokens, unless they agree: what the holder has may not be found.
	Hashes Agreement
}

// Reasons appends why: unknown, stale, incomplete, unchecked or differ, as answers over HTTP have them.
func (u *Unsure) Reasons(dst []string) []string {
	if u.Unknown {
		dst = append(dst, "unknown")
	}
	if u.Stale {
		dst = append(dst, "stale")
	}
	if u.Incomplete {
		dst = append(dst, "incomplete")
	}
	if u.Hashes != "" {
		dst = append(dst, string(u.Hashes))
	}
	return dst
}

// unsureList is what unsureOf returns. It is right as long as the model's count of changes is version.
type unsureList struct {
	version uint64
	list    []Unsure
	// numSources and numDiffering count the model's sources, and those whose hashes differ from the model's.
	numSources, numDiffering int
	agrees                   bool      // the hashes of a live source agree with the model's
	differs                  *fleet.ID // a live source whose hashes differ; nil: there is none
	reason                   string    // what its hash is
	warnedAt                 time.Time // when the log last had that none agrees
	// kvEndpoints are those of all sources that have one, by holder.
	kvEndpoints map[fleet.ID]string
}

// allDiffer reports whether tokens find nothing but what is predicted, as the hashes of every source differ.
func (l *unsureList) allDiffer() bool { return l.numSources > 0 && l.numDiffering == l.numSources }

// noneAgrees reports whether hashes of live sources differ, and those of no live source agree.
func (l *unsureList) noneAgrees() bool { return l.differs != nil && !l.agrees }

// unsureOf returns the holders of a model that may have other blocks than answers say. Callers share the list. It is made
// again after a source has changed.
func (s *Service) unsureOf(m *model) *unsureList {
	version, known := m.changes.Load(), m.unsure.Load()
	if known != nil && known.version == version {
		return known
	}
	made := &unsureList{version: version, kvEndpoints: map[fleet.ID]string{}}
	for _, id := range s.unfollowedOf(m.cfg.ModelKey) { // before those that are followed: one that begins to be is in either
		made.numSources++
		made.list = append(made.list, Unsure{ID: id, Stale: true, Hashes: HashesUnchecked})
	}
	for _, a := range s.sources() {
		if a.model == m {
			made.add(a)
		}
	}
	slices.SortFunc(made.list, compareUnsure)
	begins := made.noneAgrees()
	if known != nil {
		made.warnedAt = known.warnedAt
		begins = begins && !known.noneAgrees() && time.Since(known.warnedAt) >= warnEvery
	}
	if begins {
		made.warnedAt = time.Now()
	}
	if m.unsure.CompareAndSwap(known, made) && begins {
		s.log.Warn("router: no live source of a model is known to hash as its hash says, and one differs: queries by tokens find little",
			"model", m.cfg.Name, "tenant", m.cfg.Tenant, "engine", made.differs.Engine, "rank", made.differs.Rank,
			"reason", made.reason)
	}
	return made
}

// join returns the holders of l and of a later list, with what is not sure in either.
func (l *unsureList) join(later *unsureList) []Unsure {
	if l == later {
		return l.list
	}
	var list []Unsure
	for _, u := range slices.SortedStableFunc(slices.Values(slices.Concat(later.list, l.list)), compareUnsure) {
		if n := len(list); n > 0 && list[n-1].ID == u.ID {
			last := &list[n-1]
			last.Stale, last.Incomplete, last.Hashes = last.Stale || u.Stale, last.Incomplete || u.Incomplete, cmp.Or(last.Hashes, u.Hashes)
			continue
		}
		list = append(list, u)
	}
	return list
}

func compareUnsure(a, b Unsure) int {
	return cmp.Or(cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Rank, b.Rank))
}

// add adds what is not sure of a source.
func (l *unsureList) add(a *activeSource) {
	if a.KVEndpoint != "" {
		l.kvEndpoints[a.ID()] = a.KVEndpoint
	}
	st := a.follower.Status()
	u := Unsure{ID: a.ID(), Stale: st.Stale, Incomplete: !st.Complete || a.holder.Dropped() > st.Dropped}
	hashes, reason := a.hashes.result()
	l.numSources++
	if hashes == HashesDiffer {
		l.numDiffering++
	}
	switch {
	case st.Stale:
	case hashes == HashesAgree:
		l.agrees = true
	case hashes == HashesDiffer:
		l.differs, l.reason = &u.ID, reason
	}
	if isEmpty := !u.Stale && !u.Incomplete && st.Blocks == 0; hashes != HashesAgree && !(isEmpty && hashes == HashesUnchecked) {
		u.Hashes = hashes // of an empty engine a prefix of 0 is certain, however it hashes
	}
	if u.Stale || u.Incomplete || u.Hashes != "" {
		l.list = append(l.list, u)
	}
}

// setUnsure sets the holders that may have other blocks than the answer to q says: those that were unsure before the blocks
// were read, or after. A source that becomes stale, or is stale no longer, in between is one of them.
func (a *Answer) setUnsure(before, after *unsureList, q *Query, m *model) {
	a.Unsure = a.Unsure[:0]
	ignoresHashing := q.byHashes() || len(q.Tokens) < a.BlockSize // of less than a block nothing can be found
	for _, u := range before.join(after) {
		if ignoresHashing {
			u.Hashes = ""
		}
		if (q.Engine == "" || q.Engine == u.Engine) && (u.Stale || u.Incomplete || u.Hashes != "") {
			a.Unsure = append(a.Unsure, u)
		}
	}
	if q.Engine != "" && len(a.Holders)+len(a.Unsure) == 0 && !m.names(q.Engine) {
		a.Unsure = append(a.Unsure, Unsure{ID: fleet.ID{Engine: q.Engine}, Unknown: true})
	}
}
