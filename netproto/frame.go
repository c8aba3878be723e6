package netproto

import "encoding/binary"

// Flag bits of a frame (RFC 37/ZMTP).
const (
	FlagMore    = 1 << 0 // another frame of the same message follows
	FlagLong    = 1 << 1 // the length has 8 bytes instead of 1
	FlagCommand = 1 << 2 // a ZMTP command; refused in the raw dialect
)

// maxFrameHeader is the size in bytes of the longest frame header.
const maxFrameHeader = 9

// AppendFrameHeader appends the header of a frame of n body bytes, in the short form
// for n under 256. more sets the MORE flag.
func AppendFrameHeader(dst []byte, n int, more bool) []byte {
	var flags byte
	if more {
		flags = FlagMore
	}
	return appendHeader(dst, flags, n)
}

// AppendFrame appends a frame with the given body. more sets the MORE flag.
func AppendFrame(dst, body []byte, more bool) []byte {
	return append(AppendFrameHeader(dst, len(body), more), body...)
}

// AppendCommand appends a command of ZMTP: a frame with the length of the name (1 byte), the name
// and the data.
func AppendCommand[T string | []byte](dst []byte, name string, data T) []byte {
	dst = appendHeader(dst, FlagCommand, 1+len(name)+len(data))
	return append(append(append(dst, byte(len(name))), name...), data...)
}

func appendHeader(dst []byte, flags byte, n int) []byte {
	if n < 0 {
		panic("netproto: a frame of a negative length")
	}
	if n < 256 {
		return append(dst, flags, byte(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, flags|FlagLong), uint64(n))
}

// FrameHeader is the header of a frame. Size is what it claims of the body, in bytes.
type FrameHeader struct {
	Flags byte
	Size  uint64
}

// More reports whether another frame of the same message follows.
func (h FrameHeader) More() bool { return h.Flags&FlagMore != 0 }

// frameHeaderLen returns the size in bytes of a header with these flags.
func frameHeaderLen(flags byte) int {
	if flags&FlagLong != 0 {
		return maxFrameHeader
	}
	return 2
}

// ParseFrameHeader parses the header of the frame that begins b, which is not empty. It returns the
// size of the header, n. While len(b) < n, Size is unknown and 0.
func ParseFrameHeader(b []byte) (h FrameHeader, n int) {
	h.Flags = b[0]
	n = frameHeaderLen(h.Flags)
	switch {
	case len(b) < n:
	case n == maxFrameHeader:
		h.Size = binary.BigEndian.Uint64(b[1:])
	default:
		h.Size = uint64(b[1])
	}
	return h, n
}
