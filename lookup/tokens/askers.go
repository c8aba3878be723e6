package tokens

import (
	"container/list"
	"time"
)

const (
	// maxAskers is how many askers of a pool are told by name. The others are summed up.
	maxAskers = 64
	// maxFirstBlocks is how many first blocks of prompts are remembered, to tell who asked for them.
	maxFirstBlocks  = 1 << 12
	firstBlockBytes = 256
	// Shares of first blocks are of the last hour, and absent if an asker has begun fewer prompts at their first token.
	firstBlockTime  = time.Hour
	minFirstBlocks  = 20
	firstBlockParts = 6
)

// askers are those who ask for the prompts of one pool.
type askers struct {
	byName map[string]*asker
	rest   asker
	firsts firstBlocks
}

// asker is one of them.
type asker struct {
	name     string
	requests int64
	counts   Counts
	lastSeen int64
	// parts are ten minutes each: how many prompts began at their first token, and of these how many first blocks another asker had
	// asked for before.
	parts [firstBlockParts]struct{ part, prompts, shared int64 }
}

func newAskers(reserve func(bytes int) bool) askers {
	firsts := firstBlocks{byFingerprint: map[uint64]*list.Element{}, order: list.New(), reserved: reservation{reserve: reserve, each: firstBlockBytes, max: maxFirstBlocks}}
	return askers{byName: map[string]*asker{}, firsts: firsts}
}

// get returns the asker of a name. If there are too many the one with the fewest requests becomes one of the rest.
func (s *askers) get(name string) *asker {
	if a := s.byName[name]; a != nil {
		return a
	}
	if len(s.byName) == maxAskers {
		var least *asker
		for _, a := range s.byName {
			if least == nil || a.requests < least.requests || a.requests == least.requests && a.lastSeen < least.lastSeen {
				least = a
			}
		}
		s.rest.merge(least)
		delete(s.byName, least.name)
	}
	a := &asker{name: name}
	s.byName[name] = a
	return a
}

// merge adds another asker's numbers.
func (a *asker) merge(b *asker) {
	a.requests += b.requests
	a.lastSeen = max(a.lastSeen, b.lastSeen)
	for p, n := range b.counts {
		a.counts[p] += n
	}
}

// add adds a request.
func (s *askers) add(name string, counts *Counts, now int64) {
	a := s.get(name)
	a.requests++
	a.lastSeen = now
	for p, n := range counts {
		a.counts[p] += n
	}
}

// addFirstBlock adds a prompt that begins at its first token.
func (s *askers) addFirstBlock(name string, fingerprint uint64, now int64) {
	shared := s.firsts.ask(fingerprint, name)
	part := now / int64(firstBlockTime/firstBlockParts)
	p := &s.get(name).parts[part%firstBlockParts]
	if p.part != part {
		p.part, p.prompts, p.shared = part, 0, 0
	}
	p.prompts++
	if shared {
		p.shared++
	}
}

// sharedFirstBlocks returns the share of an asker's prompts whose first block another asker had asked for before, and
// false if there are too few to tell.
func (s *askers) sharedFirstBlocks(a *asker, now int64) (share float64, ok bool) {
	prompts, shared := int64(0), int64(0)
	for _, p := range a.parts {
		if now/int64(firstBlockTime/firstBlockParts)-p.part < firstBlockParts {
			prompts += p.prompts
			shared += p.shared
		}
	}
	if len(s.byName) < 2 || prompts < minFirstBlocks {
		return 0, false
	}
	return float64(shared) / float64(prompts), true
}

// firstBlocks remembers who asked for first blocks. The block that was not asked for longest gives way.
type firstBlocks struct {
	byFingerprint map[uint64]*list.Element // of *firstBlock
	order         *list.List               // the latest first
	reserved      reservation
}

type firstBlock struct {
	fingerprint uint64
	asker       string // who asked first
	shared      bool   // others have asked, too
}

// ask remembers that an asker has asked for a first block, and reports whether another one did so before.
func (f *firstBlocks) ask(fingerprint uint64, asker string) (shared bool) {
	if e := f.byFingerprint[fingerprint]; e != nil {
		f.order.MoveToFront(e)
		b := e.Value.(*firstBlock)
		b.shared = b.shared || b.asker != asker
		return b.shared
	}
	if f.order.Len() > 0 && !f.reserved.reserveFor(f.order.Len()+1) {
		oldest := f.order.Remove(f.order.Back()).(*firstBlock)
		delete(f.byFingerprint, oldest.fingerprint)
	}
	f.byFingerprint[fingerprint] = f.order.PushFront(&firstBlock{fingerprint: fingerprint, asker: asker})
	return false
}
