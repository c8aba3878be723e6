package lookup

import (
	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/index"
)

// Change is one store or evict over the memory index whose keys arrive in pieces. The
// zero value may be begun, and again when it has ended. One goroutine at a time.
type Change struct {
	index   *index.Index
	place   int
	evict   bool
	writer  index.Writer
	evicted int
}

// BeginStore begins a store to a group rank. It fails with ErrGroupRank.
func (m *Memory) BeginStore(c *Change, at coordinator.GroupRank) error {
	place, err := m.ranks.place(at)
	*c = Change{index: m.index, place: place}
	return err
}

// BeginEvict is BeginStore for an evict.
func (m *Memory) BeginEvict(c *Change, at coordinator.GroupRank) error {
	err := m.BeginStore(c, at)
	c.evict = true
	return err
}

// Add stores or evicts the next whole keys, borrowed until it returns. It takes effect at
// once.
func (c *Change) Add(keys []byte, hashLen int) error {
	if c.evict {
		n, err := c.index.Evict(c.place, keys, hashLen)
		c.evicted += n
		return err
	}
	return c.index.Store(&c.writer, []int{c.place}, keys, hashLen)
}

// Place returns the place that is changed.
func (c *Change) Place() int { return c.place }

// Changed returns how many keys have been stored or evicted since the change began. If Add has
// failed, 0 means that nothing has changed.
func (c *Change) Changed() int { return c.writer.Stored() + c.evicted }
