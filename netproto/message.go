package netproto

// ParseMessage parses the message at the front of b. It appends the frame bodies,
// borrowed from b, to frames, and returns them and the length of the message in bytes.
// It fails with ErrShort if b ends inside the message, and with a *FrameError if the
// message violates the framing or the limits.
//
// It is meant for replies and other messages that lie in one buffer; a [Reader] reads
// requests as they arrive.
func ParseMessage(b []byte, limits Limits, frames [][]byte) ([][]byte, int, error) {
	limits = limits.withDefaults()
	at := int64(0)
	for n := 0; ; n++ {
		if at == int64(len(b)) {
			return frames, 0, ErrShort
		}
		h := frameHeader{flags: b[at]}
		body := at + int64(headerLen(h.flags))
		switch {
		case h.flags&^(flagMore|flagLong|flagCommand) != 0:
			return frames, 0, &FrameError{Err: ErrFlags, Frame: n, Byte: h.flags}
		case h.flags&flagCommand != 0:
			return frames, 0, &FrameError{Err: ErrCommand, Frame: n, Byte: h.flags}
		case body > int64(len(b)):
			return frames, 0, ErrShort
		}
		switch h = decodeHeader(b[at:body]); {
		case n >= limits.MaxFrames:
			return frames, 0, &FrameError{Err: ErrFrameCount, Frame: n, Byte: h.flags, Len: h.size}
		case body > limits.MaxMessage || h.size > uint64(limits.MaxMessage-body):
			return frames, 0, &FrameError{Err: ErrMessageLength, Frame: n, Byte: h.flags, Len: h.size}
		case h.size > uint64(int64(len(b))-body):
			return frames, 0, ErrShort
		}
		at = body + int64(h.size)
		frames = append(frames, b[body:at:at])
		if !h.more() {
			return frames, int(at), nil
		}
	}
}
