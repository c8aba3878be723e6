package blockhash

import "encoding/binary"

// Opcodes of pickle, protocol 5.
const (
	opProto          = 0x80
	opFrame          = 0x95
	opStop           = '.'
	opNone           = 'N'
	opMark           = '('
	opTuple          = 't'
	opTuple1         = 0x85 // of 2 and 3 elements: the codes behind it
	opMemoize        = 0x94
	opGet            = 'h'
	opLongGet        = 'j'
	opInt1           = 'K'
	opInt2           = 'M'
	opInt4           = 'J'
	opLong1          = 0x8a
	opShortBytes     = 'C'
	opShortText      = 0x8c
	opText           = 'X'
	opText8          = 0x8d
	frameHeader      = 9       // opcode and a length of 8 bytes
	frameTarget      = 1 << 16 // a frame is closed before the first object behind this size
	frameMin         = 4       // a smaller frame has no header
	maxIntLen        = 10      // of one integer in bytes
	shortLen, memo1  = 255, 255
	maxLen4          = 1<<32 - 1
	noFrame          = -1
	pickleProtocol   = 5
	maxTupleShortcut = 3 // longer tuples are written between a mark and opTuple
)

// pickler writes what CPython's pickle.dumps writes with protocol 5. It knows integers of 64
// bits, bytes, texts, tuples and None.
type pickler struct {
	buf   []byte
	frame int // where the open frame's header is, or noFrame
	memo  int // number of memoized objects
	// seen are the memoized texts that can come again as the same object.
	seen []memoized
}

// memoized is a text and its number in the memo.
type memoized struct {
	text   string
	number int
}

func (p *pickler) begin() {
	p.buf = append(p.buf[:0], opProto, pickleProtocol)
	p.memo, p.seen = 0, p.seen[:0]
	p.frame = noFrame
	p.openFrame()
}

// openFrame reserves the header of a frame.
func (p *pickler) openFrame() {
	if p.frame == noFrame {
		p.frame = len(p.buf)
		p.buf = append(p.buf, opFrame, 0, 0, 0, 0, 0, 0, 0, 0)
	}
}

// closeFrame writes the header of the open frame, or removes it if the frame is too small.
func (p *pickler) closeFrame() {
	if p.frame == noFrame {
		return
	}
	start := p.frame + frameHeader
	if n := len(p.buf) - start; n >= frameMin {
		binary.LittleEndian.PutUint64(p.buf[p.frame+1:], uint64(n))
	} else {
		copy(p.buf[p.frame:], p.buf[start:])
		p.buf = p.buf[:p.frame+n]
	}
	p.frame = noFrame
}

// object begins an object. Frames end only here, and so before an object.
func (p *pickler) object() {
	if len(p.buf)-p.frame-frameHeader >= frameTarget {
		p.closeFrame()
		p.openFrame()
	}
}

func (p *pickler) beginTuple(n int) {
	p.object()
	if n > maxTupleShortcut {
		p.buf = append(p.buf, opMark)
	}
}

func (p *pickler) endTuple(n int) {
	op := byte(opTuple)
	if n <= maxTupleShortcut {
		op = opTuple1 + byte(n-1)
	}
	p.buf = append(p.buf, op)
	p.memoize()
}

// memoize numbers the object that was written.
func (p *pickler) memoize() {
	p.buf = append(p.buf, opMemoize)
	p.memo++
}

func (p *pickler) none() {
	p.object()
	p.buf = append(p.buf, opNone)
}

func (p *pickler) int(v int64) {
	p.object()
	p.buf = appendPickledInt(p.buf, v)
}

func (p *pickler) ints(v []int64) {
	for len(v) > 0 {
		// As many integers as fit into the frame at their longest: it does not end before them.
		free := (frameTarget - (len(p.buf) - p.frame - frameHeader)) / maxIntLen
		n := min(len(v), max(free, 1))
		p.object()
		buf := p.buf
		for _, t := range v[:n] {
			buf = appendPickledInt(buf, t)
		}
		p.buf, v = buf, v[n:]
	}
}

// appendPickledInt appends an integer in its shortest form.
func appendPickledInt(buf []byte, v int64) []byte {
	switch {
	case uint64(v) < 1<<8:
		return append(buf, opInt1, byte(v))
	case uint64(v) < 1<<16:
		return append(buf, opInt2, byte(v), byte(v>>8))
	case v == int64(int32(v)):
		return append(buf, opInt4, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
	}
	// The fewest bytes whose highest bit is the sign.
	n := 5
	for n < 8 && v>>(8*n-1) != v>>63 {
		n++
	}
	buf = append(buf, opLong1, byte(n))
	for i := range n {
		buf = append(buf, byte(v>>(8*i)))
	}
	return buf
}

// bytes writes a hash or a digest, of 255 bytes at most.
func (p *pickler) bytes(b []byte) {
	p.object()
	p.buf = append(p.buf, opShortBytes, byte(len(b)))
	p.buf = append(p.buf, b...)
	p.memoize()
}

func (p *pickler) constant(s string) {
	if !p.get(s) {
		p.seen = append(p.seen, memoized{s, p.memo})
		p.write(s)
	}
}

func (p *pickler) text(s string) {
	if isSingleton(s) {
		p.constant(s)
		return
	}
	p.object()
	p.write(s)
}

// isSingleton reports whether CPython has only one object of a text.
func isSingleton(s string) bool {
	// U+0080 to U+00FF are two bytes that begin with C2 or C3.
	return len(s) < 2 || len(s) == 2 && (s[0] == 0xc2 || s[0] == 0xc3)
}

// get begins an object. If it was written before, get refers to it and returns true.
func (p *pickler) get(s string) bool {
	p.object()
	for _, m := range p.seen {
		if m.text != s {
			continue
		}
		if m.number <= memo1 {
			p.buf = append(p.buf, opGet, byte(m.number))
		} else {
			p.buf = append(p.buf, opLongGet)
			p.buf = binary.LittleEndian.AppendUint32(p.buf, uint32(m.number))
		}
		return true
	}
	return false
}

// write writes a text. A large one is between frames.
func (p *pickler) write(s string) {
	large := len(s) >= frameTarget
	if large {
		p.closeFrame()
	}
	switch n := uint64(len(s)); {
	case n <= shortLen:
		p.buf = append(p.buf, opShortText, byte(n))
	case n <= maxLen4:
		p.buf = append(p.buf, opText)
		p.buf = binary.LittleEndian.AppendUint32(p.buf, uint32(n))
	default:
		p.buf = append(p.buf, opText8)
		p.buf = binary.LittleEndian.AppendUint64(p.buf, n)
	}
	p.buf = append(p.buf, s...)
	if large {
		p.openFrame()
	}
	p.memoize()
}

func (p *pickler) finish() []byte {
	p.buf = append(p.buf, opStop)
	p.closeFrame()
	return p.buf
}
