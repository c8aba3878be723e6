package netproto

import (
	"errors"
	"fmt"
	"strings"
)

// Framing errors: the connection cannot be resynchronised and must be closed. Every
// error of [Reader.Feed] is a [*FrameError] that wraps one of these or of the next.
var (
	ErrFirstByte     = errors.New("netproto: first byte begins no known dialect")
	ErrFlags         = errors.New("netproto: reserved flag bits set")
	ErrCommand       = errors.New("netproto: command frame outside ZMTP")
	ErrMessageLength = errors.New("netproto: message too long")
	ErrFrameCount    = errors.New("netproto: too many frames in a message")
	ErrEnvelope      = errors.New("netproto: envelope too long")
	ErrNoDelimiter   = errors.New("netproto: raw message with addresses and no delimiter")
)

// ZMTP errors, which close the connection too.
var (
	ErrGreeting    = errors.New("netproto: ZMTP greeting has a bad signature")
	ErrVersion     = errors.New("netproto: ZMTP peer is older than 3.0")
	ErrMechanism   = errors.New("netproto: ZMTP security mechanism is not served here")
	ErrHandshake   = errors.New("netproto: ZMTP greeting is not followed by READY, or with PLAIN by HELLO and INITIATE")
	ErrCredentials = errors.New("netproto: ZMTP peer has no valid credentials")
	ErrProperties  = errors.New("netproto: ZMTP properties are malformed")
	ErrSocketType  = errors.New("netproto: ZMTP peer is neither REQ nor DEALER")
	ErrPeerError   = errors.New("netproto: ZMTP peer sent ERROR")
	ErrBadCommand  = errors.New("netproto: ZMTP command is malformed or too long")
)

// ErrShort is the error of ParseMessage for bytes that end inside a message.
var ErrShort = errors.New("netproto: message is not complete")

// FrameError is a framing or ZMTP error, with the frame that caused it.
type FrameError struct {
	Err   error  // the sentinel
	Frame int    // index of the frame in its message, from 0
	Byte  byte   // the flags byte of that frame; in a greeting, the refused byte
	Len   uint64 // the length in bytes that its header claims, 0 if not read yet
}

// Error returns the sentinel's text, the frame's index and its header.
func (e *FrameError) Error() string {
	text := fmt.Sprintf("%v (frame %d, flags %#02x, length %d)", e.Err, e.Frame, e.Byte, e.Len)
	if e.isHTTP() {
		text += ": the peer speaks HTTP, which is for other ports"
	}
	return text
}

// isHTTP reports whether the frame begins as a request or a reply of HTTP does.
func (e *FrameError) isHTTP() bool {
	const methods = "CDGHOPT" // their first letters
	isReply := errors.Is(e.Err, ErrFlags) && e.Byte == 'H' && e.Len == 'T'
	return e.Frame == 0 && (isReply || errors.Is(e.Err, ErrFirstByte) && strings.IndexByte(methods, e.Byte) >= 0)
}

// Unwrap returns the sentinel.
func (e *FrameError) Unwrap() error { return e.Err }
