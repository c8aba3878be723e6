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

// checkFlags fails unless the flags are valid in the raw dialect.
func checkFlags(flags byte) error {
	switch {
	case flags&^(flagMore|flagLong|flagCommand) != 0:
		return ErrFlags
	case flags&flagCommand != 0:
		return ErrCommand
	}
	return nil
}

// parseHeader decodes the header at the front of b and checks its flags. It returns
// the size of the header in bytes too.
func parseHeader(b []byte) (frameHeader, int64, error) {
	if len(b) == 0 {
		return frameHeader{}, 0, ErrShort
	}
	if err := checkFlags(b[0]); err != nil {
		return frameHeader{flags: b[0]}, 0, err
	}
	return decodeHeader(b)
}

// decodeHeader is parseHeader without the check of the flags; b is not empty.
func decodeHeader(b []byte) (frameHeader, int64, error) {
	h := frameHeader{flags: b[0]}
	if h.flags&flagLong == 0 {
		if len(b) < 2 {
			return h, 0, ErrShort
		}
		h.size = uint64(b[1])
		return h, 2, nil
	}
	if len(b) < maxHeader {
		return h, 0, ErrShort
	}
	h.size = binary.BigEndian.Uint64(b[1:])
	return h, maxHeader, nil
}
