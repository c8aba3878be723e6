//go:build linux

package crowd

import (
	"container/list"

	"github.com/hitline/hitline/bench/workload"
)

// part is the blocks of one id of a trace.
type part struct {
	id     uint64
	owner  int    // session that had it first
	hashes []byte // joined
}

func (p part) blocks() int { return len(p.hashes) / workload.HashLen }

// split returns the parts of a prompt, whose last id may have fewer blocks than the others, or none.
func split(ids []uint64, hashes []byte, owner int) (parts []part) {
	for _, id := range ids {
		n := min(len(hashes), idBlocks*workload.HashLen)
		if n == 0 {
			break
		}
		parts = append(parts, part{id, owner, hashes[:n:n]})
		hashes = hashes[n:]
	}
	return parts
}

// lru is a cache of parts of prompts, of which the least recently used one is dropped.
type lru struct {
	capacity, size int        // blocks
	added          int        // blocks, those dropped included
	order          *list.List // of parts, the most recently used one first
	byID           map[uint64]*list.Element
}

func newLRU(blocks int) *lru {
	return &lru{capacity: blocks, order: list.New(), byID: map[uint64]*list.Element{}}
}

// leading returns how many leading blocks of a prompt are there.
func (c *lru) leading(parts []part) (blocks int) {
	for _, p := range parts {
		if c.byID[p.id] == nil {
			break
		}
		blocks += p.blocks()
	}
	return blocks
}

// touch adds a prompt. Its first part is the most recently used one then: the end of a prompt is dropped first.
func (c *lru) touch(parts []part) {
	for i := len(parts) - 1; i >= 0; i-- {
		p := parts[i]
		if e := c.byID[p.id]; e != nil {
			c.order.MoveToFront(e)
			continue
		}
		c.byID[p.id] = c.order.PushFront(p)
		c.size += p.blocks()
		c.added += p.blocks()
	}
	for c.size > c.capacity {
		p := c.order.Remove(c.order.Back()).(part)
		delete(c.byID, p.id)
		c.size -= p.blocks()
	}
}
