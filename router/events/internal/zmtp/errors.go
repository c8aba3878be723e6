package zmtp

import "errors"

// ErrNoMessage is the error of ReceiveWithin if no message came in time. The connection is
// still of use.
var ErrNoMessage = errors.New("events: zmtp: no message in time")

// Errors of a Conn. They are wrapped with the peer's address and what was read. After any of
// them the connection is of no more use, and only Close is left.
var (
	// ErrGreeting: the peer's first bytes are not those of ZMTP.
	ErrGreeting = errors.New("events: zmtp: the peer is not a ZeroMQ socket")
	// ErrVersion: the peer speaks a ZMTP before 3.0, as libzmq did before its release 4.0.
	ErrVersion = errors.New("events: zmtp: the peer speaks an old ZMTP")
	// ErrMechanism: the peer asks for PLAIN, CURVE or another security mechanism than NULL.
	ErrMechanism = errors.New("events: zmtp: the peer asks for another security mechanism than NULL")
	// ErrHandshake: the peer's READY is malformed, or something else came instead.
	ErrHandshake = errors.New("events: zmtp: the peer's handshake is malformed")
	// ErrSocketType: the peer's socket is none that talks to ours.
	ErrSocketType = errors.New("events: zmtp: the peer's socket has the wrong type")
	// ErrRefused: the peer sent the command ERROR.
	ErrRefused = errors.New("events: zmtp: the peer refuses the connection")
	// ErrFrame: the flags of a frame are none that ZMTP knows.
	ErrFrame = errors.New("events: zmtp: malformed frame")
	// ErrCommand: a command is malformed, too long, or has the flag of a message's frame.
	ErrCommand = errors.New("events: zmtp: malformed command")
	// ErrTooLarge: a message has more bytes than Config.MaxMessage.
	ErrTooLarge = errors.New("events: zmtp: message too large")
	// ErrTooManyFrames: a message has more than maxFrames.
	ErrTooManyFrames = errors.New("events: zmtp: message of too many frames")
	// ErrTimeout: the peer was silent, slow, or did not read, for longer than Config.Timeout.
	ErrTimeout = errors.New("events: zmtp: timed out")
	// ErrEndpoint: an endpoint cannot be parsed, or is of a transport that is not served.
	ErrEndpoint = errors.New("bad endpoint")
)
