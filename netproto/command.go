package netproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"time"
)

// Names of commands (RFC 37/ZMTP).
const (
	CommandReady = "READY"
	CommandError = "ERROR"
	CommandPing  = "PING"
	CommandPong  = "PONG"
)

// propertySocketType is the only property that is checked.
const propertySocketType = "Socket-Type"

// ourReady answers a peer's READY or INITIATE. ourError answers that of a peer that is
// neither REQ nor DEALER. The RFC's grammar allows no spaces in an error reason.
var (
	ourReady = AppendCommand(nil, CommandReady, "\x0bSocket-Type\x00\x00\x00\x03REP")
	ourError = AppendCommand(nil, CommandError, "\x1eonly-REQ-and-DEALER-are-served")
)

// pingTTL is the size in bytes of the time to live in a PING.
const pingTTL = 2

// SplitCommand returns the name and the data of a command with this body. It returns false if the
// body is malformed.
func SplitCommand(body []byte) (name, data []byte, ok bool) {
	name, data, ok = cutPrefixed(body)
	return name, data, ok && len(name) > 0
}

// AppendPong appends the PONG that answers a PING with this data. It returns false if the data is
// malformed.
func AppendPong(dst, ping []byte) (pong []byte, ok bool) {
	if len(ping) < pingTTL || len(ping) > pingTTL+maxPingContext {
		return dst, false
	}
	return AppendCommand(dst, CommandPong, ping[pingTTL:]), true
}

// CheckProperties checks the properties of a READY or INITIATE: name length (1 byte), name, value
// length (4 bytes), value. A socket type, which the RFC makes optional, must be one of peers. It
// fails with ErrProperties, or with ErrSocketType, and returns the refused type.
func CheckProperties(p []byte, peers ...string) (refused []byte, err error) {
	for len(p) > 0 {
		name, rest, ok := cutPrefixed(p)
		if !ok || len(name) == 0 || len(rest) < 4 {
			return nil, ErrProperties
		}
		size := binary.BigEndian.Uint32(rest)
		if rest = rest[4:]; uint64(size) > uint64(len(rest)) {
			return nil, ErrProperties
		}
		value := rest[:size]
		p = rest[size:]
		if bytes.EqualFold(name, []byte(propertySocketType)) && !slices.Contains(peers, string(value)) {
			return value, ErrSocketType
		}
	}
	return nil, nil
}

// beginCommand checks the size of a command whose header was just read.
func (r *Reader) beginCommand() error {
	limit := MaxCommand
	if r.stage == stageHello {
		limit = maxHello
	}
	if r.frame.Size == 0 || r.frame.Size > uint64(limit) { // without even a name, or too long
		return r.frameError(ErrBadCommand)
	}
	r.bodyLeft = r.frame.Size
	return nil
}

// readCommand consumes the next bytes of a command's body. A command that arrives whole is read in
// place; a cut one is gathered as it arrives.
func (r *Reader) readCommand(p []byte, h Handler) error {
	isHello := r.stage == stageHello
	if r.bodyLeft > 0 || len(r.gathered) > 0 {
		r.gather(p)
		p = r.gathered
	}
	if r.bodyLeft > 0 {
		return nil
	}
	r.gathered = nil // commands are rare and mostly arrive whole, so an idle connection retains no buffer
	err := r.handleCommand(p, h)
	if isHello {
		clear(p)
	}
	if err != nil {
		return r.frameError(err)
	}
	return nil
}

// gather appends bytes of a cut command. Those of a HELLO are overwritten where they were.
func (r *Reader) gather(p []byte) {
	isHello := r.stage == stageHello
	if isHello && r.gathered == nil {
		r.gathered = make([]byte, 0, r.frame.Size) // at most maxHello; growing would leave copies
	}
	r.gathered = append(r.gathered, p...)
	if isHello {
		clear(p)
	}
}

// handleCommand handles a whole command; body is not empty.
func (r *Reader) handleCommand(body []byte, h Handler) error {
	name, data, ok := SplitCommand(body)
	switch {
	case !ok:
		return ErrBadCommand
	case string(name) == CommandError: // fatal at any time, by the RFC
		return ErrPeerError
	case r.stage == stageHello:
		return r.handleHello(name, data, h)
	case r.stage == stageInitiate:
		return r.handleReady(commandInitiate, name, data, h)
	case r.stage == stageReady:
		return r.handleReady(CommandReady, name, data, h)
	case string(name) == CommandPing:
		return r.handlePing(data, h)
	}
	h.Control(nil)
	return nil
}

// handleReady ends the handshake: it answers with READY, or fails. want is the name of the command
// that ends it in the mechanism.
func (r *Reader) handleReady(want string, name, properties []byte, h Handler) error {
	if string(name) != want {
		return ErrHandshake
	}
	_, err := CheckProperties(properties, "REQ", "DEALER")
	if errors.Is(err, ErrSocketType) { // the RFC demands an ERROR command for this failure only
		h.Control(ourError)
	}
	if err != nil {
		return err
	}
	h.Control(ourReady)
	r.stage = stageZMTP
	r.phase = phaseEnvelope
	return nil
}

// handlePing answers a PING with a PONG of the same context, and records its TTL.
func (r *Reader) handlePing(data []byte, h Handler) error {
	pong, ok := AppendPong(r.carry[:0], data) // carry is free between frames
	if !ok {
		return ErrBadCommand
	}
	r.ttl = binary.BigEndian.Uint16(data)
	h.Control(pong)
	return nil
}

// TTL returns the time to live of the peer's last PING: the peer asks to be
// disconnected if it then sends nothing for that long. It returns 0, no limit, once any
// frame has begun after the PING.
func (r *Reader) TTL() time.Duration { return time.Duration(r.ttl) * (time.Second / 10) }
