package lookup

import "github.com/hitline/hitline/index"

// Change is one store or evict over the memory index whose keys arrive in pieces. The
// zero value may be begun, and again when it has ended. One goroutine at a time.
type Change struct {
	service *Service
	place   int
	evict   bool
	writer  index.Writer
}

// BeginStore begins a store to a place. firstChunk is the number of its first chunk, or
// netproto.FirstChunkUnknown. It fails with ErrPlace, and must not be called over a
// backend.
func (s *Service) BeginStore(c *Change, at Place, firstChunk uint32) error {
	place, err := s.places.number(at)
	if err == nil {
		s.beginStore(c, at, place, firstChunk)
	}
	return err
}

func (s *Service) beginStore(c *Change, at Place, place int, firstChunk uint32) {
	*c = Change{service: s, place: place}
	// The number counts if it is that of a block of lookups by anchors.
	if s.noAnchors == nil && s.coord.Stride(int(at.Group)) == s.anchorStride {
		c.writer.Number(firstChunk)
	}
}

// BeginEvict is BeginStore for an evict.
func (s *Service) BeginEvict(c *Change, at Place) error {
	place, err := s.places.number(at)
	*c = Change{service: s, place: place, evict: true}
	return err
}

// Add takes the next whole keys, borrowed until it returns. What was added stays, also if
// the change never ends.
func (c *Change) Add(keys []byte, hashLen int) error {
	if c.evict {
		_, err := c.service.index.Evict(c.place, keys, hashLen)
		return err
	}
	return c.service.index.Store(&c.writer, c.place, keys, hashLen)
}

// End ends the change. before is the key in front of a store's first, empty if that is
// not known; only borrowed.
func (c *Change) End(before []byte) {
	if !c.evict {
		c.service.index.Before(&c.writer, before)
	}
}

// CheckPlace returns an ErrPlace if the pool has no such place.
func (s *Service) CheckPlace(at Place) error {
	_, err := s.places.number(at)
	return err
}
