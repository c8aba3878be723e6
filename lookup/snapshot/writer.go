package snapshot

import (
	"crypto/rand"
	"encoding/json"
	"io"

	"github.com/hitline/hitline/index"
	"github.com/hitline/hitline/internal/parts"
)

// writer writes a snapshot, part by part. An error of out ends it.
type writer struct {
	out   io.Writer
	parts *parts.Writer
	// buf is the next part of records, with room for its header. last are the places of its last record,
	// nil if it has no record yet.
	buf    []byte
	last   []int
	bytes  int64 // written
	totals totals
}

// newWriter writes the beginning of a snapshot.
func newWriter(out io.Writer, info fileInfo) (*writer, error) {
	id := make([]byte, idLen)
	_, _ = rand.Read(id) // never fails
	w := &writer{out: out, buf: make([]byte, parts.HeaderLen, parts.HeaderLen+2*fullPart)}
	w.parts = parts.NewWriter(w, parts.Checksum(id), maxPart)
	if _, err := w.Write(appendHeader(nil, id)); err != nil {
		return nil, err
	}
	return w, w.writeJSON(partFile, info)
}

// beginPool begins the records of a pool.
func (w *writer) beginPool(info poolInfo) error {
	w.totals.Pools++
	if err := w.flush(); err != nil {
		return err
	}
	return w.writeJSON(partPool, info)
}

// add adds a record of the pool, which is only borrowed.
func (w *writer) add(r *index.DumpRecord) error {
	w.buf = appendRecord(w.buf, r, w.last)
	w.last = append(w.last[:0], r.Places...)
	if w.last == nil {
		w.last = []int{}
	}
	w.totals.count(r)
	if len(w.buf) >= parts.HeaderLen+fullPart {
		return w.flush()
	}
	return nil
}

// end writes what has been added, and the end.
func (w *writer) end() error {
	if err := w.flush(); err != nil {
		return err
	}
	return w.writeJSON(partEnd, w.totals)
}

// flush writes the part of records, unless it is empty.
func (w *writer) flush() error {
	if len(w.buf) == parts.HeaderLen {
		return nil
	}
	err := w.writePart(partRecords, w.buf)
	w.buf, w.last = w.buf[:parts.HeaderLen], nil
	return err
}

func (w *writer) writeJSON(kind partKind, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		err = w.writePart(kind, append(make([]byte, parts.HeaderLen), text...))
	}
	return err
}

// writePart writes a part whose payload follows the place for its header.
func (w *writer) writePart(kind partKind, b []byte) error { return w.parts.Write(uint32(kind), b) }

// Write counts what is written.
func (w *writer) Write(b []byte) (int, error) {
	n, err := w.out.Write(b)
	w.bytes += int64(n)
	return n, err
}
