package netproto

// Names of the commands of the PLAIN mechanism (RFC 24/ZMTP-PLAIN). The client sends HELLO with
// a username and a password, and INITIATE with its properties once it has got WELCOME.
const (
	commandHello    = "HELLO"
	commandWelcome  = "WELCOME"
	commandInitiate = "INITIATE"
)

// ourWelcome answers a HELLO with valid credentials, ourRefusal any other. libzmq reports a status
// of three digits to its application as failed authentication, and does not try again.
var (
	ourWelcome = AppendCommand(nil, commandWelcome, "")
	ourRefusal = AppendCommand(nil, CommandError, "\x03400")
)

// SetPlain makes the Reader serve the PLAIN mechanism of ZMTP besides NULL. It must be called before
// the first byte. Feed calls check at most once, with the username and password of a HELLO: 0 to 255
// bytes each. They are borrowed, and overwritten after check returns. If it returns false, the peer
// gets ERROR and Feed fails with ErrCredentials.
func (r *Reader) SetPlain(check func(username, password []byte) bool) { r.checkPlain = check }

// handleHello checks the credentials of a HELLO and answers it.
func (r *Reader) handleHello(name, data []byte, h Handler) error {
	if string(name) != commandHello {
		return ErrHandshake
	}
	username, rest, ok := cutPrefixed(data)
	password, rest, ok2 := cutPrefixed(rest)
	if !ok || !ok2 || len(rest) > 0 {
		return ErrBadCommand
	}
	if !r.checkPlain(username, password) {
		r.frame.Size = 0 // the error would tell how long the password is
		h.Control(ourRefusal)
		return ErrCredentials
	}
	h.Control(ourWelcome)
	r.stage = stageInitiate
	return nil
}

// cutPrefixed returns the bytes after a length of one byte, and the rest after them. It returns false
// if there are fewer.
func cutPrefixed(b []byte) (value, rest []byte, ok bool) {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return nil, nil, false
	}
	end := 1 + int(b[0])
	return b[1:end], b[end:], true
}
