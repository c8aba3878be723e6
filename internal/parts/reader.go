package parts

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// Reader reads what a Writer has written, value by value. Its first error stays: all values are then zero. It reads no byte
// behind the part that it needs. It belongs to one goroutine at a time.
type Reader struct {
	in     io.Reader
	seed   uint32
	number uint32 // of the next part
	part   uint32 // the number of the part that is read
	read   int64  // bytes
	buf    []byte // the part that was read last
	rest   []byte // of its content
	next   []byte // the first part of the section that NextSection begins, if isNext
	isNext bool
	isLast bool // the last part was read
	err    error
}

// NewReader reads the header of a stream.
func NewReader(in io.Reader, magic string, format uint32) *Reader {
	r := &Reader{in: in}
	header := make([]byte, headerLen)
	n := r.fill(header)
	id, sum := header[magicLen+4:headerLen-4], header[headerLen-4:]
	r.seed = checksum(0, id)
	if got := binary.LittleEndian.Uint32(header[magicLen:]); !strings.HasPrefix(magic, string(header[:min(n, magicLen)])) {
		r.err = fmt.Errorf("it does not begin with %q", magic)
	} else if r.err == nil && got != format {
		r.err = fmt.Errorf("it has format %d, and this program reads format %d", got, format)
	} else if r.err == nil && checksum(0, header[:headerLen-4]) != binary.LittleEndian.Uint32(sum) {
		r.err = errors.New("the checksum of the header is wrong")
	}
	return r
}

// Err returns the first error. It says where the stream is wrong, and how.
func (r *Reader) Err() error { return r.err }

// Offset returns the position of the next value in the stream, in bytes.
func (r *Reader) Offset() int64 { return r.read - int64(len(r.rest)+len(r.next)) }

// maxMessage bounds the text of an error in bytes, as it may repeat what the stream has.
const maxMessage = 300

// Fail makes the stream a wrong one, unless an error came before.
func (r *Reader) Fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	r.fail(errors.New(text))
}

func (r *Reader) fail(err error) {
	if r.err == nil {
		r.err = fmt.Errorf("after %d bytes, in part %d: %w", r.Offset(), r.part, err)
	}
	r.rest, r.next, r.isNext = nil, nil, false
}

// More reports whether the section has a further value.
func (r *Reader) More() bool {
	for len(r.rest) == 0 && !r.isNext && !r.isLast && r.err == nil {
		r.readPart()
	}
	return len(r.rest) > 0
}

// NextSection begins the next section, once the one before was read. It returns false if there is none.
func (r *Reader) NextSection() bool {
	if r.More() {
		r.Fail("the section has more than was expected")
	}
	begins := r.isNext && r.err == nil
	r.rest, r.next, r.isNext = r.next, nil, false
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
			r.fail(err)
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
	if used <= 0 {
		r.Fail("not a number")
		return 0
	}
	if n > limit {
		r.Fail("a number of %d; at most %d is possible", n, limit)
		return 0
	}
	r.rest = r.rest[used:]
	return n
}

// Int reads a number from low to high.
func (r *Reader) Int(low, high int) int {
	u := r.Uvarint(math.MaxUint64)
	n := int(u>>1) ^ -int(u&1)
	if r.err == nil && (n < low || n > high) {
		r.Fail("a number of %d; %d to %d are possible", n, low, high)
	}
	if r.err != nil {
		return 0
	}
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
	if r.err != nil {
		return
	}
	if err := json.Unmarshal(text, v); err != nil {
		r.Fail("JSON that cannot be read: %v", err)
	}
}

// has fails unless a value of n bytes is there.
func (r *Reader) has(n int) bool {
	if len(r.rest) < n && (len(r.rest) > 0 || !r.More() || len(r.rest) < n) {
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
	if flags > allFlags || length > MaxPart || binary.LittleEndian.Uint32(header[8:]) != r.number {
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
	if sumOf(r.seed, header[:], content) != binary.LittleEndian.Uint32(header[sumAt:]) {
		r.Fail("the checksum of the part is wrong")
		return
	}
	r.number++
	r.isLast = flags&isLast != 0
	if r.isNext = flags&beginsSection != 0; r.isNext {
		r.next = content
	} else {
		r.rest = content
	}
}

// fill reads all of b, and returns how much was read.
func (r *Reader) fill(b []byte) int {
	n, err := io.ReadFull(r.in, b)
	r.read += int64(n)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		r.Fail("it ends too early")
	case err != nil:
		r.fail(err)
	}
	return n
}
