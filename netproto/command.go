package netproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// Names of the commands that a REP peer handles (RFC 37/ZMTP).
const (
	commandReady = "READY"
	commandError = "ERROR"
	commandPing  = "PING"
	commandPong  = "PONG"
)

// propertySocketType is the only property that is checked.
const propertySocketType = "Socket-Type"

// ourReady answers a peer's READY or INITIATE. ourError answers that of a peer that is
// neither REQ nor DEALER. The RFC's grammar allows no spaces in an error reason.
var (
	ourReady = appendCommand(nil, commandReady, "\x0bSocket-Type\x00\x00\x00\x03REP")
	ourError = appendCommand(nil, commandError, "\x1eonly-REQ-and-DEALER-are-served")
)

// pingTTL is the size in bytes of the time to live in a PING.
const pingTTL = 2

// appendCommand appends a command frame in the short form: at most 255 body bytes.
func appendCommand[T string | []byte](dst []byte, name string, data T) []byte {
	dst = append(dst, flagCommand, byte(1+len(name)+len(data)), byte(len(name)))
	return append(append(dst, name...), data...)
}

// beginCommand checks the size of a command whose header was just read.
func (r *Reader) beginCommand() error {
	limit := maxCommand
	if r.stage == stageHello {
		limit = maxHello
	}
	if r.frame.size == 0 || r.frame.size > uint64(limit) { // without even a name, or too long
		return r.frameError(ErrBadCommand)
	}
	r.bodyLeft = r.frame.size
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
		r.gathered = make([]byte, 0, r.frame.size) // at most maxHello; growing would leave copies
	}
	r.gathered = append(r.gathered, p...)
	if isHello {
		clear(p)
	}
}

// handleCommand handles a whole command; body is not empty.
func (r *Reader) handleCommand(body []byte, h Handler) error {
	nameLen := int(body[0])
	if nameLen == 0 || nameLen > len(body)-1 {
		return ErrBadCommand
	}
	name, data := body[1:1+nameLen], body[1+nameLen:]
	switch {
	case string(name) == commandError: // fatal at any time, by the RFC
		return ErrPeerError
	case r.stage == stageHello:
		return r.handleHello(name, data, h)
	case r.stage == stageInitiate:
		return r.handleReady(commandInitiate, name, data, h)
	case r.stage == stageReady:
		return r.handleReady(commandReady, name, data, h)
	case string(name) == commandPing:
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
	err := checkProperties(properties)
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

// checkProperties checks the properties of a READY or INITIATE: name length (1 byte), name,
// value length (4 bytes), value. A socket type, which the RFC makes optional, must be
// REQ or DEALER.
func checkProperties(p []byte) error {
	for len(p) > 0 {
		name := int(p[0])
		if p = p[1:]; name == 0 || len(p) < name+4 {
			return ErrProperties
		}
		key := p[:name]
		size := binary.BigEndian.Uint32(p[name:])
		if p = p[name+4:]; size > math.MaxInt32 || int(size) > len(p) {
			return ErrProperties
		}
		value := p[:size]
		p = p[size:]
		if len(key) == len(propertySocketType) && bytes.EqualFold(key, []byte(propertySocketType)) &&
			string(value) != "REQ" && string(value) != "DEALER" {
			return ErrSocketType
		}
	}
	return nil
}

// handlePing answers a PING with a PONG of the same context, and records its TTL.
func (r *Reader) handlePing(data []byte, h Handler) error {
	if len(data) < pingTTL || len(data) > pingTTL+maxPingContext {
		return ErrBadCommand
	}
	r.ttl = binary.BigEndian.Uint16(data)
	h.Control(appendCommand(r.carry[:0], commandPong, data[pingTTL:])) // carry is free between messages
	return nil
}

// TTL returns the time to live of the peer's last PING: the peer asks to be
// disconnected if it then sends nothing for that long. It returns 0, no limit, once any
// frame has begun after the PING.
func (r *Reader) TTL() time.Duration { return time.Duration(r.ttl) * (time.Second / 10) }
