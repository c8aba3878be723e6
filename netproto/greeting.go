package netproto

// Offsets in bytes in the ZMTP greeting (RFC 37/ZMTP). Both peers send 64 bytes: a
// signature (FF, 8 bytes of padding, 7F), the major and the minor version, 20 bytes of
// the security mechanism's name, and 32 bytes that the NULL mechanism does not use.
const (
	greetingLen    = 64
	signatureEnd   = 9 // the last byte of the signature
	versionMajor   = 10
	mechanismBegin = 12
	mechanismEnd   = 32

	// oldestMajor is the first version with these frames. The RFC demands that a
	// newer peer speaks them with us.
	oldestMajor = 3
)

// The greeting is gathered in Reader.carry, which must be large enough.
var _ [MaxHashLen - greetingLen]struct{}

// mechanismNull is the mechanism field of a greeting: only NULL is served.
const mechanismNull = "NULL\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// ourGreeting is what we send: ZMTP 3.1, NULL. It is sent whole on the peer's first
// byte: libzmq sends its signature and waits for ours, so waiting for all its 64 bytes
// would deadlock.
var ourGreeting = []byte("\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\x03\x01" + mechanismNull + string(make([]byte, greetingLen-mechanismEnd)))

// chooseDialect sets the dialect by the first byte of the connection, which it does
// not consume.
func (r *Reader) chooseDialect(b byte, h Handler) error {
	switch {
	case b == 0xFF:
		r.stage, r.state = stageGreeting, inGreeting
		h.Control(ourGreeting)
	case b <= flagMore|flagLong:
		r.stage, r.state = stageRaw, inHeader
	default:
		return &FrameError{Err: ErrFirstByte, Byte: b}
	}
	return nil
}

// readGreeting gathers the peer's greeting and returns the number of bytes consumed.
// It refuses an older peer on its version byte, since its greeting may be shorter.
func (r *Reader) readGreeting(p []byte) (int, error) {
	n := copy(r.carry[r.carryLen:greetingLen], p)
	r.carryLen += n
	g := r.carry[:r.carryLen]
	if len(g) > signatureEnd && g[signatureEnd] != 0x7F {
		err := ErrGreeting
		if g[signatureEnd]&1 == 0 { // the flags byte of an identity frame: ZMTP 1.0, which has no greeting
			err = ErrVersion
		}
		return n, &FrameError{Err: err, Byte: g[signatureEnd]}
	}
	if len(g) > versionMajor && g[versionMajor] < oldestMajor {
		return n, &FrameError{Err: ErrVersion, Byte: g[versionMajor]}
	}
	if len(g) < greetingLen {
		return n, nil
	}
	if string(g[mechanismBegin:mechanismEnd]) != mechanismNull {
		return n, &FrameError{Err: ErrMechanism, Byte: g[mechanismBegin]}
	}
	r.carryLen = 0
	r.stage, r.state = stageReady, inHeader
	return n, nil
}
