package netproto

import "strings"

// Offsets in bytes in the ZMTP greeting (RFC 37/ZMTP). Both peers send 64 bytes: a
// signature (FF, 8 bytes of padding, 7F), the major and the minor version, 20 bytes of
// the security mechanism's name, as-server, and 31 bytes of filler.
const (
	signatureEnd   = 9 // the last byte of the signature
	versionMajor   = 10
	versionMinor   = 11
	mechanismBegin = 12
	mechanismEnd   = 32 // as-server follows

	// oldestMajor is the first version with these frames. The RFC demands that a
	// newer peer speaks them with us.
	oldestMajor = 3
)

// GreetingLen is the size of a ZMTP greeting in bytes.
const GreetingLen = 64

// The greeting is gathered in Reader.carry, which must be large enough.
var _ [MaxHashLen - GreetingLen]struct{}

// The mechanism field of a greeting, padded. PLAIN is served after SetPlain only.
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
	ourGreeting      = []byte(Greeting)
	ourPlainGreeting = []byte(ourVersion + mechanismPlain + "\x01" + ourFiller)
)

// Greeting is that of a peer that speaks ZMTP 3.1 under the NULL mechanism.
const Greeting = ourVersion + mechanismNull + "\x00" + ourFiller

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
	case b <= FlagMore|FlagLong:
		r.stage = stageRaw
	default:
		return &FrameError{Err: ErrFirstByte, Byte: b}
	}
	return nil
}

// CheckGreeting checks the bytes of a peer's greeting that have arrived: an older peer's may be
// shorter than GreetingLen. It fails with ErrGreeting or ErrVersion, and returns the refused byte.
func CheckGreeting(g []byte) (refused byte, err error) {
	switch {
	case len(g) > 0 && g[0] != 0xFF:
		return g[0], ErrGreeting
	case len(g) > signatureEnd && g[signatureEnd]&1 == 0: // the flags of ZMTP 1.0's identity frame; it has no greeting
		return g[signatureEnd], ErrVersion
	case len(g) > signatureEnd && g[signatureEnd] != 0x7F:
		return g[signatureEnd], ErrGreeting
	case len(g) > versionMajor && g[versionMajor] < oldestMajor:
		return g[versionMajor], ErrVersion
	}
	return 0, nil
}

// ParseGreeting returns what a whole greeting says that CheckGreeting accepts: the minor version of
// the 3.x to speak with the peer, and its security mechanism.
func ParseGreeting(g []byte) (minor byte, mechanism string) {
	minor = g[versionMinor]
	if g[versionMajor] > oldestMajor {
		minor = 1 // ours
	}
	return minor, strings.TrimRight(string(g[mechanismBegin:mechanismEnd]), "\x00")
}

// readGreeting gathers the peer's greeting and returns the number of bytes consumed.
func (r *Reader) readGreeting(p []byte, h Handler) (int, error) {
	n := copy(r.carry[r.carryLen:GreetingLen], p)
	r.carryLen += n
	g := r.carry[:r.carryLen]
	if refused, err := CheckGreeting(g); err != nil {
		return n, &FrameError{Err: err, Byte: refused}
	}
	if len(g) < GreetingLen {
		return n, nil
	}
	r.carryLen = 0
	return n, r.chooseMechanism(g, h)
}

// chooseMechanism sets the mechanism by the peer's greeting. A peer that has neither gets the rest
// of the greeting too: it tells the peer why it is closed.
func (r *Reader) chooseMechanism(peer []byte, h Handler) error {
	_, mechanism := ParseGreeting(peer)
	r.stage = stageReady
	if r.checkPlain != nil {
		rest := ourGreeting[mechanismBegin:]
		if mechanism == "PLAIN" {
			r.stage, rest = stageHello, ourPlainGreeting[mechanismBegin:]
		}
		h.Control(rest)
	}
	if r.stage == stageReady && mechanism != "NULL" {
		return &FrameError{Err: ErrMechanism, Byte: peer[mechanismBegin]}
	}
	return nil
}
