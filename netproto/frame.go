package netproto

import "encoding/binary"

// Flag bits of a frame (RFC 37/ZMTP).
const (
	flagMore    = 1 << 0 // another frame of the same message follows
	flagLong    = 1 << 1 // the length has 8 bytes instead of 1
	flagCommand = 1 << 2 // a ZMTP command; refused in the raw dialect
)

// maxHeader is the size in bytes of the longest frame header.
const maxHeader = 9

// AppendFrameHeader appends the header of a frame of n body bytes, in the short form
// for n under 256. more sets the MORE flag.
func AppendFrameHeader(dst []byte, n int, more bool) []byte {
	var flags byte
	if more {
		flags = flagMore
	}
	if n < 0 {
		panic("netproto: a frame of a negative length")
	}
	if n < 256 {
		return append(dst, flags, byte(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, flags|flagLong), uint64(n))
}

// AppendFrame appends a frame with the given body. more sets the MORE flag.
func AppendFrame(dst, body []byte, more bool) []byte {
	return append(AppendFrameHeader(dst, len(body), more), body...)
}

// frameHeader is a decoded header; size is that of the body in bytes.
type frameHeader struct {
	flags byte
	size  uint64
}

func (h frameHeader) more() bool { return h.flags&flagMore != 0 }

// headerLen returns the size in bytes of a header with these flags.
func headerLen(flags byte) int {
	if flags&flagLong != 0 {
		return maxHeader
	}
	return 2
}

// decodeHeader decodes a whole header.
func decodeHeader(b []byte) frameHeader {
	if len(b) < maxHeader {
		return frameHeader{flags: b[0], size: uint64(b[1])}
	}
	return frameHeader{flags: b[0], size: binary.BigEndian.Uint64(b[1:])}
}
