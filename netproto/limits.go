package netproto

import "cmp"

// Limits bounds the messages of one connection. A field that is zero or below means its
// default.
type Limits struct {
	// MaxMessage is the size of the largest message in bytes, frame headers included.
	MaxMessage int64
	// MaxFrames is the largest number of frames in a message, envelope included.
	MaxFrames int
	// MaxFrame, if set, returns the size in bytes of the largest frame behind those of a message. ParseMessage
	// asks it once the header of a frame is there.
	MaxFrame func(frames [][]byte) uint64
}

const (
	// DefaultMaxMessage is in bytes. It holds the default largest lookup: 2,000,000 hashes of 32 bytes.
	DefaultMaxMessage = 64 << 20
	// DefaultMaxFrames is more than any request needs: 6 frames and an envelope of
	// 9. The rest may be frames that are ignored, as those after a lookup's blob.
	DefaultMaxFrames = 32
	// MaxEnvelopeFrames is the largest number of address frames in an envelope. Each
	// proxy between the client and us adds one.
	MaxEnvelopeFrames = 8
	// MaxAddress is the largest address frame in bytes: ZMTP's limit of a routing id.
	MaxAddress = 255
	// MaxHashLen is the largest hash in bytes: that of SHA-512.
	MaxHashLen = 64
	// MaxPing is the largest payload of a ping in bytes, all its frames together.
	MaxPing = 64 << 10
	// MaxDescription is the largest description of a pool in bytes.
	MaxDescription = 64 << 10
	// MaxToken is the longest token in bytes: what a PLAIN handshake of ZMTP can send.
	MaxToken = 255
	// MaxRanks and MaxStates are the largest numbers of ranks and of states of a
	// store_prompt.
	MaxRanks, MaxStates = 4096, 4096
	// MaxCommand is the largest body of a ZMTP command in bytes. A READY of libzmq
	// takes about 40; an identity and application properties may follow.
	MaxCommand = 4 << 10
	// maxHello is the largest body of a HELLO in bytes: its name, and a username and a password
	// of 255 bytes each, each after its length.
	maxHello = 1 + len(commandHello) + 2*(1+255)
	// maxPingContext is the largest context of a PING in bytes: ZMTP's limit.
	maxPingContext = 16
)

// withDefaults returns l with its defaults filled in.
func (l Limits) withDefaults() Limits {
	return Limits{
		MaxMessage: cmp.Or(max(l.MaxMessage, 0), DefaultMaxMessage),
		MaxFrames:  cmp.Or(max(l.MaxFrames, 0), DefaultMaxFrames),
		MaxFrame:   l.MaxFrame,
	}
}
