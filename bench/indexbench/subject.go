package indexbench

import (
	"errors"
	"fmt"

	"github.com/hitline/hitline/index"
)

// ErrWrong marks an answer of the index that cannot be right.
var ErrWrong = errors.New("indexbench: wrong answer")

// subject is the index under measurement. Tests put one in its place that lies.
type subject interface {
	store(w *index.Writer, keys []byte, hashLen int) error
	evict(keys []byte, hashLen int) (int, error)
	reader(hashLen int) reader // for one goroutine
	stats() index.Stats
}

// reader makes lookups, one at a time.
type reader interface {
	// leading looks keys up until one is absent and returns how many are not.
	leading(keys []byte) int
}

// pool is the index of package index for one group on one rank.
type pool struct{ x *index.Index }

// newPool makes an index of so many entries at most, 0 for no bound, that has
// room for at least want of them.
func newPool(maxEntries, want int64, hashLen int) (subject, error) {
	x, err := index.New(index.Config{
		MaxBytes:   max(index.DefaultMaxBytes, want*int64(hashLen+128)),
		MaxEntries: maxEntries,
		Places:     1,
		Groups:     [][]int{{0}},
	})
	if err != nil {
		return nil, err
	}
	return pool{x}, nil
}

func (p pool) store(w *index.Writer, keys []byte, hashLen int) error {
	return p.x.Store(w, []int{0}, keys, hashLen)
}

func (p pool) evict(keys []byte, hashLen int) (int, error) { return p.x.Evict(0, keys, hashLen) }
func (p pool) stats() index.Stats                          { return p.x.Stats() }
func (p pool) reader(hashLen int) reader                   { return &poolReader{x: p.x, hashLen: hashLen} }

// poolReader keeps what a connection of a server keeps between lookups.
type poolReader struct {
	x       *index.Index
	hashLen int
	cursor  index.Cursor
	runs    [64]index.Run
}

func (r *poolReader) leading(keys []byte) int {
	r.x.Begin(&r.cursor, r.hashLen)
	n := 0
	for absent := false; len(keys) > 0 && !absent; {
		filled, covered, _ := r.x.Probe(&r.cursor, keys, 1, r.runs[:], true)
		for _, run := range r.runs[:filled] {
			if absent = run.Coverage == nil || run.Coverage.Complete&1 == 0; absent {
				break
			}
			n += run.N
		}
		keys = keys[covered*r.hashLen:]
		absent = absent || covered == 0 // no progress: do not ask for ever
	}
	r.x.End(&r.cursor)
	return n
}

// wrong says what was found where something else had to be.
func wrong(what string, got, want int) error {
	return fmt.Errorf("%w: %s: %d of %d hashes present", ErrWrong, what, got, want)
}
