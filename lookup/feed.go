package lookup

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/netproto"
)

// Feed fills the pool of a service with the blocks of one engine: the pool stands for that engine. What is
// stored is stored at all ranks of a group. While there is a Feed, all other changes of the pool fail with
// ErrFed. Its methods are called by one goroutine at a time, and not after End.
type Feed struct {
	service *Service
	source  string
}

// feedGate refuses the changes of clients while there is a Feed.
type feedGate struct {
	// mu is held for reading by clients while they change the pool, so that BeginFeed waits for changes
	// under way.
	mu   sync.RWMutex
	feed atomic.Pointer[Feed] // nil if there is none; written under mu
}

// beginChange begins a change of a client. It fails with ErrFed; otherwise the caller calls endChange.
func (g *feedGate) beginChange() error {
	g.mu.RLock()
	if err := g.refusal(); err != nil {
		g.mu.RUnlock()
		return err
	}
	return nil
}

// endChange ends a change of a client.
func (g *feedGate) endChange() { g.mu.RUnlock() }

// refusal returns why clients cannot change the pool, nil if they can.
func (g *feedGate) refusal() error {
	if f := g.feed.Load(); f != nil {
		return fmt.Errorf("the pool is filled by the events of %s: %w", f.source, ErrFed)
	}
	return nil
}

// CheckChange returns an ErrFed if there is a Feed: clients cannot change the pool then.
func (s *Service) CheckChange() error { return s.gate.refusal() }

// BeginFeed makes the pool one that is filled by the events of a source, and empties it. It fails with
// ErrUnsupported over a backend and with ErrFed if there is a Feed already.
func (s *Service) BeginFeed(source string) (*Feed, error) {
	if s.remote != nil {
		return nil, fmt.Errorf("%w: events fill a pool over the memory backend alone", ErrUnsupported)
	}
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	if err := s.gate.refusal(); err != nil {
		return nil, err
	}
	f := &Feed{service: s, source: source}
	s.gate.feed.Store(f)
	s.index.Reset()
	return f, nil
}

// End empties the pool. Clients may change it again.
func (f *Feed) End() {
	g := &f.service.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	f.service.index.Reset()
	g.feed.Store(nil)
}

// Store adds blocks of a group. parent is the key in front of the first, empty if it is unknown or there
// is none. It fails as Service.Store does. Blocks for which the index has no class are left out: lookups
// then find less. parent and keys are only borrowed.
func (f *Feed) Store(group int, parent []byte, keys netproto.Hashes) error {
	if err := f.check(group, keys); err != nil {
		return err
	}
	var w index.Writer
	w.Behind(parent)
	err := f.service.index.Store(&w, f.service.requiredPlaces()[group], keys.Bytes(), keys.HashLen())
	if errors.Is(err, index.ErrClasses) {
		return nil
	}
	return err
}

// Evict removes blocks of a group. It fails as Service.Evict does. keys is only borrowed.
func (f *Feed) Evict(group int, keys netproto.Hashes) error {
	if err := f.check(group, keys); err != nil {
		return err
	}
	for _, place := range f.service.requiredPlaces()[group] {
		if _, err := f.service.index.Evict(place, keys.Bytes(), keys.HashLen()); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error for blocks that cannot be stored or evicted.
func (f *Feed) check(group int, keys netproto.Hashes) error {
	if n := f.service.coord.NumGroups(); group < 0 || group >= n {
		return fmt.Errorf("%w: group %d, the pool has group 0 to %d", ErrGroupRank, group, n-1)
	}
	return checkKeys(keys)
}

// Reset removes all blocks.
func (f *Feed) Reset() { f.service.index.Reset() }
