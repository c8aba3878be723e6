package netproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// Names of the commands that mean something to a REP peer under NULL.
const (
	commandReady = "READY"
	commandError = "ERROR"
	commandPing  = "PING"
	commandPong  = "PONG"
)

// propertySocketType is the one property of READY that is looked at.
const propertySocketType = "Socket-Type"

// ourReady answers a peer's READY; ourError answers the READY of a peer that is
// neither REQ nor DEALER. Error reasons have no spaces in the RFC's grammar.
var (
	ourReady = appendCommand(nil, commandReady, "\x0bSocket-Type\x00\x00\x00\x03REP")
	ourError = appendCommand(nil, commandError, "\x1eonly-REQ-and-DEALER-are-served")
)

// pingTTL is the size in bytes of the time to live in a PING.
const pingTTL = 2

// appendCommand appends a short command frame.
func appendCommand[T string | []byte](dst []byte, name string, data T) []byte {
	dst = append(dst, FlagCommand, byte(1+len(name)+len(data)), byte(len(name)))
	return append(append(dst, name...), data...)
}

// commandFlags checks the flags of a command frame: commands come between
// messages, and are one frame.
func (r *Reader) commandFlags(flags byte) error {
	switch {
	case r.stage == stageRaw:
		return ErrCommand
	case flags&FlagMore != 0 || r.frames > 0:
		return ErrBadCommand
	}
	return nil
}

// beginCommand checks the size of a command whose header was just read.
func (r *Reader) beginCommand() error {
	if r.frame.size == 0 || r.frame.size > MaxCommand { // without even a name, or too long
		return r.broken(ErrBadCommand)
	}
	r.left = r.frame.size
	r.state = inCommand
	return nil
}

// commandBytes consumes the next bytes of a command's body and returns how many.
// One that arrives whole is read in place; else it is gathered, as it comes.
func (r *Reader) commandBytes(p []byte, h Handler) (int, error) {
	n := int(min(uint64(len(p)), r.left))
	p = p[:n]
	r.left -= uint64(n)
	if r.left > 0 || len(r.gathered) > 0 {
		r.gathered = append(r.gathered, p...)
		p = r.gathered
	}
	if r.left > 0 {
		return n, nil
	}
	r.gathered = nil // commands are rare and mostly whole: an idle connection keeps nothing
	r.state = inHeader
	if err := r.command(p, h); err != nil {
		return n, r.broken(err)
	}
	return n, nil
}

// command acts on a whole command.
func (r *Reader) command(body []byte, h Handler) error {
	nameLen := int(body[0])
	if nameLen == 0 || nameLen > len(body)-1 {
		return ErrBadCommand
	}
	name, data := body[1:1+nameLen], body[1+nameLen:]
	switch {
	case string(name) == commandError: // fatal by the RFC, whenever it comes
		return ErrPeerError
	case r.stage == stageReady:
		return r.ready(name, data, h)
	case string(name) == commandPing:
		return r.ping(data, h)
	}
	h.Control(nil)
	return nil
}

// ready ends the handshake, one way or the other.
func (r *Reader) ready(name, properties []byte, h Handler) error {
	if string(name) != commandReady {
		return ErrHandshake
	}
	err := checkProperties(properties)
	if errors.Is(err, ErrSocketType) { // the one error that the RFC wants told
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

// checkProperties reads the properties of a READY: a name of 1 to 255 bytes
// behind its length, a value behind its length of 4 bytes. Which peers may
// connect is told by the socket type; the RFC lets a peer leave it out.
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

// ping answers a PING with its context and keeps its time to live.
func (r *Reader) ping(data []byte, h Handler) error {
	if len(data) < pingTTL || len(data) > pingTTL+MaxPingContext {
		return ErrBadCommand
	}
	r.ttl = binary.BigEndian.Uint16(data)
	h.Control(appendCommand(r.carry[:0], commandPong, data[pingTTL:])) // carry is free between messages
	return nil
}

// TTL returns how long after the last byte the peer wants to be given up if it
// sends nothing more: the time to live of the PING that came last, 0 for no
// limit. Whatever comes after the PING ends it.
func (r *Reader) TTL() time.Duration { return time.Duration(r.ttl) * (time.Second / 10) }
