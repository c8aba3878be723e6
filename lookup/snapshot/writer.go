package snapshot

import (
	"io"

	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/parts"
)

// writer writes a snapshot. Its first error stays.
type writer struct {
	*parts.Writer
	last    []int // group ranks of the last record of the pool
	pools   int
	entries int64 // keys of runs
}

func newWriter(out io.Writer, info fileInfo) *writer {
	w := &writer{Writer: parts.NewWriter(out, magic, format)}
	w.JSON(info)
	return w
}

// beginPool begins the records of a pool.
func (w *writer) beginPool(info poolInfo) {
	w.Section()
	w.JSON(info)
	w.pools++
	w.last = w.last[:0]
}

// add adds a record of the pool, which is only borrowed. It returns the first error.
func (w *writer) add(r *index.DumpRecord) error {
	writeRecord(w.Writer, r, w.last)
	w.last = append(w.last[:0], r.Places...)
	if r.Kind == index.DumpRun {
		w.entries += int64(numKeys(r))
	}
	return w.Err()
}
