package fleet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

// A snapshot is snapshotMagic and frames. A frame is
//
//	length (4 bytes, big-endian) | payload | CRC-32C of all payloads so far (4 bytes, big-endian)
//
// One of length 0 is the last. The payloads, joined, are the content: see Snapshot.write. Numbers in it are varints
// unless noted, texts begin with their length.
const snapshotMagic = "HLFLEET1"

// maxFrame bounds what is read before it is checked.
const maxFrame = 1 << 16

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frameWriter writes content in frames. The first error stays.
type frameWriter struct {
	w   io.Writer
	buf []byte // length and payload of the frame that is being filled
	crc uint32
	n   int64
	err error
}

func newFrameWriter(w io.Writer) *frameWriter {
	f := &frameWriter{w: w, buf: make([]byte, 4, 4+maxFrame+4)}
	f.writeOut([]byte(snapshotMagic))
	return f
}

func (f *frameWriter) writeOut(b []byte) {
	if f.err == nil {
		var n int
		n, f.err = f.w.Write(b)
		f.n += int64(n)
	}
}

// reserve makes n bytes of the frame free.
func (f *frameWriter) reserve(n int) {
	if len(f.buf)+n > 4+maxFrame {
		f.flush()
	}
}

// flush writes the frame. An empty one ends the snapshot.
func (f *frameWriter) flush() {
	binary.BigEndian.PutUint32(f.buf, uint32(len(f.buf)-4))
	f.crc = crc32.Update(f.crc, castagnoli, f.buf[4:])
	f.writeOut(binary.BigEndian.AppendUint32(f.buf, f.crc))
	f.buf = f.buf[:4]
}

// end writes what is left and the last frame.
func (f *frameWriter) end() {
	if len(f.buf) > 4 {
		f.flush()
	}
	f.flush()
}

func (f *frameWriter) number(n uint64) {
	f.reserve(binary.MaxVarintLen64)
	f.buf = binary.AppendUvarint(f.buf, n)
}

func (f *frameWriter) bool(b bool) {
	if b {
		f.number(1)
	} else {
		f.number(0)
	}
}

// fixed writes 8 bytes, big-endian.
func (f *frameWriter) fixed(n uint64) {
	f.reserve(8)
	f.buf = binary.BigEndian.AppendUint64(f.buf, n)
}

func (f *frameWriter) text(s string) {
	f.number(uint64(len(s)))
	for len(s) > 0 {
		f.reserve(1)
		n := min(len(s), 4+maxFrame-len(f.buf))
		f.buf = append(f.buf, s[:n]...)
		s = s[n:]
	}
}

// frameReader reads content. After the first error all values are zero. It reads no byte behind the last frame.
type frameReader struct {
	r       io.Reader
	buf     []byte
	payload []byte // the rest of the frame
	crc     uint32
	err     error
}

func newFrameReader(r io.Reader) *frameReader {
	f := &frameReader{r: r, buf: make([]byte, maxFrame+4)}
	magic := f.buf[:len(snapshotMagic)]
	if f.readFull(magic); f.err == nil && string(magic) != snapshotMagic {
		f.fail("it begins with %q instead of %q", magic, snapshotMagic)
	}
	return f
}

// fail records that the snapshot is damaged.
func (f *frameReader) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %s", ErrSnapshot, fmt.Sprintf(format, args...))
	}
}

func (f *frameReader) readFull(b []byte) {
	if f.err != nil {
		return
	}
	if _, err := io.ReadFull(f.r, b); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		f.err = fmt.Errorf("%w: it is cut: %w", ErrSnapshot, io.ErrUnexpectedEOF)
	} else if err != nil {
		f.err = fmt.Errorf("fleet: reading a snapshot: %w", err)
	}
}

// nextFrame reads a frame. It returns false if it is the last, or after an error.
func (f *frameReader) nextFrame() bool {
	f.readFull(f.buf[:4])
	if f.err != nil {
		return false
	}
	n := binary.BigEndian.Uint32(f.buf)
	if n > maxFrame {
		f.fail("a frame of %d bytes", n)
		return false
	}
	f.readFull(f.buf[:n+4])
	if f.err != nil {
		return false
	}
	f.payload = f.buf[:n]
	f.crc = crc32.Update(f.crc, castagnoli, f.payload)
	if binary.BigEndian.Uint32(f.buf[n:]) != f.crc {
		f.fail("a checksum is wrong")
		f.payload = nil
		return false
	}
	return n > 0
}

// end fails unless all was read and the last frame follows.
func (f *frameReader) end() {
	if f.err == nil && (len(f.payload) > 0 || f.nextFrame()) {
		f.fail("there is more behind its end")
	}
}

func (f *frameReader) byte() byte {
	if f.err != nil || len(f.payload) == 0 && !f.nextFrame() {
		f.fail("it ends too early")
		return 0
	}
	b := f.payload[0]
	f.payload = f.payload[1:]
	return b
}

// number reads a number up to limit.
func (f *frameReader) number(limit uint64) uint64 {
	var n uint64
	for shift := 0; shift < 64; shift += 7 {
		b := f.byte()
		if shift == 63 && b > 1 {
			break
		}
		if n |= uint64(b&0x7F) << shift; b < 0x80 {
			if n > limit {
				f.fail("a number of %d, at most %d is possible", n, limit)
				return 0
			}
			return n
		}
	}
	f.fail("a number of over 64 bits")
	return 0
}

func (f *frameReader) int(limit int) int { return int(f.number(uint64(limit))) }

func (f *frameReader) bool() bool { return f.number(1) == 1 }

func (f *frameReader) fixed() uint64 {
	if len(f.payload) >= 8 {
		n := binary.BigEndian.Uint64(f.payload)
		f.payload = f.payload[8:]
		return n
	}
	var n uint64
	for range 8 {
		n = n<<8 | uint64(f.byte())
	}
	return n
}

func (f *frameReader) text(limit int) string {
	n := f.int(limit)
	b := make([]byte, 0, min(n, maxFrame))
	for len(b) < n && f.err == nil {
		b = append(b, f.byte())
	}
	return string(b)
}

// zigzag maps numbers that may be negative to those that are not, near 0 to near 0. unzigzag is its inverse.
func zigzag(n int) uint64 { return uint64(n)<<1 ^ uint64(n>>63) }

func unzigzag(n uint64) int { return int(n>>1) ^ -int(n&1) }

const anyNumber = math.MaxUint64
