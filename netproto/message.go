package netproto

import "errors"

// ParseMessage parses the message at the front of b. It appends the frame bodies,
// borrowed from b, to frames, and returns them and the length of the message in bytes.
// It fails with ErrShort if b ends inside the message, and with a *FrameError if the
// message violates the framing or the limits.
//
// It is meant for replies and other messages that lie in one buffer; a [Reader] reads
// requests as they arrive.
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
