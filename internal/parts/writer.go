package parts

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// Writer writes values. Its first error stays, and End returns it. It belongs to one goroutine at a time.
type Writer struct {
	out    io.Writer
	seed   uint32
	number uint32
	flags  uint32 // of the part in buf
	buf    []byte // the header of the next part, which is set at the end, and its content
	length int64  // bytes written, unless there is an error
	err    error
}

// NewWriter begins a stream. magic has 8 bytes. Each part is one call of out.
func NewWriter(out io.Writer, magic string, format uint32) *Writer {
	w := &Writer{out: out, buf: make([]byte, partHeader, partHeader+fullPart)}
	id := make([]byte, idLen)
	_, _ = rand.Read(id) // never fails
	w.seed = checksum(0, id)
	header := append(binary.LittleEndian.AppendUint32([]byte(magic), format), id...)
	w.write(binary.LittleEndian.AppendUint32(header, checksum(0, header)))
	return w
}

// Err returns the first error.
func (w *Writer) Err() error { return w.err }

// Len returns how many bytes were written.
func (w *Writer) Len() int64 { return w.length }

// Section ends a section, and begins the next one. What is written before the first call is a section too.
func (w *Writer) Section() {
	if w.flags != 0 || len(w.buf) > partHeader {
		w.flush()
	}
	w.flags = beginsSection
}

// End writes the rest, and returns the first error. The Writer is then of no further use.
func (w *Writer) End() error {
	w.flags |= isLast
	w.flush()
	return w.err
}

// Uvarint writes a number in 7 bits a byte.
func (w *Writer) Uvarint(n uint64) {
	w.reserve(binary.MaxVarintLen64)
	w.buf = binary.AppendUvarint(w.buf, n)
}

// Bool writes a truth value.
func (w *Writer) Bool(b bool) {
	if b {
		w.Uvarint(1)
	} else {
		w.Uvarint(0)
	}
}

// Fixed64 writes a number in 8 bytes.
func (w *Writer) Fixed64(n uint64) {
	w.reserve(8)
	w.buf = binary.LittleEndian.AppendUint64(w.buf, n)
}

// Text writes a length and a text.
func (w *Writer) Text(s string) { w.Bytes([]byte(s)) }

// Bytes writes a length and bytes. A Reader lends them without a copy.
func (w *Writer) Bytes(b []byte) {
	w.reserve(binary.MaxVarintLen64 + len(b))
	w.buf = append(binary.AppendUvarint(w.buf, uint64(len(b))), b...)
}

// JSON writes the JSON of v.
func (w *Writer) JSON(v any) {
	text, err := json.Marshal(v)
	if err != nil && w.err == nil {
		w.err = err
	}
	w.Bytes(text)
}

// reserve writes the part if n bytes more were too many for it.
func (w *Writer) reserve(n int) {
	if n > MaxPart && w.err == nil {
		w.err = fmt.Errorf("a value of %d bytes; at most %d are possible", n, MaxPart)
	}
	if len(w.buf) > partHeader && len(w.buf)+n > partHeader+fullPart {
		w.flush()
	}
}

// flush writes the part.
func (w *Writer) flush() {
	binary.LittleEndian.PutUint32(w.buf, w.flags)
	binary.LittleEndian.PutUint32(w.buf[4:], uint32(len(w.buf)-partHeader))
	binary.LittleEndian.PutUint32(w.buf[8:], w.number)
	binary.LittleEndian.PutUint32(w.buf[sumAt:], checksum(w.seed, w.buf[:sumAt], w.buf[partHeader:]))
	w.write(w.buf)
	w.number++
	w.flags, w.buf = 0, w.buf[:partHeader]
}

func (w *Writer) write(b []byte) {
	if w.err == nil {
		_, w.err = w.out.Write(b)
		w.length += int64(len(b))
	}
}
