package lookup

import (
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
)

// Change is one store or evict over the memory index whose keys arrive in pieces. The
// zero value may be begun, and again when it has ended. One goroutine at a time.
type Change struct {
	service *Service
	place   int
	evict   bool
	writer  index.Writer
}

// BeginStore begins a store to a group rank. It fails with ErrGroupRank, and must not be called
// over a backend.
func (s *Service) BeginStore(c *Change, at coordinator.GroupRank) error {
	place, err := s.ranks.place(at)
	*c = Change{service: s, place: place}
	return err
}

// BeginEvict is BeginStore for an evict.
func (s *Service) BeginEvict(c *Change, at coordinator.GroupRank) error {
	place, err := s.ranks.place(at)
	*c = Change{service: s, place: place, evict: true}
	return err
}

// Add stores or evicts the next whole keys, borrowed until it returns. It takes effect at
// once.
func (c *Change) Add(keys []byte, hashLen int) error {
	if c.evict {
		_, err := c.service.index.Evict(c.place, keys, hashLen)
		return err
	}
	return c.service.index.Store(&c.writer, []int{c.place}, keys, hashLen)
}

// Work returns the work of a store since it began, in units of comparing one hash. That of an
// evict is not counted.
func (c *Change) Work() int { return c.writer.Work() }

// CheckGroupRank returns an ErrGroupRank if the pool has no such rank.
func (s *Service) CheckGroupRank(at coordinator.GroupRank) error {
	_, err := s.ranks.place(at)
	return err
}
