package tokens

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config configures Accounts.
type Config struct {
	// MaxBytes bounds the memory of what was asked of one pool. 0 means DefaultMaxBytes, a negative number that nothing is
	// accounted for. MaxTotalBytes bounds that of all pools; 0 means DefaultMaxTotalBytes.
	MaxBytes, MaxTotalBytes int
	// Reserve asks for memory and Free gives it back. While Reserve refuses, tables do not grow. nil: there is no other bound.
	Reserve func(bytes int64) bool
	Free    func(bytes int64)
	// Now is a monotonic clock in nanoseconds, above 0.
	Now func() int64
	// Epoch, unless it is nil, returns a number that grows whenever the store may have been emptied.
	Epoch func() uint64
}

const (
	// DefaultMaxBytes is the memory of what was asked of one pool, DefaultMaxTotalBytes that of all pools of a server.
	DefaultMaxBytes      = 4 << 20
	DefaultMaxTotalBytes = 64 << 20
)

// Accounts are those of the pools of a server. One goroutine, which Run is, accounts for what the recorders of event loops
// have recorded. Safe for concurrent use.
type Accounts struct {
	cfg   Config
	bytes atomic.Int64 // of all tables
	idle  atomic.Bool  // Run sleeps until something is recorded
	wake  chan struct{}

	mu        sync.Mutex // held while events are accounted for: they are, in the order in which they were recorded
	recorders []*Recorder
	accounts  map[*Account]struct{}
	batch     []*Event
	epoch     uint64 // of the store, when it was last looked at
}

// NewAccounts returns accounts without pools.
func NewAccounts(cfg Config) *Accounts {
	if cfg.Epoch == nil {
		cfg.Epoch = func() uint64 { return 0 }
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	if cfg.MaxTotalBytes == 0 {
		cfg.MaxTotalBytes = DefaultMaxTotalBytes
	}
	return &Accounts{cfg: cfg, wake: make(chan struct{}, 1), accounts: map[*Account]struct{}{}}
}

// NewRecorder returns the recorder of one event loop.
func (s *Accounts) NewRecorder() *Recorder {
	r := &Recorder{accounts: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recorders = append(s.recorders, r)
	return r
}

// Open returns the account of a pool, nil if accounts are off. Close must be called when the pool goes.
func (s *Accounts) Open(pool Pool) *Account {
	if s.cfg.MaxBytes < 0 {
		return nil
	}
	a := newAccount(pool, s.cfg.MaxBytes, s.cfg.Now(), s.reserve)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accounts[a] = struct{}{}
	return a
}

// Close counts the open requests of an account and gives back its memory. Nothing must be recorded for it any more. nil is
// allowed.
func (s *Accounts) Close(a *Account) {
	if a == nil {
		return
	}
	s.Flush()
	s.mu.Lock()
	delete(s.accounts, a)
	s.mu.Unlock()
	s.free(a.close())
}

// Number returns how many pools have an account.
func (s *Accounts) Number() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.accounts)
}

// reserve reserves memory for a table.
func (s *Accounts) reserve(bytes int) bool {
	if s.bytes.Add(int64(bytes)) > int64(s.cfg.MaxTotalBytes) || s.cfg.Reserve != nil && !s.cfg.Reserve(int64(bytes)) {
		s.bytes.Add(-int64(bytes))
		return false
	}
	return true
}

func (s *Accounts) free(bytes int) {
	s.bytes.Add(-int64(bytes))
	if s.cfg.Free != nil {
		s.cfg.Free(int64(bytes))
	}
}

// Flush accounts for all that was recorded before the call.
func (s *Accounts) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookAtEpoch(s.cfg.Now())
	s.drain()
}

// lookAtEpoch tells the accounts that the store may have been emptied since it was last called. mu is held.
func (s *Accounts) lookAtEpoch(now int64) {
	epoch := s.cfg.Epoch()
	if epoch == s.epoch {
		return
	}
	s.epoch = epoch
	for a := range s.accounts {
		a.suspectEmptied(now)
	}
}

// drain accounts for what was recorded, and reports whether there was something. mu is held.
func (s *Accounts) drain() (some bool) {
	for _, r := range s.recorders {
		s.batch = r.take(s.batch)
	}
	slices.SortStableFunc(s.batch, func(x, y *Event) int { return cmp.Compare(x.at, y.at) }) // of several event loops
	work := 0
	for i, a := range s.batch {
		if work += a.account.apply(a); work > workAtOnce {
			runtime.Gosched()
			work = 0
		}
		a.Drop()
		s.batch[i] = nil
	}
	some = len(s.batch) > 0
	s.batch = s.batch[:0]
	return some
}

const (
	// workAtOnce is how many blocks are marked before others may have the processor: some 30 microseconds.
	workAtOnce = 128
	// drainEvery is how often is accounted for what was recorded, while something is.
	drainEvery = 20 * time.Millisecond
	// closeEvery is how often requests are closed while nothing is recorded.
	closeEvery = time.Second
)

// Run accounts until ctx ends, and then closes all accounts.
func (s *Accounts) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	quiet := 0
	for {
		select {
		case <-ctx.Done():
			s.closeAll()
			return
		case <-s.wake:
		case <-timer.C:
		}
		some, open := s.tick()
		switch quiet++; {
		case some:
			quiet = 0
			timer.Reset(drainEvery)
		case quiet < int(closeEvery/drainEvery):
			timer.Reset(drainEvery)
		case s.sleep():
			timer.Reset(drainEvery)
		case open:
			timer.Reset(closeEvery)
		default:
			timer.Stop()
		}
	}
}

// sleep has recorders wake Run. It returns true if one has recorded something before it could know that.
func (s *Accounts) sleep() (some bool) {
	s.idle.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.recorders {
		r.mu.Lock()
		some = some || r.bytes > 0
		r.mu.Unlock()
	}
	return some
}

// tick drains and closes requests that are due. It reports whether something was recorded, and whether requests are open.
func (s *Accounts) tick() (some, open bool) {
	s.idle.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	s.lookAtEpoch(now)
	some = s.drain()
	for a := range s.accounts {
		open = a.tick(now) || open
	}
	return some, open
}

// closeAll counts the open requests of all accounts.
func (s *Accounts) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain()
	for a := range s.accounts {
		a.close()
	}
}

// recorded wakes Run if it sleeps, or if much was recorded: the bytes of a recorder have grown from before to after.
func (s *Accounts) recorded(before, after int) {
	if before < wakeRecorded && after >= wakeRecorded || before == 0 && s.idle.Load() {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}
