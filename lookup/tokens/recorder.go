package tokens

import (
	"sync"
	"sync/atomic"
)

// Recorder hands asks from one event loop to the goroutine that accounts for them. Begin, Record and Drop belong to that
// loop: it waits for nobody but for the moment in which the goroutine takes what was recorded.
type Recorder struct {
	accounts *Accounts
	spare    []*Ask // of the loop alone

	mu       sync.Mutex
	recorded []*Ask
	returned []*Ask
	lost     atomic.Int64 // asks that came while maxRecorded were on their way
}

// maxRecorded is how many asks of one event loop are on their way at a time, and how many it keeps to be used again.
const maxRecorded = 1 << 10

// recordKind is what a record tells.
type recordKind uint8

const (
	recordAsk     recordKind = iota // a lookup has ended
	recordStored                    // blocks were stored at a place of the memory index
	recordRemoved                   // blocks were evicted by request
)

// Begin returns an ask of a lookup, nil if there is no account.
func (r *Recorder) Begin(account *Account, asker string, p Prompt) *Ask {
	if account == nil {
		return nil
	}
	a := r.get(account)
	a.kind, a.asker, a.Prompt, a.EndBlock = recordAsk, asker, p, -1
	a.begin(int((p.bounds(&account.pool).blocks - p.Start) / account.pool.HashBlock))
	return a
}

// BeginChange returns a record of a store or, with removed, an evict of n blocks at a place of the memory index, nil if
// there is no account.
func (r *Recorder) BeginChange(account *Account, place, n int, removed bool) *Ask {
	if account == nil {
		return nil
	}
	a := r.get(account)
	if a.kind = recordStored; removed {
		a.kind = recordRemoved
	}
	a.place = place
	a.begin(n)
	return a
}

func (r *Recorder) get(account *Account) *Ask {
	if len(r.spare) == 0 {
		r.mu.Lock()
		r.spare, r.returned = r.returned, r.spare
		r.mu.Unlock()
	}
	n := len(r.spare)
	if n == 0 {
		return &Ask{account: account}
	}
	a := r.spare[n-1]
	r.spare = r.spare[:n-1]
	*a = Ask{account: account, samples: a.samples[:0]}
	return a
}

// Record gives an ask to its account. at is when it ended, in monotime.
func (r *Recorder) Record(a *Ask, at int64) {
	a.at, a.Refused = at, a.Refused || a.added < a.NumHashes
	r.mu.Lock()
	n := len(r.recorded)
	if n < maxRecorded {
		r.recorded = append(r.recorded, a)
	}
	r.mu.Unlock()
	if n == maxRecorded {
		r.lost.Add(1)
		r.Drop(a)
	}
	r.accounts.recorded(n)
}

// Drop gives back an ask that counts nowhere. nil is allowed.
func (r *Recorder) Drop(a *Ask) {
	if a != nil && len(r.spare) < maxRecorded {
		r.spare = append(r.spare, a)
	}
}

// drain accounts for what was recorded. It returns batch, which it has used.
func (r *Recorder) drain(batch []*Ask) []*Ask {
	r.mu.Lock()
	batch, r.recorded = r.recorded, batch[:0]
	r.mu.Unlock()
	for _, a := range batch {
		a.account.apply(a)
	}
	r.mu.Lock()
	r.returned = append(r.returned, batch[:min(len(batch), maxRecorded-len(r.returned))]...)
	r.mu.Unlock()
	clear(batch)
	return batch
}
