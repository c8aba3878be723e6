package tokens

import (
	"sync"
)

// Recorder hands asks from one event loop to the goroutine that accounts for them. It waits for nobody but for the moment in
// which the goroutine takes what was recorded. Safe for concurrent use.
type Recorder struct {
	accounts *Accounts

	mu       sync.Mutex
	recorded []*Ask
	bytes    int // of these
}

// maxRecorded is how many bytes of asks of one event loop are on their way at a time. From wakeRecorded on Run is woken.
const (
	maxRecorded  = 1 << 20
	wakeRecorded = maxRecorded / 4
)

// maxChanged is how many blocks a change has at most that is recorded whole: an engine saves a prompt at a time.
const maxChanged = 1 << 14

// spare has asks that are used again.
var spare = sync.Pool{New: func() any { return new(Ask) }}

// recordKind is what a record tells.
type recordKind uint8

const (
	recordAsk     recordKind = iota // a lookup has ended
	recordStored                    // blocks were stored on a rank of the memory index
	recordRemoved                   // blocks were evicted by request
	recordEmptied                   // the pool was reset
	recordSuspect                   // it may have been
)

// NewAsk returns an ask of a lookup, nil if there is no account.
func (a *Account) NewAsk(asker string, p Prompt) *Ask {
	if a == nil {
		return nil
	}
	r := newAsk(a)
	r.kind, r.asker, r.Prompt, r.EndBlock = recordAsk, asker, p, -1
	r.begin(int((p.bounds(&a.pool).blocks - p.Start) / a.pool.HashBlock))
	return r
}

// NewChange returns a record of a store or, with removed, an evict of n blocks of a rank, nil if there is no account.
func (a *Account) NewChange(rank, n int, removed bool) *Ask {
	if a == nil {
		return nil
	}
	r := newAsk(a)
	if r.kind = recordStored; removed {
		r.kind = recordRemoved
	}
	r.rank = rank
	r.begin(n)
	if n <= maxChanged { // of what is not sampled would be said that it was never saved
		r.all = true
	}
	return r
}

// NewEmptied returns a record that the pool was reset, or, unless that is sure, may have been. It is nil if there is no account.
func (a *Account) NewEmptied(sure bool) *Ask {
	if a == nil {
		return nil
	}
	r := newAsk(a)
	if r.kind = recordEmptied; !sure {
		r.kind = recordSuspect
	}
	return r
}

func newAsk(account *Account) *Ask {
	a := spare.Get().(*Ask)
	*a = Ask{account: account, samples: a.samples[:0]}
	return a
}

// Bytes returns about what the ask takes. That of nil is 0.
func (a *Ask) Bytes() int {
	if a == nil {
		return 0
	}
	return 16*cap(a.samples) + 256
}

// Record gives an ask to its account. at is when it ended, in monotime.
func (r *Recorder) Record(a *Ask, at int64) {
	a.at, a.Refused = at, a.Refused || a.added < a.NumHashes
	r.mu.Lock()
	before, n := r.bytes, a.Bytes()
	fits := before+n <= maxRecorded
	if fits {
		r.recorded = append(r.recorded, a)
		r.bytes += n
	}
	r.mu.Unlock()
	if !fits {
		a.account.lost.Add(1)
		a.Drop()
	}
	r.accounts.recorded(before, before+n)
}

// Drop gives back an ask that counts nowhere. nil is allowed.
func (a *Ask) Drop() {
	if a != nil && cap(a.samples) <= maxSamples { // others are rare
		spare.Put(a)
	}
}

// take appends what was recorded to batch.
func (r *Recorder) take(batch []*Ask) []*Ask {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch = append(batch, r.recorded...)
	clear(r.recorded)
	r.recorded, r.bytes = r.recorded[:0], 0
	return batch
}
