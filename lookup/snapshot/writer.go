package snapshot

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/hitline/hitline/index"
)

// writer writes a snapshot, part by part. An error of out ends it.
type writer struct {
	out    io.Writer
	seed   uint32 // CRC-32C of the id
	number uint32 // of the next part
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
	w := &writer{out: out, seed: crc32.Checksum(id, castagnoli), buf: make([]byte, partHeader, partHeader+2*fullPart)}
	if err := w.write(appendHeader(nil, id)); err != nil {
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
	if len(w.buf) >= partHeader+fullPart {
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
	if len(w.buf) == partHeader {
		return nil
	}
	err := w.writePart(partRecords, w.buf)
	w.buf, w.last = w.buf[:partHeader], nil
	return err
}

func (w *writer) writeJSON(kind partKind, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		err = w.writePart(kind, append(make([]byte, partHeader), text...))
	}
	return err
}

// writePart writes a part whose payload follows the place for its header.
func (w *writer) writePart(kind partKind, b []byte) error {
	payload := b[partHeader:]
	if len(payload) > maxPart {
		return fmt.Errorf("a part of %d bytes, at most %d are possible", len(payload), maxPart)
	}
	binary.LittleEndian.PutUint32(b, uint32(kind))
	binary.LittleEndian.PutUint32(b[4:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[8:], w.number)
	binary.LittleEndian.PutUint32(b[12:], partSum(w.seed, b[:12], payload))
	w.number++
	return w.write(b)
}

func (w *writer) write(b []byte) error {
	n, err := w.out.Write(b)
	w.bytes += int64(n)
	return err
}
