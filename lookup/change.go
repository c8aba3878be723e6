package lookup

import (
	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/netproto"
)

// Change is one store or evict over the memory index whose keys arrive in pieces. The
// zero value may be begun, and again when it has ended. One goroutine at a time.
type Change struct {
	service *Service
	place   int
	evict   bool
	writer  index.Writer

	deferred    [netproto.MaxHashLen]byte // the key of Defer
	deferredLen int                       // 0 if there is none
}

// BeginStore begins a store to a group rank. firstChunk is the number of its first chunk, or
// netproto.FirstChunkUnknown. It fails with ErrGroupRank, and must not be called over a
// backend.
func (s *Service) BeginStore(c *Change, at GroupRank, firstChunk uint32) error {
	place, err := s.ranks.place(at)
	if err == nil {
		s.beginStore(c, at, place, firstChunk)
	}
	return err
}

func (s *Service) beginStore(c *Change, at GroupRank, place int, firstChunk uint32) {
	*c = Change{service: s, place: place}
	// The index needs the numbers of the group whose blocks are those of anchors.
	if s.anchorsErr == nil && s.coord.Stride(int(at.Group)) == s.anchorStride {
		c.writer.Number(firstChunk)
	}
}

// BeginEvict is BeginStore for an evict.
func (s *Service) BeginEvict(c *Change, at GroupRank) error {
	place, err := s.ranks.place(at)
	*c = Change{service: s, place: place, evict: true}
	return err
}

// Add stores or evicts the next whole keys, borrowed until it returns. It takes effect at
// once, also if End is never called.
func (c *Change) Add(keys []byte, hashLen int) error {
	if c.evict {
		_, err := c.service.index.Evict(c.place, keys, hashLen)
		return err
	}
	return c.service.index.Store(&c.writer, []int{c.place}, keys, hashLen)
}

// Defer copies the only key of a store, at most netproto.MaxHashLen bytes, for End to store.
// Engines that decode store one block at a time. The key in front of it, which comes last,
// decides where in the index it is put.
func (c *Change) Defer(key []byte) { c.deferredLen = copy(c.deferred[:], key) }

// Deferred reports whether there is a key of Defer that End has not stored yet.
func (c *Change) Deferred() bool { return c.deferredLen > 0 }

// Drop forgets the key of Defer: End does not store it.
func (c *Change) Drop() { c.deferredLen = 0 }

// Work returns the work of a store since it began, in units of comparing one hash. That of an
// evict is not counted.
func (c *Change) Work() int { return c.writer.Work() }

// End ends the change. before is the key in front of a store's first, empty if unknown.
// It is only borrowed. If there is a key of Defer, End stores it and fails as Add does.
func (c *Change) End(before []byte) error {
	switch n := c.deferredLen; {
	case n > 0:
		c.deferredLen = 0
		c.writer.Behind(before)
		return c.Add(c.deferred[:n], n)
	case !c.evict:
		c.service.index.Before(&c.writer, before)
	}
	return nil
}

// CheckGroupRank returns an ErrGroupRank if the pool has no such rank.
func (s *Service) CheckGroupRank(at GroupRank) error {
	_, err := s.ranks.place(at)
	return err
}
