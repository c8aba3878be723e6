package netproto

import (
	"encoding/binary"
	"errors"
)

// Flag bits of a frame.
const (
	FlagMore    = 1 << 0 // another frame of the same message follows
	FlagLong    = 1 << 1 // the length has 8 bytes instead of 1
	FlagCommand = 1 << 2 // a ZMTP command; has no place in the raw dialect
)

// maxHeader is the size in bytes of the longest frame header.
const maxHeader = 9

// AppendFrameHeader appends the header of a frame of n body bytes, in the short
// form where it fits.
func AppendFrameHeader(dst []byte, n int, more bool) []byte {
	var flags byte
	if more {
		flags = FlagMore
	}
	if n < 256 {
		return append(dst, flags, byte(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, flags|FlagLong), uint64(n))
}

// AppendFrame appends a whole frame.
func AppendFrame(dst, body []byte, more bool) []byte {
	return append(AppendFrameHeader(dst, len(body), more), body...)
}

// frameHeader is a decoded header.
type frameHeader struct {
	flags byte
	size  uint64
}

func (h frameHeader) more() bool { return h.flags&FlagMore != 0 }

// checkFlags refuses flags that the raw dialect does not have.
func checkFlags(flags byte) error {
	switch {
	case flags&^(FlagMore|FlagLong|FlagCommand) != 0:
		return ErrFlags
	case flags&FlagCommand != 0:
		return ErrCommand
	}
	return nil
}

// ParseMessage parses the whole message at the front of b: its frame bodies,
// borrowed from b and appended to frames, and the number of bytes it takes. It
// fails with ErrShort while b holds only a part of a message, and with a
// FrameError when the message breaks the framing or the limits.
//
// It is for replies and other small messages that lie in one buffer; requests
// are read by [Reader].
func ParseMessage(b []byte, limits Limits, frames [][]byte) ([][]byte, int, error) {
	limits = limits.withDefaults()
	at := 0
	for n := 0; ; n++ {
		h, size, err := parseHeader(b[at:])
		if err == nil && n >= limits.MaxFrames {
			err = ErrFrameCount
		}
		if err == nil && (size > limits.MaxMessage-int64(at) || h.size > uint64(limits.MaxMessage-int64(at)-size)) {
			err = ErrMessageLength
		}
		if errors.Is(err, ErrShort) {
			return frames, 0, err
		}
		if err != nil {
			return frames, 0, &FrameError{Err: err, Frame: n, Byte: h.flags, Len: h.size}
		}
		at += int(size)
		if uint64(len(b)-at) < h.size {
			return frames, 0, ErrShort
		}
		end := at + int(h.size)
		frames = append(frames, b[at:end:end])
		at = end
		if !h.more() {
			return frames, at, nil
		}
	}
}

// parseHeader decodes the header at the front of b and returns its size in bytes.
func parseHeader(b []byte) (frameHeader, int64, error) {
	if len(b) == 0 {
		return frameHeader{}, 0, ErrShort
	}
	if err := checkFlags(b[0]); err != nil {
		return frameHeader{flags: b[0]}, 0, err
	}
	return decodeHeader(b)
}

// decodeHeader is parseHeader without a look at the flags; b is not empty.
func decodeHeader(b []byte) (frameHeader, int64, error) {
	h := frameHeader{flags: b[0]}
	if h.flags&FlagLong == 0 {
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
