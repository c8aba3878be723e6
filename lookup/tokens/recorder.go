package tokens

import (
	"sync"
)

// Recorder hands events from one event loop to the goroutine that accounts for them. It waits for nobody but for the moment in
// which the goroutine takes what was recorded. Safe for concurrent use.
type Recorder struct {
	accounts *Accounts

	mu       sync.Mutex
	recorded []*Event
	bytes    int // of these
}

// maxRecorded is how many bytes of events of one event loop are on their way at a time. From wakeRecorded on Run is woken.
const (
	maxRecorded  = 1 << 20
	wakeRecorded = maxRecorded / 4
)

// maxChanged is how many blocks a change has at most that is recorded whole: an engine saves a prompt at a time.
const maxChanged = 1 << 14

// spare has events that are used again.
var spare = sync.Pool{New: func() any { return new(Event) }}

// eventKind is what an event tells.
type eventKind uint8

const (
	eventAsk     eventKind = iota // a lookup has ended
	eventStored                   // blocks were stored on a rank of the memory index
	eventRemoved                  // blocks were evicted by request
	eventEmptied                  // the pool was reset
	eventSuspect                  // it may have been
)

// NewAsk returns the event of a lookup, nil if there is no account.
func (a *Account) NewAsk(asker string, p Prompt) *Event {
	if a == nil {
		return nil
	}
	r := newEvent(a)
	r.kind, r.asker, r.Prompt, r.EndBlock = eventAsk, asker, p, -1
	r.begin(int((p.bounds(&a.pool).blocks - p.Start) / a.pool.HashBlock))
	return r
}

// NewChange returns the event of a store or, with removed, an evict of n blocks of a rank, nil if there is no account.
func (a *Account) NewChange(rank, n int, removed bool) *Event {
	if a == nil {
		return nil
	}
	r := newEvent(a)
	if r.kind = eventStored; removed {
		r.kind = eventRemoved
	}
	r.rank = rank
	r.begin(n)
	if n <= maxChanged { // of what is not sampled would be said that it was never saved
		r.all = true
	}
	return r
}

// NewEmptied returns the event that the pool was reset, or, unless that is sure, may have been. It is nil if there is no account.
func (a *Account) NewEmptied(sure bool) *Event {
	if a == nil {
		return nil
	}
	r := newEvent(a)
	if r.kind = eventEmptied; !sure {
		r.kind = eventSuspect
	}
	return r
}

func newEvent(account *Account) *Event {
	a := spare.Get().(*Event)
	*a = Event{account: account, samples: a.samples[:0]}
	return a
}

// Bytes returns about what the event takes. That of nil is 0.
func (a *Event) Bytes() int {
	if a == nil {
		return 0
	}
	return 16*cap(a.samples) + 256
}

// Record gives an event to its account. at is when it ended, in monotime.
func (r *Recorder) Record(a *Event, at int64) {
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

// Drop gives back an event that counts nowhere. nil is allowed.
func (a *Event) Drop() {
	if a != nil && cap(a.samples) <= maxSamples { // others are rare
		spare.Put(a)
	}
}

// take appends what was recorded to batch.
func (r *Recorder) take(batch []*Event) []*Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch = append(batch, r.recorded...)
	clear(r.recorded)
	r.recorded, r.bytes = r.recorded[:0], 0
	return batch
}
