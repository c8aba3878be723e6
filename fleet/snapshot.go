package fleet

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hitline/hitline/events"
)

// Errors of Load.
var (
	// ErrSnapshot refuses a snapshot that is damaged, of an unknown version, or of a fleet with another
	// BlockSize, FirstBytes or groups.
	ErrSnapshot = errors.New("fleet: not a snapshot that can be loaded")
	// ErrNotEmpty refuses to load into a fleet that has holders.
	ErrNotEmpty = errors.New("fleet: the fleet has holders")
)

// Snapshot is what a fleet held at one moment: its holders, stale or not, and their blocks. Predictions are left
// out. It is immutable.
type Snapshot struct {
	data []byte
}

type snapshotEntry struct {
	Hash  uint64
	Group int
	Tier  events.Tier
}

type snapshotHolder struct {
	ID     ID
	Blocks []snapshotEntry
}

// Snapshot copies what the fleet holds. Events that are applied meanwhile wait for it.
func (f *Fleet) Snapshot() *Snapshot {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var list []snapshotHolder
	for id, h := range f.holders {
		e := snapshotHolder{ID: id}
		for k := range h.blocks {
			if !k.predicted {
				e.Blocks = append(e.Blocks, snapshotEntry{k.hash, k.group, k.tier})
			}
		}
		list = append(list, e)
	}
	var buf bytes.Buffer
	_ = gob.NewEncoder(&buf).Encode(list)
	return &Snapshot{buf.Bytes()}
}

// WriteTo writes the snapshot in the form that Load reads. It implements io.WriterTo, and may be called several
// times.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(s.data)
	return int64(n), err
}

// Load makes the holders of a snapshot with their blocks. They are stale until SetStale(false); Get returns them.
// It reads no byte beyond the snapshot, so r may go on with other things. It fails with ErrNotEmpty, ErrSnapshot,
// ErrFull, ErrTooMany or as r does, and then has loaded nothing.
func (f *Fleet) Load(r io.Reader) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.holders) > 0 {
		return ErrNotEmpty
	}
	var list []snapshotHolder
	if err := gob.NewDecoder(byteReader{r}).Decode(&list); err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	for _, e := range list {
		h := &Holder{fleet: f, id: e.ID, stale: true, blocks: map[blockKey]time.Time{}}
		for _, b := range e.Blocks {
			h.blocks[blockKey{hash: b.Hash, group: b.Group, tier: b.Tier}] = time.Time{}
		}
		f.holders[e.ID] = h
	}
	return nil
}

// byteReader keeps gob from reading ahead.
type byteReader struct{ io.Reader }

func (r byteReader) ReadByte() (byte, error) {
	var b [1]byte
	_, err := io.ReadFull(r.Reader, b[:])
	return b[0], err
}
