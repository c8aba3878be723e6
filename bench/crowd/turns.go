//go:build linux

package crowd

import (
	"math/rand/v2"
	"time"

	"github.com/hitline/hitline/bench/workload"
)

const (
	// blockTokens is what a hash and a block cover.
	blockTokens = workload.EngineBlockTokens
	// idBlocks is how many blocks an id of a trace stands for.
	idBlocks = workload.BlockTokens / blockTokens

	// turnRate is how many turns an engine begins a second.
	turnRate = 0.2
	// openSessions is how many sessions an engine has at a time. A turn is the next of one of them.
	openSessions = 8
	// movedShare is the share of turns that go to another engine than their session's.
	movedShare = 0.2
	// maxWait is how many steps of a scheduler a turn waits at most, each of stepPeriod.
	maxWait    = 20
	stepPeriod = 50 * time.Millisecond
)

// turn is a prompt that an engine is asked to serve.
type turn struct {
	at     time.Duration // when it arrives, since the beginning of the crowd
	engine int           // that serves it
	owner  int           // number of the session
	wait   int           // steps until it is scheduled
	tokens int
	hashes []byte // of its whole blocks, joined
	parts  []part // the same
	start  int    // leading blocks that the engine itself has
}

// blocks returns how many whole blocks the prompt has.
func (t turn) blocks() int { return len(t.hashes) / workload.HashLen }

// hittable returns how many of them a hit can have: an engine computes at least the last token.
func (t turn) hittable() int { return (t.tokens - 1) / blockTokens }

// engine is a simulated engine.
type engine struct {
	next     time.Duration // when its next turn arrives
	sessions []session     // what is left of those that are open
	cache    *lru
}

// turns makes the turns of a crowd, in the order in which they arrive. Equal arguments make equal turns. A cache is
// as of the arrival: what a turn before has computed is there.
type turns struct {
	sessions *sessions
	random   *rand.Rand
	engines  []engine
}

// newTurns returns the turns of engines whose caches hold cacheBlocks.
func newTurns(s *sessions, engines, cacheBlocks int, seed uint64) *turns {
	t := &turns{sessions: &sessions{ofTrace: s.ofTrace}, random: workload.Seed(seed).Rand(workload.ForOthers, uint64(engines))}
	for range engines {
		e := engine{next: t.gap(), cache: newLRU(cacheBlocks)}
		for range openSessions {
			e.sessions = append(e.sessions, t.sessions.begin())
		}
		t.engines = append(t.engines, e)
	}
	return t
}

// gap returns the time between two turns of an engine: those of all engines are a Poisson process.
func (t *turns) gap() time.Duration {
	return time.Duration(t.random.ExpFloat64() / turnRate * float64(time.Second))
}

// next returns the next turn.
func (t *turns) next() turn {
	home := 0
	for i := range t.engines {
		if t.engines[i].next < t.engines[home].next {
			home = i
		}
	}
	e := &t.engines[home]
	at := e.next
	e.next += t.gap()
	s := &e.sessions[t.random.IntN(openSessions)]
	one, p := turn{at: at, engine: home, owner: s.number, wait: t.random.IntN(maxWait + 1)}, s.prompts[0]
	if s.prompts = s.prompts[1:]; len(s.prompts) == 0 {
		*s = t.sessions.begin()
	}
	if t.random.Float64() < movedShare && len(t.engines) > 1 {
		one.engine = (home + 1 + t.random.IntN(len(t.engines)-1)) % len(t.engines)
	}
	blocks := p.tokens / blockTokens
	one.tokens = p.tokens
	one.hashes = workload.AppendHashes(nil, p.ids, blockTokens)[:blocks*workload.HashLen]
	one.parts = split(p.ids, one.hashes, one.owner)
	cache := t.engines[one.engine].cache
	one.start = min(cache.leading(one.parts), one.hittable())
	cache.touch(one.parts)
	return one
}

// fill makes turns until a store of that many blocks, which drops the least recently used ones, has dropped as many
// as it holds. It returns what it holds then, the least recently used part first.
func (t *turns) fill(storeBlocks int) (parts []part) {
	store := newLRU(storeBlocks)
	for store.added < 2*storeBlocks {
		store.touch(t.next().parts)
	}
	for e := store.order.Back(); e != nil; e = e.Prev() {
		parts = append(parts, e.Value.(part))
	}
	return parts
}
