package netproto

// Limits of one connection's messages that an operator may change. The zero
// value means the defaults.
type Limits struct {
	// MaxMessage is the largest message in bytes, frame headers included.
	MaxMessage int64
	// MaxFrames is the largest number of frames of a message, envelope included.
	MaxFrames int
}

const (
	// DefaultMaxMessage bounds a message. 2,097,152 hashes of 32 bytes, the
	// largest lookup that is served, are just 64 MiB.
	DefaultMaxMessage = 64 << 20
	// DefaultMaxFrames bounds the frames of a message: the largest request has 5,
	// its envelope at most 9, and the rest is room for frames that are ignored.
	DefaultMaxFrames = 32
	// MaxEnvelopeFrames bounds the address frames of an envelope. A request passes
	// one for each proxy between a client and us; eight is more than anyone chains.
	MaxEnvelopeFrames = 8
	// MaxAddress is the size in bytes of one address frame: what ZMTP allows for a
	// routing id.
	MaxAddress = 255
	// MaxHashLen is the longest hash in bytes: SHA-512's 64.
	MaxHashLen = 64
	// MaxPing is the largest payload of a ping in bytes, all its frames together.
	MaxPing = 64 << 10
	// MaxCommand is the longest body of a ZMTP command in bytes. A READY of libzmq
	// takes about 40, the rest is room for an identity and properties of its own.
	MaxCommand = 4 << 10
	// MaxPingContext is the longest context of a PING in bytes: ZMTP's own limit.
	MaxPingContext = 16
)

// withDefaults fills in what is zero.
func (l Limits) withDefaults() Limits {
	if l.MaxMessage <= 0 {
		l.MaxMessage = DefaultMaxMessage
	}
	if l.MaxFrames <= 0 {
		l.MaxFrames = DefaultMaxFrames
	}
	return l
}
