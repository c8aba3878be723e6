package parts

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Reader reads what a Writer has written, value by value. Its first error stays: all values are then zero. It reads no byte
// after the part that it needs. It belongs to one goroutine at a time.
type Reader struct {
	in     io.Reader
	seed   uint32
	part   uint32 // the number of the part that is read
	number uint32 // of the next one
	flags  uint32 // of the part; beginsSection until NextSection has begun its section
	read   int64  // bytes
	buf    []byte // of parts
	rest   []byte // of the content
	err    error
}

// NewReader reads the header of a stream.
func NewReader(in io.Reader, magic string, format uint32) *Reader {
	r := &Reader{in: in}
	header := make([]byte, headerLen)
	n := r.fill(header)
	sum := binary.LittleEndian.Uint32(header[headerLen-4:])
	r.seed = checksum(0, header[magicLen+4:headerLen-4])
	switch got := binary.LittleEndian.Uint32(header[magicLen:]); {
	case !strings.HasPrefix(magic, string(header[:min(n, magicLen)])):
		r.err = fmt.Errorf("it does not begin with %q", magic)
	case r.err != nil:
	case got != format:
		r.err = fmt.Errorf("it has format %d, and this program reads format %d", got, format)
	case sum != checksum(0, header[:headerLen-4]):
		r.err = errors.New("the checksum of the header is wrong")
	}
	return r
}

// Err returns the first error. It says where the stream is wrong, and how.
func (r *Reader) Err() error { return r.err }

// Offset returns the position of the next value in the stream, in bytes.
func (r *Reader) Offset() int64 { return r.read - int64(len(r.rest)) }

// Fail makes the stream a wrong one, unless an error came before. A text from the stream is to be cut, as with %.40q.
func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("after %d bytes, in part %d: %w", r.Offset(), r.part, fmt.Errorf(format, args...))
	}
	r.rest = nil
}

// More reports whether the section has a further value.
func (r *Reader) More() bool {
	for len(r.rest) == 0 && r.flags == 0 && r.err == nil {
		r.readPart()
	}
	return len(r.rest) > 0 && r.flags&beginsSection == 0
}

// NextSection begins the next section, once the one before was read. It returns false if there is none.
func (r *Reader) NextSection() bool {
	if r.More() {
		r.Fail("the section has more than was expected")
	}
	begins := r.flags&beginsSection != 0 && r.err == nil
	r.flags &^= beginsSection
	return begins
}

// SkipSection skips what is left of the section.
func (r *Reader) SkipSection() {
	for r.More() {
		r.rest = nil
	}
}

// End returns the first error. It fails unless all was read, and nothing follows the last part.
func (r *Reader) End() error {
	if r.NextSection() {
		r.Fail("there is a section more than was expected")
	}
	if r.err == nil {
		if n, err := io.ReadFull(r.in, make([]byte, 1)); n > 0 {
			r.Fail("something follows the end")
		} else if !errors.Is(err, io.EOF) {
			r.Fail("%w", err)
		}
	}
	return r.err
}

// Uvarint reads a number of at most limit.
func (r *Reader) Uvarint(limit uint64) uint64 {
	if !r.has(1) {
		return 0
	}
	n, used := binary.Uvarint(r.rest)
	switch {
	case used <= 0:
		r.Fail("not a number")
		return 0
	case n > limit:
		r.Fail("a number of %d; at most %d is possible", n, limit)
		return 0
	}
	r.rest = r.rest[used:]
	return n
}

// Bool reads a truth value.
func (r *Reader) Bool() bool { return r.Uvarint(1) == 1 }

// Fixed64 reads a number of 8 bytes.
func (r *Reader) Fixed64() uint64 {
	if !r.has(8) {
		return 0
	}
	n := binary.LittleEndian.Uint64(r.rest)
	r.rest = r.rest[8:]
	return n
}

// Text reads a text of at most limit bytes.
func (r *Reader) Text(limit int) string { return string(r.Bytes(limit)) }

// Bytes reads at most limit bytes. They are valid until the next call.
func (r *Reader) Bytes(limit int) []byte {
	n := int(r.Uvarint(uint64(limit)))
	if n == 0 || !r.has(n) {
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// JSON reads JSON into v.
func (r *Reader) JSON(v any) {
	text := r.Bytes(MaxPart)
	if err := json.Unmarshal(text, v); err != nil {
		r.Fail("JSON that cannot be read: %.200v", err)
	}
}

// has fails unless a value of n bytes is there.
func (r *Reader) has(n int) bool {
	if len(r.rest) == 0 && !r.More() || len(r.rest) < n || r.flags&beginsSection != 0 {
		r.Fail("the section ends in the middle of a value")
		return false
	}
	return true
}

// readPart reads the next part and checks it.
func (r *Reader) readPart() {
	r.part = r.number
	var header [partHeader]byte
	if r.fill(header[:]); r.err != nil {
		return
	}
	flags, length := binary.LittleEndian.Uint32(header[:]), binary.LittleEndian.Uint32(header[4:])
	if flags&^(beginsSection|isLast) != 0 || length > MaxPart || binary.LittleEndian.Uint32(header[8:]) != r.number {
		r.Fail("the header of the part is damaged")
		return
	}
	if cap(r.buf) < int(length) {
		r.buf = make([]byte, min(MaxPart, max(int(length), 2*cap(r.buf))))
	}
	content := r.buf[:length]
	if r.fill(content); r.err != nil {
		return
	}
	if checksum(r.seed, header[:sumAt], content) != binary.LittleEndian.Uint32(header[sumAt:]) {
		r.Fail("the checksum of the part is wrong")
		return
	}
	r.number++
	r.flags, r.rest = flags, content
}

// fill reads all of b, and returns how much was read.
func (r *Reader) fill(b []byte) int {
	n, err := io.ReadFull(r.in, b)
	r.read += int64(n)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		r.Fail("it ends too early")
	case err != nil:
		r.Fail("%w", err)
	}
	return n
}
