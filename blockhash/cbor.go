package blockhash

import "encoding/binary"

// Major types of CBOR (RFC 8949, 3.1), in the upper three bits of the first byte.
const (
	cborUint   = 0 << 5
	cborNegInt = 1 << 5
	cborBytes  = 2 << 5
	cborText   = 3 << 5
	cborArray  = 4 << 5
	cborNull   = 0xf6
)

// cborWriter writes what cbor2.dumps writes in canonical form: each number in its shortest
// form, tuples as arrays.
type cborWriter struct{ buf []byte }

func (c *cborWriter) begin()            { c.buf = c.buf[:0] }
func (c *cborWriter) beginTuple(n int)  { c.buf = appendCBORHead(c.buf, cborArray, uint64(n)) }
func (c *cborWriter) endTuple(int)      {}
func (c *cborWriter) int(v int64)       { c.buf = appendCBORInt(c.buf, v) }
func (c *cborWriter) constant(s string) { c.text(s) }
func (c *cborWriter) none()             { c.buf = append(c.buf, cborNull) }
func (c *cborWriter) finish() []byte    { return c.buf }

func (c *cborWriter) ints(v []int64) {
	buf := c.buf
	for _, t := range v {
		buf = appendCBORInt(buf, t)
	}
	c.buf = buf
}

func (c *cborWriter) bytes(b []byte) {
	c.buf = append(appendCBORHead(c.buf, cborBytes, uint64(len(b))), b...)
}

func (c *cborWriter) text(s string) {
	c.buf = append(appendCBORHead(c.buf, cborText, uint64(len(s))), s...)
}

// appendCBORInt appends an integer. A negative one is written as −1 − v.
func appendCBORInt(buf []byte, v int64) []byte {
	if v < 0 {
		return appendCBORHead(buf, cborNegInt, uint64(^v))
	}
	return appendCBORHead(buf, cborUint, uint64(v))
}

// appendCBORHead appends a major type with its number.
func appendCBORHead(buf []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(buf, major|byte(n))
	case n < 1<<8:
		return append(buf, major|24, byte(n))
	case n < 1<<16:
		return append(buf, major|25, byte(n>>8), byte(n))
	case n < 1<<32:
		return append(buf, major|26, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return binary.BigEndian.AppendUint64(append(buf, major|27), n)
}
