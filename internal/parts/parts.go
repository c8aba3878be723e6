// Package parts splits a stream into parts with checksums: a reader finds damage before it uses what it reads, and
// allocates a bounded payload for bytes that it has not checked yet. Snapshots of pools, dumps of holders and snapshots
// of fleets consist of parts, each behind a header of its own.
//
//	part  kind u32 | length u32 | number u32 | checksum u32 | payload [length]
//
// Integers are little-endian. The checksum is CRC-32C of a seed, of the kind, length and number, and of the payload.
// Parts are numbered from 0, so one that is missing, repeated or at another place is found. What the kinds mean, and
// which one is the last, is the caller's.
package parts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// HeaderLen is the length of the header of a part, in bytes.
const HeaderLen = 16

// sumAt is where the checksum is in a header.
const sumAt = 12

// Errors of a Reader. Those of the stream are returned as they are.
var (
	ErrCut      = errors.New("the data ends in the middle of a part")
	ErrDamaged  = errors.New("the header of a part is damaged")
	ErrChecksum = errors.New("the checksum of a part is wrong")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns CRC-32C of b: the seed of parts that belong to what b identifies.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func sum(seed uint32, header, payload []byte) uint32 {
	return crc32.Update(crc32.Update(seed, castagnoli, header[:sumAt]), castagnoli, payload)
}

// Writer writes parts. It belongs to one goroutine at a time.
type Writer struct {
	out    io.Writer
	seed   uint32
	most   int
	number uint32
}

// NewWriter returns a writer of parts with payloads of at most maxPayload bytes. seed is 0, or a Checksum.
func NewWriter(out io.Writer, seed uint32, maxPayload int) *Writer {
	return &Writer{out: out, seed: seed, most: maxPayload}
}

// Write writes a part with one call of the underlying writer, whose errors it returns. part is HeaderLen bytes, which
// Write sets, and the payload. It is only borrowed.
func (w *Writer) Write(kind uint32, part []byte) error {
	payload := part[HeaderLen:]
	if len(payload) > w.most {
		return fmt.Errorf("a part of %d bytes, at most %d are possible", len(payload), w.most)
	}
	binary.LittleEndian.PutUint32(part, kind)
	binary.LittleEndian.PutUint32(part[4:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(part[8:], w.number)
	binary.LittleEndian.PutUint32(part[sumAt:], sum(w.seed, part, payload))
	w.number++
	_, err := w.out.Write(part)
	return err
}

// Reader reads parts. It reads no byte behind the last one that was asked for. It belongs to one goroutine at a time.
type Reader struct {
	in     io.Reader
	seed   uint32
	most   int
	number uint32
	read   int64
	buf    []byte
}

// NewReader returns a reader of what a Writer with the same seed and maxPayload has written.
func NewReader(in io.Reader, seed uint32, maxPayload int) *Reader {
	return &Reader{in: in, seed: seed, most: maxPayload}
}

// Offset returns how many bytes were read.
func (r *Reader) Offset() int64 { return r.read }

// Number returns the number of the part that Next reads next.
func (r *Reader) Number() uint32 { return r.number }

// Next reads a part and checks it. The payload is valid until the next call. It fails with ErrCut, ErrDamaged,
// ErrChecksum or as the stream does; the reader is then of no further use.
func (r *Reader) Next() (kind uint32, payload []byte, err error) {
	var header [HeaderLen]byte
	if err := r.fill(header[:]); err != nil {
		return 0, nil, err
	}
	length := binary.LittleEndian.Uint32(header[4:])
	if uint64(length) > uint64(r.most) || binary.LittleEndian.Uint32(header[8:]) != r.number {
		return 0, nil, ErrDamaged
	}
	if cap(r.buf) < int(length) {
		r.buf = make([]byte, min(r.most, max(int(length), 2*cap(r.buf))))
	}
	payload = r.buf[:length]
	if err := r.fill(payload); err != nil {
		return 0, nil, err
	}
	if sum(r.seed, header[:], payload) != binary.LittleEndian.Uint32(header[sumAt:]) {
		return 0, nil, ErrChecksum
	}
	r.number++
	return binary.LittleEndian.Uint32(header[:]), payload, nil
}

func (r *Reader) fill(b []byte) error {
	n, err := io.ReadFull(r.in, b)
	r.read += int64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrCut
	}
	return err
}
