package fleet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/hitline/hitline/internal/parts"
)

// A snapshot is snapshotMagic and parts, see package parts. The payloads of contentPart, joined, are the content: see
// Snapshot.write. endPart is empty and the last. Numbers in the content are varints unless noted, texts begin with
// their length.
const (
	snapshotMagic = "HLFLEET1"
	contentPart   = 1
	endPart       = 2
	maxPayload    = 1 << 16 // bytes
)

// contentWriter writes content. The first error stays.
type contentWriter struct {
	out   io.Writer
	parts *parts.Writer
	buf   []byte // the part that is being filled, behind the place for its header
	n     int64  // bytes written
	err   error
}

func newContentWriter(out io.Writer) *contentWriter {
	w := &contentWriter{out: out, buf: make([]byte, parts.HeaderLen, parts.HeaderLen+maxPayload)}
	w.parts = parts.NewWriter(w, 0, maxPayload)
	_, w.err = w.Write([]byte(snapshotMagic))
	return w
}

// Write counts what is written.
func (w *contentWriter) Write(b []byte) (int, error) {
	n, err := w.out.Write(b)
	w.n += int64(n)
	return n, err
}

// reserve makes n bytes of the part free.
func (w *contentWriter) reserve(n int) {
	if len(w.buf)+n > cap(w.buf) {
		w.flush(contentPart)
	}
}

func (w *contentWriter) flush(kind uint32) {
	if w.err == nil {
		w.err = w.parts.Write(kind, w.buf)
	}
	w.buf = w.buf[:parts.HeaderLen]
}

// end writes what is left and the last part.
func (w *contentWriter) end() {
	if len(w.buf) > parts.HeaderLen {
		w.flush(contentPart)
	}
	w.flush(endPart)
}

func (w *contentWriter) number(n uint64) {
	w.reserve(binary.MaxVarintLen64)
	w.buf = binary.AppendUvarint(w.buf, n)
}

func (w *contentWriter) bool(b bool) {
	if b {
		w.number(1)
	} else {
		w.number(0)
	}
}

// fixed writes 8 bytes, big-endian.
func (w *contentWriter) fixed(n uint64) {
	w.reserve(8)
	w.buf = binary.BigEndian.AppendUint64(w.buf, n)
}

func (w *contentWriter) text(s string) {
	w.number(uint64(len(s)))
	for len(s) > 0 {
		w.reserve(1)
		n := min(len(s), cap(w.buf)-len(w.buf))
		w.buf = append(w.buf, s[:n]...)
		s = s[n:]
	}
}

// contentReader reads content. After the first error all values are zero. It reads no byte behind the last part.
type contentReader struct {
	parts   *parts.Reader
	payload []byte // the rest of the part
	isLast  bool   // endPart was read
	err     error
}

func newContentReader(in io.Reader) *contentReader {
	r := &contentReader{parts: parts.NewReader(in, 0, maxPayload)}
	magic := make([]byte, len(snapshotMagic))
	if _, err := io.ReadFull(in, magic); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		r.failRead(parts.ErrCut)
	} else if err != nil {
		r.failRead(err)
	} else if string(magic) != snapshotMagic {
		r.fail("it begins with %q instead of %q", magic, snapshotMagic)
	}
	return r
}

// fail records that the snapshot is damaged.
func (r *contentReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrSnapshot, fmt.Sprintf(format, args...))
	}
}

// failRead records an error of a reader.
func (r *contentReader) failRead(err error) {
	switch {
	case errors.Is(err, parts.ErrCut), errors.Is(err, parts.ErrDamaged), errors.Is(err, parts.ErrChecksum):
		r.fail("%v", err)
	case r.err == nil:
		r.err = fmt.Errorf("fleet: reading a snapshot: %w", err)
	}
}

// nextPart reads a part. It returns false if it is the last, or after an error.
func (r *contentReader) nextPart() bool {
	if r.err != nil || r.isLast {
		return false
	}
	kind, payload, err := r.parts.Next()
	switch {
	case err != nil:
		r.failRead(err)
	case kind == endPart && len(payload) == 0:
		r.isLast = true
	case kind != contentPart || len(payload) == 0:
		r.fail("a part of kind %d with %d bytes", kind, len(payload))
	default:
		r.payload = payload
		return true
	}
	return false
}

// end fails unless all was read and the last frame follows.
func (r *contentReader) end() {
	if r.err == nil && (len(r.payload) > 0 || r.nextPart()) {
		r.fail("there is more behind its end")
	}
}

func (r *contentReader) byte() byte {
	if r.err != nil || len(r.payload) == 0 && !r.nextPart() {
		r.fail("it ends too early")
		return 0
	}
	b := r.payload[0]
	r.payload = r.payload[1:]
	return b
}

// number reads a number up to limit.
func (r *contentReader) number(limit uint64) uint64 {
	var n uint64
	for shift := 0; shift < 64; shift += 7 {
		b := r.byte()
		if shift == 63 && b > 1 {
			break
		}
		if n |= uint64(b&0x7F) << shift; b < 0x80 {
			if n > limit {
				r.fail("a number of %d, at most %d is possible", n, limit)
				return 0
			}
			return n
		}
	}
	r.fail("a number of over 64 bits")
	return 0
}

func (r *contentReader) int(limit int) int { return int(r.number(uint64(limit))) }

func (r *contentReader) bool() bool { return r.number(1) == 1 }

func (r *contentReader) fixed() uint64 {
	if len(r.payload) >= 8 {
		n := binary.BigEndian.Uint64(r.payload)
		r.payload = r.payload[8:]
		return n
	}
	var n uint64
	for range 8 {
		n = n<<8 | uint64(r.byte())
	}
	return n
}

func (r *contentReader) text(limit int) string {
	n := r.int(limit)
	b := make([]byte, 0, min(n, maxPayload))
	for len(b) < n && r.err == nil {
		b = append(b, r.byte())
	}
	return string(b)
}

// zigzag maps numbers that may be negative to those that are not, near 0 to near 0. unzigzag is its inverse.
func zigzag(n int) uint64 { return uint64(n)<<1 ^ uint64(int64(n)>>63) }

func unzigzag(n uint64) int { return int(n>>1) ^ -int(n&1) }

const anyNumber = math.MaxUint64
