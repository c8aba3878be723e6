package tokens

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Pool is what an account must know of its pool.
type Pool struct {
	HashBlock      int64 // tokens of a block here: those that one hash stands for
	SchedulerBlock int64
	// Reachable returns the hit in tokens that the rules give a pool that holds exactly the first blocks of a prompt, in all
	// groups and on all ranks.
	Reachable func(p Prompt, blocks int) int64
	// Keys returns how many keys a lookup of a whole prompt of some tokens asks for.
	Keys func(tokens int64) int64
	// Stores is set if the account sees what is stored: over the memory index. Else Look, unless it is nil, asks the store for blocks
	// that a lookup has not found, and returns on how many ranks each is. It takes at most as long as a lookup.
	Stores bool
	Look   func(ctx context.Context, m *Missing) (ranks []int, err error)
	// Size, unless it is nil, returns how many blocks the pool has room for, 0 if that is not known. It takes at most as long as a lookup.
	Size func(ctx context.Context) (blocks int64, err error)
	// FirstLook is how long after a request was closed its engine may take to save what it has computed, SecondLook how much longer if
	// nothing was saved by then. 0 means 30 seconds and 5 minutes.
	FirstLook, SecondLook time.Duration
	// FullRanks are the ranks that full-attention groups need, as bits; Ranks are those of each group. A rank of each group has
	// a bit. Those beyond 64 are left out: they count as stored with the others.
	FullRanks uint64
	Ranks     []uint64
	NumRanks  []int // of each group
	// Strides are the hashes of a block of each group, and FullStride is the largest of full-attention groups, 1 without any.
	Strides    []int
	FullStride int
}

const (
	// askGap is how long after an ask the next one of its request may come: engines ask again each second at the latest, and
	// canaries send the same prompt every few seconds. maxOpen is how long a request stays open.
	askGap  = 4 * time.Second
	maxOpen = 10 * time.Minute
	// maxOpenRequests bounds the open requests of a pool, each of which takes about requestBytes.
	maxOpenRequests = 1 << 10
	requestBytes    = 1 << 10
	// markEvery is how often the blocks of a request are marked that asks the same again and again.
	markEvery = time.Second
)

// Account tells where the tokens of one pool's prompts went. Safe for concurrent use.
type Account struct {
	pool    Pool
	reserve func(bytes int) bool // memory for the table

	began int64 // when the account was made

	mu       sync.Mutex
	now      int64  // when the last event was; no two events are at the same time
	numbers  uint32 // of requests; 0 is none
	open     openRequests
	reserved reservation // for open requests
	table    *table
	emptied  int64 // when the store was last emptied, 0 for never
	suspect  int64 // when it may have been: another process may answer, or somebody has emptied it
	recall   recall
	looks    looks
	shares   shares
	curve    curve
	size     int64 // blocks that the pool has room for, 0 if that is not known
	most     lostMost
	keys     int64   // that lookups of whole prompts would have asked for, once
	carry    float64 // blocks: see blocks
	askers   askers
	counts   Counts
	closed   int64        // requests that are counted
	lost     atomic.Int64 // events that are not accounted for, since too many were on their way
	adapted  int64        // when table.adapt was last called
}

// newAccount returns an account whose table takes at most maxBytes, as far as reserve allows.
func newAccount(pool Pool, maxBytes int, now int64, reserve func(bytes int) bool) *Account {
	pool.FullStride = max(pool.FullStride, 1)
	pool.FirstLook, pool.SecondLook = cmp.Or(pool.FirstLook, defaultFirstLook), cmp.Or(pool.SecondLook, defaultSecondLook)
	a := &Account{pool: pool, reserve: reserve, open: newOpenRequests(), reserved: reservation{reserve: reserve, each: requestBytes, max: maxOpenRequests},
		table: newTable(maxBytes), askers: newAskers(reserve), began: now, now: now}
	a.looks = newLooks(&a.pool, now, reserve)
	return a
}

// advance returns the time of the next event: at, unless that is not behind the event before.
func (a *Account) advance(at int64) int64 {
	a.now = max(a.now+1, at)
	return a.now
}

// apply accounts for a record. It returns about how many blocks it has marked.
func (a *Account) apply(r *Event) (work int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.advance(r.at)
	a.closeDue(now)
	switch r.kind {
	case eventStored:
		a.stored(r, now)
	case eventRemoved:
		a.removed(r)
	case eventEmptied:
		a.emptied = now
		a.looks.clear()
	case eventSuspect:
		a.suspect = now
		a.looks.clear()
	default:
		return a.asked(r, now)
	}
	return len(r.samples)
}

// asked accounts for an ask. It returns about how many blocks it has marked.
func (a *Account) asked(r *Event, now int64) (work int) {
	if r.NumHashes == 0 { // nothing tells its request from others
		a.count(&request{key: requestKey{asker: r.asker}, last: lastOf(r)})
		return 1
	}
	key := requestKey{r.asker, r.NumTokens, r.last}
	req := a.open.get(key)
	if req != nil && now-req.began >= int64(maxOpen) {
		a.closeRequest(req)
		req = nil
	}
	if req == nil {
		if oldest := a.open.oldest(); oldest != nil && !a.reserved.reserveFor(a.open.len()+1) {
			a.closeRequest(oldest)
		}
		a.numbers = max(a.numbers+1, 1)
		req = a.open.add(key, a.numbers, now)
		if !r.Refused && r.Start == 0 {
			a.askers.addFirstBlock(r.asker, r.first, now)
		}
	}
	a.open.touch(req, now)
	if req.marked != 0 && now-req.marked < int64(markEvery) && req.last.equals(r) {
		return 1
	}
	place := req.last.place
	req.last = lastOf(r)
	if !r.Refused {
		a.mark(req, r, now)
		place = a.lostPlace(req, r, now)
	}
	req.last.place = place
	return len(r.samples)
}

// suspectEmptied tells that the store may have been emptied, or its process be another one.
func (a *Account) suspectEmptied(at int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.suspect = a.advance(at)
	a.closeDue(a.suspect)
	a.looks.clear()
}

// closeDue counts the requests whose last ask is too long ago for another one to belong to it.
func (a *Account) closeDue(now int64) {
	for req := a.open.oldest(); req != nil && now-req.asked >= int64(askGap); req = a.open.oldest() {
		a.closeRequest(req)
	}
}

// closeRequest counts an open request.
func (a *Account) closeRequest(req *request) {
	a.open.remove(req)
	a.count(req)
	if req.asked > max(a.emptied, a.suspect) {
		a.looks.draw(req, a.now, a.pool.FirstLook)
	}
}

// tick closes requests, and reports whether others are open.
func (a *Account) tick(now int64) (open bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closeDue(a.advance(now))
	return a.open.len() > 0
}

// close counts all open requests: the pool goes, or the server. It returns how many bytes the table had.
func (a *Account) close() (bytes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for req := a.open.oldest(); req != nil; req = a.open.oldest() {
		a.closeRequest(req)
	}
	bytes = a.table.bytes() + a.reserved.bytes() + a.askers.firsts.reserved.bytes() + a.looks.bytes()
	a.table = newTable(0)
	return bytes
}

// count adds a request to the counts.
func (a *Account) count(req *request) {
	var c Counts
	s := a.split(req)
	c[Engine], c[InPool], c[Rules], c[New], c[NoAnswer] = s.engine, s.pool, s.rules, s.new, s.noAnswer
	a.shares.add(&c, req.last.place, s.lost, a.now)
	a.most.add(req, s.lost, a.now)
	a.keys += a.pool.Keys(s.engine + s.pool + s.lost + s.new + s.noAnswer + s.rules)
	for p, n := range c {
		a.counts[p] += n
	}
	a.askers.add(req.key.asker, &c, a.now)
	if req.last.answered && req.measured {
		a.curve.count(&s, req.last.prompt.bounds(&a.pool).blocks, a.pool.HashBlock)
	}
	a.closed++
}

// split returns where the tokens of a request went.
func (a *Account) split(req *request) split {
	l := &req.last
	b := l.prompt.bounds(&a.pool)
	if !l.answered {
		return splitUnanswered(b)
	}
	blocks := min(a.blocks(&req.known, l.found), int(b.blocks/a.pool.HashBlock))
	known, reachable := int64(blocks)*a.pool.HashBlock, int64(0)
	if known > l.hit { // otherwise no pool could give more
		reachable = a.pool.Reachable(l.prompt, blocks)
	}
	return splitAnswered(b, l.hit, known, reachable)
}
