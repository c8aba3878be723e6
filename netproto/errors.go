package netproto

import (
	"errors"
	"fmt"
	"strings"
)

// Framing errors: the connection cannot be resynchronised and must be closed. Every
// error of [Reader.Feed] is a [*FrameError] that wraps one of these or of the next.
var (
	ErrFirstByte     = errors.New("first byte begins no known dialect")
	ErrFlags         = errors.New("reserved flag bits set")
	ErrCommand       = errors.New("command frame outside ZMTP")
	ErrMessageLength = errors.New("message too long")
	ErrFrameCount    = errors.New("too many frames in a message")
	ErrEnvelope      = errors.New("envelope too long")
	ErrNoDelimiter   = errors.New("raw message with addresses and no delimiter")
)

// ZMTP errors, which close the connection too.
var (
	ErrGreeting    = errors.New("ZMTP greeting has a bad signature")
	ErrVersion     = errors.New("ZMTP peer is older than 3.0")
	ErrMechanism   = errors.New("ZMTP security mechanism is not served here")
	ErrHandshake   = errors.New("ZMTP greeting is not followed by READY, or with PLAIN by HELLO and INITIATE")
	ErrCredentials = errors.New("ZMTP peer has no valid credentials")
	ErrProperties  = errors.New("ZMTP properties are malformed")
	ErrSocketType  = errors.New("ZMTP peer is neither REQ nor DEALER")
	ErrPeerError   = errors.New("ZMTP peer sent ERROR")
	ErrBadCommand  = errors.New("ZMTP command is malformed or too long")
)

// ErrShort is the error of ParseMessage for bytes that end inside a message.
var ErrShort = errors.New("message is not complete")

// FrameError is a framing or ZMTP error, with the frame that caused it.
type FrameError struct {
	Err   error  // the sentinel
	Frame int    // index of the frame in its message, from 0
	Byte  byte   // the flags byte of that frame; in a greeting, the refused byte
	Len   uint64 // the length in bytes that its header claims, 0 if not read yet
}

// Error returns the sentinel's text, the frame's index and its header, and what the peer may speak.
func (e *FrameError) Error() string {
	return fmt.Sprintf("%v (frame %d, flags %#02x, length %d)%s", e.Err, e.Frame, e.Byte, e.Len, e.hint())
}

// hint says what the peer may speak if the frame begins as another protocol does, "" otherwise.
func (e *FrameError) hint() string {
	const (
		methods         = "CDGHOPT" // the first letters of those of HTTP
		handshakeRecord = 0x16      // the first byte of a TLS client
	)
	isFirst, isReply := errors.Is(e.Err, ErrFirstByte), errors.Is(e.Err, ErrFlags) && e.Byte == 'H' && e.Len == 'T'
	switch {
	case e.Frame != 0:
	case isFirst && e.Byte == handshakeRecord:
		return "; if this is a client with TLS, this address has none: it begins with tcp://"
	case isReply || isFirst && strings.IndexByte(methods, e.Byte) >= 0:
		return ": the peer speaks HTTP, which is for other ports"
	}
	return ""
}

// Unwrap returns the sentinel.
func (e *FrameError) Unwrap() error { return e.Err }
