package netproto

import (
	"errors"
	"fmt"
)

// ErrUnequalHashes refuses hashes that are not all of one length.
var ErrUnequalHashes = errors.New("netproto: hashes of unequal length")

// ErrBlockSize says that a group's block is not a whole number of hash blocks.
var ErrBlockSize = errors.New("netproto: block size is not a positive multiple of the hash block size")

// Broken framing: the connection cannot be resynchronised and must be closed.
// Every error of [Reader.Feed] is a [FrameError] around one of these.
var (
	ErrFirstByte     = errors.New("netproto: first byte begins no known dialect")
	ErrFlags         = errors.New("netproto: reserved flag bits set")
	ErrCommand       = errors.New("netproto: command frame outside ZMTP")
	ErrMessageLength = errors.New("netproto: message too long")
	ErrFrameCount    = errors.New("netproto: too many frames in a message")
	ErrEnvelope      = errors.New("netproto: envelope too long")
)

// What else may be wrong with a ZMTP peer. These, too, come in a FrameError.
var (
	ErrGreeting   = errors.New("netproto: ZMTP greeting has a bad signature")
	ErrVersion    = errors.New("netproto: ZMTP peer is older than 3.0")
	ErrMechanism  = errors.New("netproto: ZMTP security mechanism is not NULL")
	ErrHandshake  = errors.New("netproto: ZMTP greeting is not followed by READY")
	ErrProperties = errors.New("netproto: ZMTP properties are malformed")
	ErrSocketType = errors.New("netproto: ZMTP peer is neither REQ nor DEALER")
	ErrPeerError  = errors.New("netproto: ZMTP peer sent ERROR")
	ErrBadCommand = errors.New("netproto: ZMTP command is malformed, too long, or inside a message")
)

// Requests that can be framed but not served: they get a 00 reply with this text.
var (
	ErrUnknownTag   = errors.New("unknown request")
	ErrMissingFrame = errors.New("a frame is missing")
	ErrExtraFrame   = errors.New("more frames than the request has")
	ErrHashLen      = errors.New("hash length outside 1 to 64 bytes")
	ErrCutKey       = errors.New("blob is not a whole number of keys")
	ErrEmptyBlob    = errors.New("no keys")
	ErrGroupRankLen = errors.New("group rank is not 6, 8 or 12 bytes long")
	ErrPingLen      = errors.New("ping payload over 65536 bytes")
)

// ErrShort says that bytes end in the middle of a message.
var ErrShort = errors.New("netproto: message is not complete")

// FrameError tells where framing broke.
type FrameError struct {
	Err   error  // one of the sentinels above
	Frame int    // number of the frame in its message, from 0
	Byte  byte   // the flags byte of that frame; of a greeting, the byte in question
	Len   uint64 // its claimed length in bytes, 0 when not yet read
}

// Error names the rule, the frame, and the numbers found in its header.
func (e *FrameError) Error() string {
	return fmt.Sprintf("%v (frame %d, flags %#02x, length %d)", e.Err, e.Frame, e.Byte, e.Len)
}

// Unwrap returns the sentinel.
func (e *FrameError) Unwrap() error { return e.Err }
