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
	for n := 0; at < int64(len(b)); n++ {
		h, headerLen := ParseFrameHeader(b[at:])
		body := at + int64(headerLen)
		isWhole := body <= int64(len(b))
		var err error
		switch {
		case h.Flags&^(FlagMore|FlagLong|FlagCommand) != 0:
			err = ErrFlags
		case h.Flags&FlagCommand != 0:
			err = ErrCommand
		case !isWhole:
			return frames, 0, ErrShort
		case n >= limits.MaxFrames:
			err = ErrFrameCount
		case body > limits.MaxMessage || h.Size > uint64(limits.MaxMessage-body):
			err = ErrMessageLength
		case limits.MaxFrame != nil && h.Size > limits.MaxFrame(frames):
			err = ErrMessageLength
		case h.Size > uint64(int64(len(b))-body):
			return frames, 0, ErrShort
		}
		if err != nil {
			return frames, 0, &FrameError{Err: err, Frame: n, Byte: h.Flags, Len: h.Size}
		}
		at = body + int64(h.Size)
		if frames = append(frames, b[body:at:at]); !h.More() {
			return frames, int(at), nil
		}
	}
	return frames, 0, ErrShort
}
