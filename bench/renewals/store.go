package main

import (
	"cmp"
	"container/list"
	"slices"
	"time"
)

// store is a model of a Mooncake master. A block that is found is leased. When more than 95 % of it is full, or
// a block has no room, it evicts a twentieth of the blocks: those without a lease whose lease ended first.
type store struct {
	maxBlocks int
	now       time.Duration
	ends      map[uint64]time.Duration // of the lease of each block
}

func newStore(maxBlocks int) *store {
	return &store{maxBlocks: max(maxBlocks, 1), ends: map[uint64]time.Duration{}}
}

func (s *store) has(id uint64) bool {
	_, ok := s.ends[id]
	return ok
}

// exists reports whether a block is there, and leases it.
func (s *store) exists(id uint64) bool {
	if !s.has(id) {
		return false
	}
	s.ends[id] = s.now + lease
	return true
}

// put adds a block without a lease. It returns false if all blocks are leased.
func (s *store) put(id uint64) bool {
	if len(s.ends) >= s.maxBlocks*95/100 {
		s.evict()
	}
	if len(s.ends) >= s.maxBlocks {
		return false
	}
	s.ends[id] = s.now
	return true
}

func (s *store) evict() {
	type block struct {
		id  uint64
		end time.Duration
	}
	var unleased []block
	for id, end := range s.ends {
		if end <= s.now {
			unleased = append(unleased, block{id, end})
		}
	}
	slices.SortFunc(unleased, func(a, b block) int { return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.id, b.id)) })
	for _, b := range unleased[:min(len(unleased), max(s.maxBlocks/20, 1))] {
		delete(s.ends, b.id)
	}
}

// cache is an engine's own cache of blocks. Of a prompt its last block is evicted first.
type cache struct {
	maxBlocks int
	recent    *list.List // of ids, the last used first
	places    map[uint64]*list.Element
}

func newCache(maxBlocks int) *cache {
	return &cache{maxBlocks: max(maxBlocks, 1), recent: list.New(), places: map[uint64]*list.Element{}}
}

// held returns how many leading blocks it has.
func (c *cache) held(ids []uint64) int {
	for i, id := range ids {
		if c.places[id] == nil {
			return i
		}
	}
	return len(ids)
}

// use adds the blocks of a prompt, or makes them recent.
func (c *cache) use(ids []uint64) {
	for _, id := range slices.Backward(ids) {
		if at := c.places[id]; at != nil {
			c.recent.MoveToFront(at)
			continue
		}
		c.places[id] = c.recent.PushFront(id)
		if c.recent.Len() > c.maxBlocks {
			delete(c.places, c.recent.Remove(c.recent.Back()).(uint64))
		}
	}
}
