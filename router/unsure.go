package router

import (
	"cmp"
	"slices"

	"github.com/hitline/hitline/router/fleet"
)

// Unsure is a holder that may have other blocks than an answer says, and why.
type Unsure struct {
	fleet.ID
	Unknown bool // no source and no prediction names Query.Engine, so nothing is known of it. Rank is 0
	// Stale: events may be missing. The holder counts for nothing but what is predicted, or with Query.LastKnown for what it
	// had last.
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
	differ  bool // the hashes of a source that is not stale differ from those of the model, and those of no other agree
	// unchecked are the holders of sources that are not stale and whose hashes are not checked.
	unchecked []*fleet.Holder
	// kvEndpoints are those of all sources that have one, by holder.
	kvEndpoints map[fleet.ID]string
}

// refuses reports whether tokens can find nothing because hashes differ.
func (l *unsureList) refuses() bool {
	return l.differ && !slices.ContainsFunc(l.unchecked, func(h *fleet.Holder) bool { return h.Len() > 0 })
}

// unsureOf returns the holders of a model that may have other blocks than answers say. Callers share the list. It is made
// again after a source has changed.
func (s *Service) unsureOf(m *model) *unsureList {
	version := m.changes.Load()
	if known := m.unsure.Load(); known != nil && known.version == version {
		return known
	}
	made, agrees := &unsureList{version: version, kvEndpoints: map[fleet.ID]string{}}, false
	for _, a := range s.sources() {
		if a.model != m {
			continue
		}
		if a.KVEndpoint != "" {
			made.kvEndpoints[a.ID()] = a.KVEndpoint
		}
		st := a.follower.Status()
		u := Unsure{ID: a.ID(), Stale: st.Stale, Incomplete: !st.Complete || a.holder.Dropped() > st.Dropped}
		hashes, _ := a.hashes.result()
		made.differ = made.differ || !st.Stale && hashes == HashesDiffer
		agrees = agrees || !st.Stale && hashes == HashesAgree
		if hashes != HashesAgree {
			u.Hashes = hashes
		}
		if !st.Stale && hashes == HashesUnchecked {
			made.unchecked = append(made.unchecked, a.holder)
		}
		if u.Stale || u.Incomplete || u.Hashes != "" {
			made.list = append(made.list, u)
		}
	}
	made.differ = made.differ && !agrees
	slices.SortFunc(made.list, func(a, b Unsure) int { return cmp.Or(cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Rank, b.Rank)) })
	m.unsure.Store(made)
	return made
}

// setUnsure sets the holders that may have other blocks than the answer to q says. Call it after the blocks were read:
// otherwise a source that becomes stale in between is left out.
func (a *Answer) setUnsure(list []Unsure, q *Query, m *model) {
	a.Unsure = a.Unsure[:0]
	byHashes := q.byHashes()
	for _, u := range list {
		if byHashes {
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
