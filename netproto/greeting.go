package netproto

// The ZMTP greeting. Both peers send 64 bytes: a signature of 10 (FF, 8 of
// padding, 7F), the major and the minor version, 20 of the security mechanism's
// name, and 32 of no meaning to the NULL mechanism.
const (
	greetingLen    = 64
	signatureEnd   = 9 // the last byte of the signature
	versionMajor   = 10
	mechanismBegin = 12
	mechanismEnd   = 32

	// oldestMajor is the first version with the frames that we speak. Newer ones
	// must speak ours with us, as the RFC demands.
	oldestMajor = 3
)

// The greeting is gathered where a cut hash is carried over later.
var _ [MaxHashLen - greetingLen]struct{}

// mechanismNull is the only mechanism served, as it stands in a greeting.
const mechanismNull = "NULL\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// ourGreeting is what we send: ZMTP 3.1, NULL. It goes out whole as soon as the
// peer's first byte has come: libzmq sends its signature and waits for ours
// before it goes on, so waiting for all 64 bytes would wait for ever.
var ourGreeting = []byte("\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\x03\x01" + mechanismNull + string(make([]byte, greetingLen-mechanismEnd)))

// chooseDialect looks at the first byte of the connection.
func (r *Reader) chooseDialect(b byte, h Handler) error {
	switch {
	case b == 0xFF:
		r.stage, r.state = stageGreeting, inGreeting
		h.Control(ourGreeting)
	case b <= FlagMore|FlagLong:
		r.stage, r.state = stageRaw, inHeader
	default:
		return &FrameError{Err: ErrFirstByte, Byte: b}
	}
	return nil
}

// greeting gathers the peer's greeting and returns the bytes used. An older peer
// is refused as soon as its version is known: its greeting may be shorter.
func (r *Reader) greeting(p []byte) (int, error) {
	n := copy(r.carry[r.carryLen:greetingLen], p)
	r.carryLen += n
	g := r.carry[:r.carryLen]
	if len(g) > signatureEnd && g[signatureEnd] != 0x7F {
		err := ErrGreeting
		if g[signatureEnd]&1 == 0 { // the flags of an identity of ZMTP 1.0, which has no greeting
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
