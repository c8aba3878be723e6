package netproto

// Offsets in bytes in the ZMTP greeting (RFC 37/ZMTP). Both peers send 64 bytes: a
// signature (FF, 8 bytes of padding, 7F), the major and the minor version, 20 bytes of
// the security mechanism's name, as-server, and 31 bytes of filler.
const (
	greetingLen    = 64
	signatureEnd   = 9 // the last byte of the signature
	versionMajor   = 10
	mechanismBegin = 12
	mechanismEnd   = 32 // as-server follows

	// oldestMajor is the first version with these frames. The RFC demands that a
	// newer peer speaks them with us.
	oldestMajor = 3
)

// The greeting is gathered in Reader.carry, which must be large enough.
var _ [MaxHashLen - greetingLen]struct{}

// The mechanism field of a greeting. PLAIN is served after SetPlain only.
const (
	mechanismNull  = "NULL\x00" + zeros15
	mechanismPlain = "PLAIN" + zeros15
	zeros15        = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
)

// What we send: ZMTP 3.1 and the mechanism. The first 12 bytes are sent on the peer's first byte:
// libzmq sends its signature and waits for ours, so waiting for all its 64 bytes would
// deadlock. Without PLAIN the others are sent with them. With PLAIN they wait for the peer's
// mechanism, as both must name the same; libzmq sends its own once it has our version.
var (
	ourGreeting      = []byte(ourVersion + mechanismNull + "\x00" + ourFiller)
	ourPlainGreeting = []byte(ourVersion + mechanismPlain + "\x01" + ourFiller)
)

const (
	ourVersion = "\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\x03\x01"
	ourFiller  = zeros15 + zeros15 + "\x00"
)

// chooseDialect sets the dialect by the first byte of the connection, which it does
// not consume.
func (r *Reader) chooseDialect(b byte, h Handler) error {
	switch {
	case b == 0xFF:
		r.stage = stageGreeting
		greeting := ourGreeting
		if r.checkPlain != nil {
			greeting = ourGreeting[:mechanismBegin]
		}
		h.Control(greeting)
	case b <= flagMore|flagLong:
		r.stage = stageRaw
	default:
		return &FrameError{Err: ErrFirstByte, Byte: b}
	}
	return nil
}

// readGreeting gathers the peer's greeting and returns the number of bytes consumed.
// It refuses an older peer on its version byte, since its greeting may be shorter.
func (r *Reader) readGreeting(p []byte, h Handler) (int, error) {
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
	r.carryLen = 0
	return n, r.chooseMechanism(g, h)
}

// chooseMechanism sets the mechanism by the peer's greeting. A peer that has neither gets the rest
// of the greeting too: it tells the peer why it is closed.
func (r *Reader) chooseMechanism(peer []byte, h Handler) error {
	mechanism := string(peer[mechanismBegin:mechanismEnd])
	r.stage = stageReady
	if r.checkPlain != nil {
		rest := ourGreeting[mechanismBegin:]
		if mechanism == mechanismPlain {
			r.stage, rest = stageHello, ourPlainGreeting[mechanismBegin:]
		}
		h.Control(rest)
	}
	if r.stage == stageReady && mechanism != mechanismNull {
		return &FrameError{Err: ErrMechanism, Byte: peer[mechanismBegin]}
	}
	return nil
}
