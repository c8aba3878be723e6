package zmtp

import "encoding/binary"

// Flags of a frame.
const (
	flagMore    = 1 << 0 // another frame of the message follows
	flagLong    = 1 << 1 // the length has 8 bytes
	flagCommand = 1 << 2
	knownFlags  = flagMore | flagLong | flagCommand
)

// maxHeader is the size of the longest frame header: flags and a length of 8 bytes.
const maxHeader = 9

// Names of commands.
const (
	commandReady     = "READY"
	commandError     = "ERROR"
	commandPing      = "PING"
	commandPong      = "PONG"
	commandSubscribe = "SUBSCRIBE"
)

// header is that of a frame.
type header struct {
	flags byte
	bytes int    // of the header itself
	size  uint64 // of the body, as the peer claims
}

// parseHeader returns the header at the front of b, and false if it is not whole.
func parseHeader(b []byte) (header, bool) {
	switch {
	case len(b) < 2:
		return header{}, false
	case b[0]&flagLong == 0:
		return header{flags: b[0], bytes: 2, size: uint64(b[1])}, true
	case len(b) < maxHeader:
		return header{}, false
	}
	return header{flags: b[0], bytes: maxHeader, size: binary.BigEndian.Uint64(b[1:])}, true
}

func appendHeader(dst []byte, flags byte, size int) []byte {
	if size < 256 {
		return append(dst, flags, byte(size))
	}
	return binary.BigEndian.AppendUint64(append(dst, flags|flagLong), uint64(size))
}

func appendFrame(dst, body []byte, more bool) []byte {
	var flags byte
	if more {
		flags = flagMore
	}
	return append(appendHeader(dst, flags, len(body)), body...)
}

func appendCommand[T string | []byte](dst []byte, name string, data T) []byte {
	dst = appendHeader(dst, flagCommand, 1+len(name)+len(data))
	dst = append(dst, byte(len(name)))
	return append(append(dst, name...), data...)
}

// splitCommand returns the name and the data of a command's body.
func splitCommand(body []byte) (name, data []byte, ok bool) {
	if len(body) == 0 || body[0] == 0 || int(body[0]) > len(body)-1 {
		return nil, nil, false
	}
	n := int(body[0])
	return body[1 : 1+n], body[1+n:], true
}
